/* Embedding: rows of a table by token, and the gradient's scatter, in which a token's rows must be added in order: so a
 * task owns a slab of columns and walks all rows. */
#include "runtime/ops/ops.h"

#include "runtime/base/cut.h"
#include "runtime/base/dtype.h"
#include "runtime/ops/kernels/kernels.h"

#include <string.h>

/* Narrow enough that a small model's columns still make a task for each of several threads. */
enum { SCATTER_COLUMNS = 64 };

typedef struct embedding {
    const shd_kernels *kernels;
    sherd_dtype dtype;
    int64_t rows, context, columns, vocabulary;
    const int32_t *ids;
    const void *token, *position, *dy;
    void *y;
    float *dtoken, *dposition;
} embedding;

static void forward_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const embedding *e = argument;
    int64_t count, first = shd_cut(e->rows, shd_rows_per_task(e->columns), index, &count);
    for (int64_t i = first; i < first + count; i++) {
        const void *token = shd_const_element(e->dtype, e->token, e->ids[i] * e->columns);
        void *y = shd_element(e->dtype, e->y, i * e->columns);
        if (e->position)
            e->kernels->add(e->columns, token, shd_const_element(e->dtype, e->position, i % e->context * e->columns),
                            y);
        else
            memcpy(y, token, (size_t)(e->columns * shd_dtype_bytes(e->dtype)));
    }
}

static void zero_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const embedding *e = argument;
    int64_t count, at = shd_cut(e->vocabulary * e->columns, SHD_SPAN, index, &count);
    memset(e->dtoken + at, 0, sizeof(float) * (size_t)count);
}

static void scatter_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const embedding *e = argument;
    int64_t width, at = shd_cut(e->columns, SCATTER_COLUMNS, index, &width);
    for (int64_t i = 0; i < e->rows; i++) {
        float *sum = e->dtoken + e->ids[i] * e->columns + at;
        e->kernels->accumulate(width, shd_const_element(e->dtype, e->dy, i * e->columns + at), sum);
    }
}

static void position_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const embedding *e = argument;
    int64_t count, first = shd_cut(e->context, shd_rows_per_task(e->columns), index, &count);
    for (int64_t t = first; t < first + count; t++) {
        float *sum = e->dposition + t * e->columns;
        memset(sum, 0, sizeof(float) * (size_t)e->columns);
        for (int64_t i = t; i < e->rows; i += e->context)
            e->kernels->accumulate(e->columns, shd_const_element(e->dtype, e->dy, i * e->columns), sum);
    }
}

void shd_op_embedding(const shd_math *math, int64_t rows, int64_t context, int64_t columns, int64_t vocabulary,
                      const int32_t *ids, const void *token, const void *position, void *y) {
    embedding e = {.kernels = shd_kernels_get(math->dtype),
                   .dtype = math->dtype,
                   .rows = rows,
                   .context = context,
                   .columns = columns,
                   .vocabulary = vocabulary,
                   .ids = ids,
                   .token = token,
                   .position = position,
                   .y = y};
    shd_pool_run(math->pool, forward_task, &e, shd_div_ceil(rows, shd_rows_per_task(columns)));
}

void shd_op_embedding_backward(const shd_math *math, int64_t rows, int64_t context, int64_t columns, int64_t vocabulary,
                               const int32_t *ids, const void *dy, bool accumulate, float *dtoken, float *dposition) {
    embedding e = {.kernels = shd_kernels_get(math->dtype),
                   .dtype = math->dtype,
                   .rows = rows,
                   .context = context,
                   .columns = columns,
                   .vocabulary = vocabulary,
                   .ids = ids,
                   .dy = dy,
                   .dtoken = dtoken,
                   .dposition = dposition};
    if (dtoken) {
        if (!accumulate) shd_pool_run(math->pool, zero_task, &e, shd_div_ceil(vocabulary * columns, SHD_SPAN));
        shd_pool_run(math->pool, scatter_task, &e, shd_div_ceil(columns, SCATTER_COLUMNS));
    }
    if (dposition) shd_pool_run(math->pool, position_task, &e, shd_div_ceil(context, shd_rows_per_task(columns)));
}
