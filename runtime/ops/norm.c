/* LayerNorm and RMSNorm. Rows are independent; the gradients of weight and bias are sums over all rows in order, one
 * slab of columns a task. */
#include "runtime/ops/ops.h"

#include "runtime/ops/cut.h"
#include "runtime/ops/kernels/kernels.h"

#include <stddef.h>

/* One call's operands. bias and mean are NULL for RMSNorm. */
typedef struct norm {
    const shd_kernels *kernels;
    int64_t rows, columns;
    float eps;
    const float *x, *weight, *bias, *dy, *residual;
    const float *mean, *rstd;
    float *y, *mean_out, *rstd_out;
    float *dx, *dweight, *dbias;
} norm;

static void forward_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const norm *n = argument;
    int64_t count, first = shd_piece(n->rows, shd_rows_per_task(n->columns), index, &count);
    for (int64_t i = first; i < first + count; i++) {
        const float *x = n->x + i * n->columns;
        float *y = n->y + i * n->columns;
        if (n->bias)
            n->kernels->layernorm(n->columns, n->eps, x, n->weight, n->bias, y, n->mean_out + i, n->rstd_out + i);
        else
            n->kernels->rmsnorm(n->columns, n->eps, x, n->weight, y, n->rstd_out + i);
    }
}

static void input_backward_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const norm *n = argument;
    int64_t count, first = shd_piece(n->rows, shd_rows_per_task(n->columns), index, &count);
    for (int64_t i = first; i < first + count; i++) {
        const int64_t at = i * n->columns;
        const float *residual = n->residual ? n->residual + at : NULL;
        if (n->mean)
            n->kernels->layernorm_backward(n->columns, n->x + at, n->weight, n->mean[i], n->rstd[i], n->dy + at,
                                           residual, n->dx + at);
        else
            n->kernels->rmsnorm_backward(n->columns, n->x + at, n->weight, n->rstd[i], n->dy + at, residual,
                                         n->dx + at);
    }
}

static void weight_backward_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const norm *n = argument;
    int64_t width, at = shd_piece(n->columns, SHD_SLAB, index, &width);
    n->kernels->norm_weight_backward(n->rows, width, n->columns, n->x + at, n->mean, n->rstd, n->dy + at,
                                     n->dweight ? n->dweight + at : NULL, n->dbias ? n->dbias + at : NULL);
}

static void run_forward(shd_pool *pool, norm n) {
    n.kernels = shd_kernels_get();
    shd_pool_run(pool, forward_task, &n, shd_div_ceil(n.rows, shd_rows_per_task(n.columns)));
}

static void run_backward(shd_pool *pool, norm n) {
    n.kernels = shd_kernels_get();
    shd_pool_run(pool, input_backward_task, &n, shd_div_ceil(n.rows, shd_rows_per_task(n.columns)));
    if (n.dweight || n.dbias) shd_pool_run(pool, weight_backward_task, &n, shd_div_ceil(n.columns, SHD_SLAB));
}

void shd_op_layernorm(shd_pool *pool, int64_t rows, int64_t columns, float eps, const float *x, const float *weight,
                      const float *bias, float *y, float *mean, float *rstd) {
    run_forward(pool, (norm){.rows = rows,
                             .columns = columns,
                             .eps = eps,
                             .x = x,
                             .weight = weight,
                             .bias = bias,
                             .y = y,
                             .mean_out = mean,
                             .rstd_out = rstd});
}

void shd_op_layernorm_backward(shd_pool *pool, int64_t rows, int64_t columns, const float *x, const float *weight,
                               const float *mean, const float *rstd, const float *dy, const float *residual, float *dx,
                               float *dweight, float *dbias) {
    run_backward(pool, (norm){.rows = rows,
                              .columns = columns,
                              .x = x,
                              .weight = weight,
                              .mean = mean,
                              .rstd = rstd,
                              .dy = dy,
                              .residual = residual,
                              .dx = dx,
                              .dweight = dweight,
                              .dbias = dbias});
}

void shd_op_rmsnorm(shd_pool *pool, int64_t rows, int64_t columns, float eps, const float *x, const float *weight,
                    float *y, float *rstd) {
    run_forward(
        pool, (norm){.rows = rows, .columns = columns, .eps = eps, .x = x, .weight = weight, .y = y, .rstd_out = rstd});
}

void shd_op_rmsnorm_backward(shd_pool *pool, int64_t rows, int64_t columns, const float *x, const float *weight,
                             const float *rstd, const float *dy, const float *residual, float *dx, float *dweight) {
    run_backward(pool, (norm){.rows = rows,
                              .columns = columns,
                              .x = x,
                              .weight = weight,
                              .rstd = rstd,
                              .dy = dy,
                              .residual = residual,
                              .dx = dx,
                              .dweight = dweight});
}

typedef struct column_sum {
    const shd_kernels *kernels;
    int64_t rows, columns;
    const float *x;
    float *sum;
} column_sum;

static void column_sum_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const column_sum *c = argument;
    int64_t width, at = shd_piece(c->columns, SHD_SLAB, index, &width);
    c->kernels->column_sum(c->rows, width, c->columns, c->x + at, c->sum + at);
}

void shd_op_column_sum(shd_pool *pool, int64_t rows, int64_t columns, const float *x, float *sum) {
    column_sum c = {.kernels = shd_kernels_get(), .rows = rows, .columns = columns, .x = x, .sum = sum};
    shd_pool_run(pool, column_sum_task, &c, shd_div_ceil(columns, SHD_SLAB));
}
