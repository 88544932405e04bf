/* Muon's step for one matrix: momentum, and the Newton-Schulz iteration that makes it nearly orthogonal.
 *
 * A tall matrix is not transposed: with A = Xᵀ·X the same iteration multiplies from the right. The work memory holds a
 * second matrix, so that X goes to and fro, and A and A·A, of the shorter side squared. */
#include "optim/whole_kernels.h"
#include "optim/whole_parts.h"
#include "runtime/base/cut.h"

#include <math.h>

/* The polynomial whose slope at 0 is largest while singular values stay in about [0.7, 1.2]. */
static const double linear = 3.4445, cubic = -4.7750, quintic = 2.0315;
static const double norm_floor = 1e-7;

/* Floats that keep what follows aligned. */
enum { ALIGN_COUNT = 16 };

static int64_t shorter_side(const sherd_tensor *tensor) { return shd_min(tensor->shape[0], tensor->shape[1]); }

int64_t shd_muon_work_bytes(const sherd_tensor *tensor) {
    int64_t side = shorter_side(tensor);
    return (shd_round_up(shd_tensor_elements(tensor), ALIGN_COUNT) + 2 * shd_round_up(side * side, ALIGN_COUNT)) *
           (int64_t)sizeof(float);
}

/* --- momentum ----------------------------------------------------------------------------------------------------- */

typedef struct follow_task {
    void (*run)(const shd_momentum_constants *constants, float *values, float *buffer, int64_t count);
    shd_momentum_constants constants;
    float *values, *buffer;
    int64_t count;
} follow_task;

static void follow_span(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const follow_task *task = argument;
    int64_t count, first = shd_cut(task->count, SHD_SPAN, index, &count);
    task->run(&task->constants, task->values + first, task->buffer + first, count);
}

/* The values become what is to be made orthogonal. */
static void follow_momentum(const sherd_optimizer *optimizer, shd_pool *pool, const shd_whole_step *step,
                            int64_t count) {
    if (!step->states[0]) {
        shd_whole_scale(pool, step->gradient_scale, step->values, step->values, count);
        return;
    }
    const shd_whole_kernels *kernels = shd_whole_kernels_best();
    follow_task task = {.run = optimizer->nesterov ? kernels->follow_nesterov : kernels->follow,
                        .constants = {.gradient_scale = step->gradient_scale,
                                      .momentum = (float)optimizer->momentum,
                                      .momentum_rest = (float)(1 - optimizer->momentum)},
                        .values = step->values,
                        .buffer = step->states[0],
                        .count = count};
    shd_pool_run(pool, follow_span, &task, shd_div_ceil(count, SHD_SPAN));
}

/* --- Newton-Schulz ------------------------------------------------------------------------------------------------ */

typedef struct iteration {
    shd_pool *pool;
    shd_product_fn multiply;
    int64_t rows, columns, side;
    float *gram, *squared; /* [side, side] */
} iteration;

typedef struct combine_task {
    const shd_whole_kernels *kernels;
    const iteration *it;
} combine_task;

static void combine_span(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const combine_task *task = argument;
    const iteration *it = task->it;
    int64_t count, first = shd_cut(it->side * it->side, SHD_SPAN, index, &count);
    task->kernels->combine((float)cubic, (float)quintic, it->gram + first, it->squared + first, count);
}

/* gram = cubic·A + quintic·A·A, A = X·Xᵀ, or Xᵀ·X when X is tall. */
static void make_polynomial(const iteration *it, const float *x) {
    int64_t side = it->side;
    bool tall = it->rows > it->columns;
    it->multiply(it->pool, &(shd_product){.m = side,
                                          .n = side,
                                          .k = shd_max(it->rows, it->columns),
                                          .a = x,
                                          .b = x,
                                          .c = it->gram,
                                          .a_transposed = tall,
                                          .b_transposed = !tall});
    it->multiply(it->pool,
                 &(shd_product){.m = side, .n = side, .k = side, .a = it->gram, .b = it->gram, .c = it->squared});
    combine_task task = {.kernels = shd_whole_kernels_best(), .it = it};
    shd_pool_run(it->pool, combine_span, &task, shd_div_ceil(side * side, SHD_SPAN));
}

/* y = linear·x + gram·x, or x·gram when X is tall. */
static void iterate(const iteration *it, const float *x, float *y) {
    bool tall = it->rows > it->columns;
    make_polynomial(it, x);
    shd_whole_scale(it->pool, (float)linear, x, y, it->rows * it->columns);
    it->multiply(it->pool, &(shd_product){.m = it->rows,
                                          .n = it->columns,
                                          .k = it->side,
                                          .a = tall ? x : it->gram,
                                          .b = tall ? it->gram : x,
                                          .c = y,
                                          .accumulate = true});
}

static double rate_factor(const sherd_optimizer *optimizer, const sherd_tensor *tensor) {
    double rows = (double)tensor->shape[0], columns = (double)tensor->shape[1];
    return optimizer->adjust_lr == SHERD_ADJUST_LR_ORIGINAL ? sqrt(fmax(1, rows / columns))
                                                            : 0.2 * sqrt(fmax(rows, columns));
}

void shd_muon_make_step(const sherd_optimizer *optimizer, shd_pool *pool, const shd_whole_step *step) {
    const sherd_tensor *tensor = step->tensor;
    int64_t count = shd_tensor_elements(tensor), side = shorter_side(tensor);
    float *x = step->values, *y = step->work;
    const iteration it = {.pool = pool,
                          .multiply = step->multiply,
                          .rows = tensor->shape[0],
                          .columns = tensor->shape[1],
                          .side = side,
                          .gram = y + shd_round_up(count, ALIGN_COUNT),
                          .squared = y + shd_round_up(count, ALIGN_COUNT) + shd_round_up(side * side, ALIGN_COUNT)};
    follow_momentum(optimizer, pool, step, count);
    double norm = sqrt(shd_whole_square_sum(pool, x, count, step->work));
    shd_whole_scale(pool, (float)(1 / shd_whole_at_least(norm_floor, norm)), x, x, count);
    for (int32_t i = 0; i < optimizer->ns_steps; i++) {
        iterate(&it, x, y);
        float *older = x;
        x = y;
        y = older;
    }
    shd_whole_scale(pool, (float)(step->lr * rate_factor(optimizer, tensor)), x, step->values, count);
}
