/* From float32 sums to the output of a product of bf16 matrices: what it adds, and its one rounding. */
#ifndef SHD_OPS_HALF_FINISH_H
#define SHD_OPS_HALF_FINISH_H

#include "runtime/base/dtype.h"
#include "runtime/ops/half/blocked.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

ALWAYS_INLINE void add_widened(int64_t count, const uint16_t *x, float *sums) {
    for (int64_t j = 0; j < count; j++) sums[j] += shd_bf16_widen(x[j]);
}

/* Writes c[row, column…column+count) from the products' sums, which are used up. */
ALWAYS_INLINE void finish_row(const shd_half_product *p, int64_t row, int64_t column, int64_t count, float *sums) {
    const int64_t at = row * p->ldc + column;
    if (p->accumulate)
        for (int64_t j = 0; j < count; j++) sums[j] += ((const float *)p->c)[at + j];
    if (p->bias) add_widened(count, p->bias + column, sums);
    if (p->residual) add_widened(count, p->residual + at, sums);
    if (p->c_dtype == SHERD_FP32) {
        memcpy((float *)p->c + at, sums, sizeof *sums * (size_t)count);
    } else {
        uint16_t *c = (uint16_t *)p->c + at;
        for (int64_t j = 0; j < count; j++) c[j] = shd_bf16_round(sums[j]);
    }
}

/* A tile of the output; its sums have leading dimension `stride`. Whole rows are told apart, since a length that the
 * compiler knows needs no loop around it. */
ALWAYS_INLINE void finish_tile(const shd_half_product *p, const half_tile *tile, const int64_t stride, float *sums) {
    for (int64_t i = 0; i < tile->rows; i++)
        if (tile->columns == stride)
            finish_row(p, tile->row + i, tile->column, stride, sums + i * stride);
        else
            finish_row(p, tile->row + i, tile->column, tile->columns, sums + i * stride);
}

#endif
