/* LayerNorm and RMSNorm. Rows are independent; the gradients of weight and bias are sums over all rows in order, one
 * slab of columns a task. */
#include "runtime/ops/ops.h"

#include "runtime/base/cut.h"
#include "runtime/base/dtype.h"
#include "runtime/ops/kernels/kernels.h"

#include <stddef.h>

/* One call's operands. bias and mean are NULL for RMSNorm. */
typedef struct norm {
    const shd_kernels *kernels;
    sherd_dtype dtype;
    int64_t rows, columns;
    float eps;
    const void *x, *weight, *bias, *dy, *residual;
    const float *mean, *rstd;
    void *y, *dx;
    float *mean_out, *rstd_out, *dweight, *dbias;
} norm;

static void forward_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const norm *n = argument;
    int64_t count, first = shd_cut(n->rows, shd_rows_per_task(n->columns), index, &count);
    for (int64_t i = first; i < first + count; i++) {
        const void *x = shd_const_element(n->dtype, n->x, i * n->columns);
        void *y = shd_element(n->dtype, n->y, i * n->columns);
        if (n->bias)
            n->kernels->layernorm(n->columns, n->eps, x, n->weight, n->bias, y, n->mean_out + i, n->rstd_out + i);
        else
            n->kernels->rmsnorm(n->columns, n->eps, x, n->weight, y, n->rstd_out + i);
    }
}

static void input_backward_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const norm *n = argument;
    int64_t count, first = shd_cut(n->rows, shd_rows_per_task(n->columns), index, &count);
    for (int64_t i = first; i < first + count; i++) {
        const int64_t at = i * n->columns;
        const void *residual = n->residual ? shd_const_element(n->dtype, n->residual, at) : NULL;
        if (n->mean)
            n->kernels->layernorm_backward(n->columns, shd_const_element(n->dtype, n->x, at), n->weight, n->mean[i],
                                           n->rstd[i], shd_const_element(n->dtype, n->dy, at), residual,
                                           shd_element(n->dtype, n->dx, at));
        else
            n->kernels->rmsnorm_backward(n->columns, shd_const_element(n->dtype, n->x, at), n->weight, n->rstd[i],
                                         shd_const_element(n->dtype, n->dy, at), residual,
                                         shd_element(n->dtype, n->dx, at));
    }
}

static void weight_backward_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const norm *n = argument;
    int64_t width, at = shd_cut(n->columns, SHD_SLAB, index, &width);
    n->kernels->norm_weight_backward(n->rows, width, n->columns, shd_const_element(n->dtype, n->x, at), n->mean,
                                     n->rstd, shd_const_element(n->dtype, n->dy, at),
                                     n->dweight ? n->dweight + at : NULL, n->dbias ? n->dbias + at : NULL);
}

static void run_forward(const shd_math *math, norm n) {
    n.kernels = shd_kernels_get(math->dtype);
    n.dtype = math->dtype;
    shd_pool_run(math->pool, forward_task, &n, shd_div_ceil(n.rows, shd_rows_per_task(n.columns)));
}

static void run_backward(const shd_math *math, norm n) {
    n.kernels = shd_kernels_get(math->dtype);
    n.dtype = math->dtype;
    shd_pool_run(math->pool, input_backward_task, &n, shd_div_ceil(n.rows, shd_rows_per_task(n.columns)));
    if (n.dweight || n.dbias) shd_pool_run(math->pool, weight_backward_task, &n, shd_div_ceil(n.columns, SHD_SLAB));
}

void shd_op_layernorm(const shd_math *math, int64_t rows, int64_t columns, float eps, const void *x, const void *weight,
                      const void *bias, void *y, float *mean, float *rstd) {
    run_forward(math, (norm){.rows = rows,
                             .columns = columns,
                             .eps = eps,
                             .x = x,
                             .weight = weight,
                             .bias = bias,
                             .y = y,
                             .mean_out = mean,
                             .rstd_out = rstd});
}

void shd_op_layernorm_backward(const shd_math *math, int64_t rows, int64_t columns, const void *x, const void *weight,
                               const float *mean, const float *rstd, const void *dy, const void *residual, void *dx,
                               float *dweight, float *dbias) {
    run_backward(math, (norm){.rows = rows,
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

void shd_op_rmsnorm(const shd_math *math, int64_t rows, int64_t columns, float eps, const void *x, const void *weight,
                    void *y, float *rstd) {
    run_forward(
        math, (norm){.rows = rows, .columns = columns, .eps = eps, .x = x, .weight = weight, .y = y, .rstd_out = rstd});
}

void shd_op_rmsnorm_backward(const shd_math *math, int64_t rows, int64_t columns, const void *x, const void *weight,
                             const float *rstd, const void *dy, const void *residual, void *dx, float *dweight) {
    run_backward(math, (norm){.rows = rows,
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
    sherd_dtype dtype;
    int64_t rows, columns;
    const void *x;
    float *sum;
} column_sum;

static void column_sum_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const column_sum *c = argument;
    int64_t width, at = shd_cut(c->columns, SHD_SLAB, index, &width);
    c->kernels->column_sum(c->rows, width, c->columns, shd_const_element(c->dtype, c->x, at), c->sum + at);
}

void shd_op_column_sum(const shd_math *math, int64_t rows, int64_t columns, const void *x, float *sum) {
    column_sum c = {.kernels = shd_kernels_get(math->dtype),
                    .dtype = math->dtype,
                    .rows = rows,
                    .columns = columns,
                    .x = x,
                    .sum = sum};
    shd_pool_run(math->pool, column_sum_task, &c, shd_div_ceil(columns, SHD_SLAB));
}
