/* One product, on the calling thread: what matmul.c runs for a tile, and attention.c for a block. */
#ifndef SHD_OPS_PRODUCT_H
#define SHD_OPS_PRODUCT_H

#include <cblas.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* c[m,n] = factor·op(a)·op(b) (+ c). Row-major; leading dimensions lda, ldb, ldc.
 *
 * With one row the matrix is read once, as a matrix times a vector, where the general product would first copy it
 * whole: that is what generating a text, token by token, spends its time on. */
static inline void shd_product_run(bool a_transposed, bool b_transposed, int64_t m, int64_t n, int64_t k, float factor,
                                   const float *a, int64_t lda, const float *b, int64_t ldb, bool accumulate, float *c,
                                   int64_t ldc) {
    if (m == 1) {
        if (!accumulate) memset(c, 0, sizeof(float) * (size_t)n);
        cblas_sgemv(CblasRowMajor, b_transposed ? CblasNoTrans : CblasTrans, (blasint)(b_transposed ? n : k),
                    (blasint)(b_transposed ? k : n), factor, b, (blasint)ldb, a, (blasint)(a_transposed ? lda : 1),
                    1.0f, c, 1);
        return;
    }
    cblas_sgemm(CblasRowMajor, a_transposed ? CblasTrans : CblasNoTrans, b_transposed ? CblasTrans : CblasNoTrans,
                (blasint)m, (blasint)n, (blasint)k, factor, a, (blasint)lda, b, (blasint)ldb, accumulate ? 1.0f : 0.0f,
                c, (blasint)ldc);
}

#endif
