/* From float32 sums to the output: what a product adds, and its one rounding. */
#ifndef SHD_OPS_HALF_FINISH_H
#define SHD_OPS_HALF_FINISH_H

#include "runtime/base/dtype.h"
#include "runtime/ops/half/blocked.h"

static inline __attribute__((always_inline)) void add_widened(sherd_dtype dtype, int64_t count, const uint16_t *x,
                                                              float *sums) {
    if (dtype == SHERD_BF16)
        for (int64_t j = 0; j < count; j++) sums[j] += shd_bf16_widen(x[j]);
    else
        for (int64_t j = 0; j < count; j++) sums[j] += shd_fp16_widen(x[j]);
}

/* Writes c[row, column…column+count) from the products' sums, which are used up. */
static inline __attribute__((always_inline)) void finish_row(const shd_half_product *p, int64_t row, int64_t column,
                                                             int64_t count, float *sums) {
    const int64_t at = row * p->ldc + column;
    float *wide = p->c_dtype == SHERD_FP32 ? (float *)p->c + at : NULL;
    uint16_t *narrow = wide ? NULL : (uint16_t *)p->c + at;
    if (p->accumulate)
        for (int64_t j = 0; j < count; j++) sums[j] += wide[j];
    if (p->bias) add_widened(p->dtype, count, p->bias + column, sums);
    if (p->residual) add_widened(p->dtype, count, p->residual + at, sums);
    if (wide)
        memcpy(wide, sums, sizeof *wide * (size_t)count);
    else if (p->dtype == SHERD_BF16)
        for (int64_t j = 0; j < count; j++) narrow[j] = shd_bf16_round(sums[j]);
    else
        for (int64_t j = 0; j < count; j++) narrow[j] = shd_fp16_round(sums[j]);
}

/* Likewise for a tile, whose sums have leading dimension `stride`. Whole rows are told apart, since a length that the
 * compiler knows needs no loop around it. */
static inline __attribute__((always_inline)) void finish_tile(const shd_half_product *p, const half_tile *tile,
                                                              const int64_t stride, float *sums) {
    for (int64_t i = 0; i < tile->rows; i++)
        if (tile->columns == stride)
            finish_row(p, tile->row + i, tile->column, stride, sums + i * stride);
        else
            finish_row(p, tile->row + i, tile->column, tile->columns, sums + i * stride);
}

#endif
