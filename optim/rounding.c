#include "optim/rounding.h"

#include "optim/update_kernels.h"
#include "runtime/base/arith.h"

/* 64 KiB are read by one task: enough to be worth a thread. */
enum { CHUNK_COUNT = 16384 };

typedef struct rounding {
    shd_round_fn run;
    const float *from;
    uint16_t *to;
    int64_t count;
} rounding;

static void round_chunk(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const rounding *task = argument;
    int64_t first = index * CHUNK_COUNT;
    task->run(task->from + first, task->to + first, shd_min(CHUNK_COUNT, task->count - first));
}

void shd_round_span(shd_pool *pool, sherd_dtype dtype, int64_t count, const float *from, void *to) {
    if (count == 0) return;
    rounding task = {.run = shd_optim_round(shd_optim_kernels_best(), dtype), .from = from, .to = to, .count = count};
    shd_pool_run(pool, round_chunk, &task, shd_div_ceil(count, CHUNK_COUNT));
}
