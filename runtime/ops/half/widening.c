/* Products by OpenBLAS: blocks of the operands are widened to float32 (exactly), multiplied and added up in a block of
 * sums, which is finished when the whole inner dimension is in it. */
#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "runtime/ops/half/path.h"
#include "runtime/ops/kernels/kernels.h"
#include "runtime/ops/product.h"

enum { ROWS = SHD_HALF_ROWS, COLUMNS = SHD_HALF_COLUMNS, DEPTH = 512 };

typedef struct widening_scratch {
    float a[ROWS * DEPTH], b[DEPTH * COLUMNS], sums[ROWS * COLUMNS];
} widening_scratch;

/* The block at (row, column) of the stored matrix x, without gaps. */
static void widen_block(const shd_kernels *kernels, const uint16_t *x, int64_t stride, int64_t row, int64_t column,
                        int64_t rows, int64_t columns, float *out) {
    for (int64_t i = 0; i < rows; i++) kernels->widen(columns, x + (row + i) * stride + column, out + i * columns);
}

/* Writes c[row, column…column+count) from the products' sums, which are used up. */
static void finish_row(const shd_half_product *p, int64_t row, int64_t column, int64_t count, float *sums) {
    const shd_kernels *kernels = shd_kernels_get(p->dtype);
    const int64_t at = row * p->ldc + column;
    void *c = shd_element(p->c_dtype, p->c, at);
    if (p->accumulate) shd_kernels_get(SHERD_FP32)->accumulate(count, c, sums);
    if (p->bias) kernels->accumulate(count, p->bias + column, sums);
    if (p->residual) kernels->accumulate(count, p->residual + at, sums);
    shd_kernels_get(p->c_dtype)->scale(count, 1.0f, sums, c); /* rounds */
}

static void multiply_block(const shd_half_product *p, int64_t row, int64_t column, int64_t rows, int64_t columns) {
    widening_scratch *scratch = p->scratch;
    const shd_kernels *kernels = shd_kernels_get(p->dtype);
    if (p->k == 0) memset(scratch->sums, 0, sizeof(float) * (size_t)(rows * columns));
    for (int64_t inner = 0; inner < p->k; inner += DEPTH) {
        const int64_t depth = shd_min(DEPTH, p->k - inner);
        if (p->a_transposed)
            widen_block(kernels, p->a, p->lda, inner, row, depth, rows, scratch->a);
        else
            widen_block(kernels, p->a, p->lda, row, inner, rows, depth, scratch->a);
        if (p->b_transposed)
            widen_block(kernels, p->b, p->ldb, column, inner, columns, depth, scratch->b);
        else
            widen_block(kernels, p->b, p->ldb, inner, column, depth, columns, scratch->b);
        shd_product_run(p->a_transposed, p->b_transposed, rows, columns, depth, 1.0f, scratch->a,
                        p->a_transposed ? rows : depth, scratch->b, p->b_transposed ? depth : columns, inner > 0,
                        scratch->sums, columns);
    }
    for (int64_t i = 0; i < rows; i++) finish_row(p, row + i, column, columns, scratch->sums + i * columns);
}

static void run(const shd_half_product *p) {
    for (int64_t row = 0; row < p->m; row += ROWS)
        for (int64_t column = 0; column < p->n; column += COLUMNS)
            multiply_block(p, row, column, shd_min(ROWS, p->m - row), shd_min(COLUMNS, p->n - column));
}

const shd_half_path shd_half_widening = {"widening", false, sizeof(widening_scratch), run};
