/* Elementwise operations: spans of SHD_SPAN elements, one a task. */
#include "runtime/ops/ops.h"

#include "runtime/base/cut.h"
#include "runtime/base/dtype.h"
#include "runtime/ops/kernels/kernels.h"

#include <stddef.h>

/* One call's operands; the task knows which it has. */
typedef struct elementwise {
    const shd_kernels *kernels;
    sherd_dtype dtype;
    int64_t count;
    const void *in[3];
    void *out[2];
} elementwise;

static const void *input(const elementwise *e, int operand, int64_t at) {
    return shd_const_element(e->dtype, e->in[operand], at);
}

static void *output(const elementwise *e, int operand, int64_t at) {
    return shd_element(e->dtype, e->out[operand], at);
}

static void run(const shd_math *math, shd_task_fn task, elementwise operands) {
    operands.kernels = shd_kernels_get(math->dtype);
    operands.dtype = math->dtype;
    shd_pool_run(math->pool, task, &operands, shd_div_ceil(operands.count, SHD_SPAN));
}

static void gelu_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const elementwise *e = argument;
    int64_t length, at = shd_cut(e->count, SHD_SPAN, index, &length);
    e->kernels->gelu(length, input(e, 0, at), output(e, 0, at));
}

void shd_op_gelu(const shd_math *math, int64_t count, const void *x, void *y) {
    run(math, gelu_task, (elementwise){.count = count, .in = {x}, .out = {y}});
}

static void gelu_backward_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const elementwise *e = argument;
    int64_t length, at = shd_cut(e->count, SHD_SPAN, index, &length);
    e->kernels->gelu_backward(length, input(e, 0, at), input(e, 1, at), output(e, 0, at));
}

void shd_op_gelu_backward(const shd_math *math, int64_t count, const void *x, const void *dy, void *dx) {
    run(math, gelu_backward_task, (elementwise){.count = count, .in = {x, dy}, .out = {dx}});
}

static void relu_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const elementwise *e = argument;
    int64_t length, at = shd_cut(e->count, SHD_SPAN, index, &length);
    e->kernels->relu(length, input(e, 0, at), output(e, 0, at));
}

void shd_op_relu(const shd_math *math, int64_t count, const void *x, void *y) {
    run(math, relu_task, (elementwise){.count = count, .in = {x}, .out = {y}});
}

static void relu_backward_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const elementwise *e = argument;
    int64_t length, at = shd_cut(e->count, SHD_SPAN, index, &length);
    e->kernels->relu_backward(length, input(e, 0, at), input(e, 1, at), output(e, 0, at));
}

void shd_op_relu_backward(const shd_math *math, int64_t count, const void *y, const void *dy, void *dx) {
    run(math, relu_backward_task, (elementwise){.count = count, .in = {y, dy}, .out = {dx}});
}

static void swiglu_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const elementwise *e = argument;
    int64_t length, at = shd_cut(e->count, SHD_SPAN, index, &length);
    e->kernels->swiglu(length, input(e, 0, at), input(e, 1, at), output(e, 0, at));
}

void shd_op_swiglu(const shd_math *math, int64_t count, const void *gate, const void *up, void *y) {
    run(math, swiglu_task, (elementwise){.count = count, .in = {gate, up}, .out = {y}});
}

static void swiglu_backward_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const elementwise *e = argument;
    int64_t length, at = shd_cut(e->count, SHD_SPAN, index, &length);
    e->kernels->swiglu_backward(length, input(e, 0, at), input(e, 1, at), input(e, 2, at), output(e, 0, at),
                                output(e, 1, at));
}

void shd_op_swiglu_backward(const shd_math *math, int64_t count, const void *gate, const void *up, const void *dy,
                            void *dgate, void *dup) {
    run(math, swiglu_backward_task, (elementwise){.count = count, .in = {gate, up, dy}, .out = {dgate, dup}});
}
