/* Rotary positions. RoFormer, Su et al. 2021, in the half-split form of Hugging Face's Llama. */
#include "runtime/ops/ops.h"

#include "runtime/base/cut.h"
#include "runtime/base/dtype.h"
#include "runtime/ops/kernels/kernels.h"

#include <math.h>

typedef struct rotation {
    const shd_kernels *kernels;
    sherd_dtype dtype;
    int64_t rows, context, heads, head_size, stride;
    const float *table;
    float sign;
    void *x;
} rotation;

void shd_op_rope_table(int64_t context, int64_t head_size, double theta, float *table) {
    const int64_t half = head_size / 2;
    for (int64_t position = 0; position < context; position++) {
        float *cosines = table + position * head_size, *sines = cosines + half;
        for (int64_t j = 0; j < half; j++) {
            double angle = (double)position * pow(theta, -2.0 * (double)j / (double)head_size);
            cosines[j] = (float)cos(angle);
            sines[j] = (float)sin(angle);
        }
    }
}

static void rope_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const rotation *r = argument;
    const int64_t half = r->head_size / 2;
    int64_t count, first = shd_cut(r->rows, shd_rows_per_task(r->heads * r->head_size), index, &count);
    for (int64_t i = first; i < first + count; i++) {
        const float *cosines = r->table + i % r->context * r->head_size;
        for (int64_t h = 0; h < r->heads; h++)
            r->kernels->rope(half, cosines, cosines + half, r->sign,
                             shd_element(r->dtype, r->x, i * r->stride + h * r->head_size));
    }
}

void shd_op_rope(const shd_math *math, int64_t rows, int64_t context, int64_t heads, int64_t head_size, int64_t stride,
                 const float *table, bool inverse, void *x) {
    rotation r = {.kernels = shd_kernels_get(math->dtype),
                  .dtype = math->dtype,
                  .rows = rows,
                  .context = context,
                  .heads = heads,
                  .head_size = head_size,
                  .stride = stride,
                  .table = table,
                  .sign = inverse ? -1.0f : 1.0f,
                  .x = x};
    shd_pool_run(math->pool, rope_task, &r, shd_div_ceil(rows, shd_rows_per_task(heads * head_size)));
}
