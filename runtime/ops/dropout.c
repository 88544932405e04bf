/* Dropout of rows: tasks of whole rows, in which a row's mask is drawn as it is needed. */
#include "runtime/ops/dropout.h"

#include "runtime/base/cut.h"
#include "runtime/base/dtype.h"
#include "runtime/ops/kernels/kernels.h"
#include "runtime/ops/ops.h"

#include <assert.h>
#include <math.h>

shd_dropout shd_dropout_make(double p, uint64_t key, int64_t first_sequence) {
    enum { WHOLE = 65536 };
    assert(p >= 0 && p < 1);
    int64_t drop = (int64_t)nearbyint(p * WHOLE);
    if (p > 0) drop = shd_min(shd_max(drop, 1), WHOLE - 1);
    return (shd_dropout){.key = key,
                         .first_sequence = first_sequence,
                         .drop = (uint32_t)drop,
                         .scale = (float)((double)WHOLE / (double)(WHOLE - drop))};
}

typedef struct dropout_call {
    const shd_dropout *dropout;
    const shd_kernels *kernels;
    sherd_dtype dtype;
    int64_t rows, context, columns;
    const void *x, *residual;
    void *y;
} dropout_call;

static void rows_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const dropout_call *c = argument;
    int64_t rows;
    const int64_t first = shd_cut(c->rows, shd_rows_per_task(c->columns), index, &rows);
    for (int64_t i = first; i < first + rows; i++) {
        const shd_mask_row mask = {.key = c->dropout->key,
                                   .sequence = (uint64_t)(c->dropout->first_sequence + i / c->context),
                                   .row = (uint32_t)(i % c->context),
                                   .drop = c->dropout->drop,
                                   .scale = c->dropout->scale};
        const int64_t at = i * c->columns;
        c->kernels->dropout(&mask, c->columns, shd_const_element(c->dtype, c->x, at),
                            c->residual ? shd_const_element(c->dtype, c->residual, at) : NULL,
                            shd_element(c->dtype, c->y, at));
    }
}

void shd_op_dropout(const shd_math *math, const shd_dropout *dropout, int64_t rows, int64_t context, int64_t columns,
                    const void *x, const void *residual, void *y) {
    dropout_call call = {.dropout = dropout,
                         .kernels = shd_kernels_get(math->dtype),
                         .dtype = math->dtype,
                         .rows = rows,
                         .context = context,
                         .columns = columns,
                         .x = x,
                         .residual = residual,
                         .y = y};
    shd_pool_run(math->pool, rows_task, &call, shd_div_ceil(rows, shd_rows_per_task(columns)));
}
