/* Elementwise operations: spans of SHD_SPAN elements, one a task. */
#include "runtime/ops/ops.h"

#include "runtime/ops/cut.h"
#include "runtime/ops/kernels/kernels.h"

#include <stddef.h>

/* One call's operands; the task knows which it has. */
typedef struct elementwise {
    const shd_kernels *kernels;
    int64_t count;
    const float *in[3];
    float *out[2];
} elementwise;

static void run(shd_pool *pool, shd_task_fn task, elementwise operands) {
    operands.kernels = shd_kernels_get();
    shd_pool_run(pool, task, &operands, shd_div_ceil(operands.count, SHD_SPAN));
}

static void gelu_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const elementwise *e = argument;
    int64_t length, at = shd_piece(e->count, SHD_SPAN, index, &length);
    e->kernels->gelu(length, e->in[0] + at, e->out[0] + at);
}

void shd_op_gelu(shd_pool *pool, int64_t count, const float *x, float *y) {
    run(pool, gelu_task, (elementwise){.count = count, .in = {x}, .out = {y}});
}

static void gelu_backward_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const elementwise *e = argument;
    int64_t length, at = shd_piece(e->count, SHD_SPAN, index, &length);
    e->kernels->gelu_backward(length, e->in[0] + at, e->in[1] + at, e->out[0] + at);
}

void shd_op_gelu_backward(shd_pool *pool, int64_t count, const float *x, const float *dy, float *dx) {
    run(pool, gelu_backward_task, (elementwise){.count = count, .in = {x, dy}, .out = {dx}});
}

static void swiglu_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const elementwise *e = argument;
    int64_t length, at = shd_piece(e->count, SHD_SPAN, index, &length);
    e->kernels->swiglu(length, e->in[0] + at, e->in[1] + at, e->out[0] + at);
}

void shd_op_swiglu(shd_pool *pool, int64_t count, const float *gate, const float *up, float *y) {
    run(pool, swiglu_task, (elementwise){.count = count, .in = {gate, up}, .out = {y}});
}

static void swiglu_backward_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const elementwise *e = argument;
    int64_t length, at = shd_piece(e->count, SHD_SPAN, index, &length);
    e->kernels->swiglu_backward(length, e->in[0] + at, e->in[1] + at, e->in[2] + at, e->out[0] + at, e->out[1] + at);
}

void shd_op_swiglu_backward(shd_pool *pool, int64_t count, const float *gate, const float *up, const float *dy,
                            float *dgate, float *dup) {
    run(pool, swiglu_backward_task, (elementwise){.count = count, .in = {gate, up, dy}, .out = {dgate, dup}});
}
