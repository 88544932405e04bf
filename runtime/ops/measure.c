/* How fast products are here, for whoever looks at a machine. */
#include "runtime/base/arith.h"
#include "runtime/base/clock.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/ops/ops.h"

enum { SIDE = 512, ALIGN_BYTES = 4096 };
static const double MEASURE_MS = 30;

/* Room for three square matrices, and behind them for what products need. */
static sherd_status measure(sherd_dtype dtype, shd_pool *pool, double *gflops) {
    const int64_t matrix = SIDE * SIDE * (int64_t)sizeof(float);
    const int64_t bytes = 3 * matrix + shd_op_matmul_scratch_bytes(dtype, 1) + ALIGN_BYTES;
    char *room = shd_map(bytes);
    if (!room) return shd_fail(SHERD_MEMORY, "no memory for %lld bytes", (long long)bytes);
    const shd_math math = {.pool = pool, .dtype = dtype, .scratch = room + 3 * matrix};
    const shd_matmul product = {.m = SIDE,
                                .n = SIDE,
                                .k = SIDE,
                                .a = room,
                                .b = room + matrix,
                                .c = room + 2 * matrix,
                                .lda = SIDE,
                                .ldb = SIDE,
                                .ldc = SIDE};
    shd_op_matmul(&math, &product); /* the first one finds cold caches */
    int64_t count = 0;
    double start_ms = shd_clock_ms(), spent_ms = 0;
    for (; spent_ms < MEASURE_MS; spent_ms = shd_clock_ms() - start_ms, count++) shd_op_matmul(&math, &product);
    *gflops = 2.0 * SIDE * SIDE * SIDE * (double)count / spent_ms / 1e6;
    shd_unmap(room, bytes);
    return SHERD_OK;
}

sherd_status shd_ops_measure(sherd_dtype dtype, double *gflops) {
    shd_pool *pool;
    SHD_TRY(shd_pool_create(1, &pool));
    sherd_status status = measure(dtype, pool, gflops);
    shd_pool_destroy(pool);
    return status;
}
