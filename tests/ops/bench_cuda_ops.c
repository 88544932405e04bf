/* What the memory-bound operations reach on a GPU: `gpu-bench-ops [rows [columns]]`; default 8192 and 768. For each the
 * time of a call and the bytes a second that it has to move, in GB, beside a plain copy's. */
#include "runtime/base/clock.h"
#include "runtime/base/dtype.h"
#include "runtime/ops/cuda/cuda_ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { REPEATS = 50, VOCABULARY = 50257, CONTEXT = 1024, HEAD_SIZE = 64, ARRAYS = 5, WIDER = 4 };

static const shd_device_ops *ops;
static shd_device *device;
static shd_stream *stream;
static shd_event *event;

static struct bench {
    int64_t rows, columns, count; /* count: of an activation, WIDER times a row */
    shd_math math;
    void *x[ARRAYS]; /* `count` elements of any type */
    float *mean, *rstd, *dweight, *dbias, *table, *dtoken, *dposition;
    void *token, *weight;
    int32_t *ids;
} b;

static void require(sherd_status status) {
    if (status == SHERD_OK) return;
    fprintf(stderr, "gpu-bench-ops: %s\n", sherd_last_error());
    exit(1);
}

static void *take(int64_t bytes) {
    void *memory;
    require(ops->allocate(device, bytes, &memory));
    return memory;
}

static void wait_for_all(void) {
    ops->record(stream, event);
    while (!ops->reached(event)) nanosleep(&(struct timespec){.tv_nsec = 2000}, NULL);
    require(ops->status(device));
}

static void copy(void) { ops->copy(stream, b.x[1], b.x[0], b.count * shd_dtype_bytes(b.math.dtype)); }
static void layernorm(void) {
    shd_cuda_layernorm(&b.math, b.rows, b.columns, 1e-5f, b.x[0], b.weight, b.weight, b.x[1], b.mean, b.rstd);
}
static void layernorm_backward(void) {
    shd_cuda_layernorm_backward(&b.math, b.rows, b.columns, b.x[0], b.weight, b.mean, b.rstd, b.x[1], b.x[2], b.x[2],
                                b.dweight, b.dbias);
}
static void rmsnorm(void) { shd_cuda_rmsnorm(&b.math, b.rows, b.columns, 1e-5f, b.x[0], b.weight, b.x[1], b.rstd); }
static void rmsnorm_backward(void) {
    shd_cuda_rmsnorm_backward(&b.math, b.rows, b.columns, b.x[0], b.weight, b.rstd, b.x[1], b.x[2], b.x[2], b.dweight);
}
static void gelu(void) { shd_cuda_gelu(&b.math, b.count, b.x[0], b.x[1]); }
static void gelu_backward(void) { shd_cuda_gelu_backward(&b.math, b.count, b.x[0], b.x[1], b.x[1]); }
static void swiglu(void) { shd_cuda_swiglu(&b.math, b.count, b.x[0], b.x[1], b.x[2]); }
static void swiglu_backward(void) {
    shd_cuda_swiglu_backward(&b.math, b.count, b.x[0], b.x[1], b.x[2], b.x[3], b.x[4]);
}
static void rope(void) {
    shd_cuda_rope(&b.math, b.rows, CONTEXT, b.columns / HEAD_SIZE, HEAD_SIZE, b.columns, b.table, false, b.x[0]);
}
static void embedding(void) {
    shd_cuda_embedding(&b.math, b.rows, CONTEXT, b.columns, VOCABULARY, b.ids, b.token, NULL, b.x[1]);
}
static void embedding_backward(void) {
    shd_cuda_embedding_backward(&b.math, b.rows, CONTEXT, b.columns, VOCABULARY, b.ids, b.x[1], true, b.dtoken,
                                b.dposition);
}

/* `moved`: arrays of `width` rows' elements that a call reads and writes. */
static const struct {
    const char *name;
    void (*run)(void);
    int moved, width;
} operations[] = {{"copy", copy, 2, WIDER},
                  {"layernorm", layernorm, 2, 1},
                  {"layernorm_backward", layernorm_backward, 6, 1},
                  {"rmsnorm", rmsnorm, 2, 1},
                  {"rmsnorm_backward", rmsnorm_backward, 6, 1},
                  {"gelu", gelu, 2, WIDER},
                  {"gelu_backward", gelu_backward, 3, WIDER},
                  {"swiglu", swiglu, 3, WIDER},
                  {"swiglu_backward", swiglu_backward, 5, WIDER},
                  {"rope", rope, 2, 1},
                  {"embedding", embedding, 2, 1},
                  {"embedding_backward", embedding_backward, 2, 1}};

static void make_operands(void) {
    const int64_t element = sizeof(float);
    b.count = b.rows * b.columns * WIDER;
    for (int i = 0; i < ARRAYS; i++) b.x[i] = take(b.count * element);
    b.mean = take(b.rows * element), b.rstd = take(b.rows * element);
    b.dweight = take(b.columns * element), b.dbias = take(b.columns * element), b.weight = take(b.columns * element);
    b.table = take((int64_t)CONTEXT * HEAD_SIZE * element);
    b.token = take(VOCABULARY * b.columns * element), b.dtoken = take(VOCABULARY * b.columns * element);
    b.dposition = take(CONTEXT * b.columns * element);
    b.ids = take(b.rows * (int64_t)sizeof *b.ids);
    b.math = (shd_math){.device_ops = ops, .stream = stream, .scratch = take(32 << 20)};
    /* Tokens that mostly differ, as in text. */
    int32_t *ids;
    require(ops->allocate_pinned(device, b.rows * (int64_t)sizeof *ids, (void **)&ids));
    for (int64_t i = 0; i < b.rows; i++)
        ids[i] = (int32_t)((uint64_t)i * i * 2654435761u % 9973 * (i % 5) % VOCABULARY);
    ops->copy(stream, b.ids, ids, b.rows * (int64_t)sizeof *ids);
    wait_for_all();
    ops->release_pinned(device, ids);
}

int main(int argc, char **argv) {
    static const char *const names[] = {"fp32", "bf16", "fp16"};
    ops = shd_device_backend();
    b.rows = argc > 1 ? atoll(argv[1]) : 8192;
    b.columns = argc > 2 ? atoll(argv[2]) : 768;
    require(ops->open(&(shd_device_config){.index = 0}, &device));
    require(ops->create_stream(device, "operations", false, &stream));
    require(ops->create_event(device, &event));
    make_operands();
    for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_BF16; dtype++)
        for (size_t o = 0; o < sizeof operations / sizeof *operations; o++) {
            b.math.dtype = dtype;
            operations[o].run();
            wait_for_all();
            const double start = shd_clock_ms();
            for (int i = 0; i < REPEATS; i++) operations[o].run();
            wait_for_all();
            const double ms = (shd_clock_ms() - start) / REPEATS;
            const int64_t bytes =
                b.rows * b.columns * operations[o].width * operations[o].moved * shd_dtype_bytes(dtype);
            printf("%-20s %s  %8.1f us  %7.0f GB/s\n", operations[o].name, names[dtype], ms * 1e3,
                   (double)bytes * 1e-6 / ms);
        }
    return 0;
}
