/* One product of 16-bit matrices, on the calling thread; sums in float32.
 *
 * The processor's feature flags choose among three paths, which runtime/ops/half/ holds:
 * - "amx": bf16, tiles of AMX (tdpbf16ps);
 * - "avx512-bf16": bf16, vdpbf16ps;
 * - "widening": fp16 everywhere, and bf16 on all other processors: blocks are widened to float32 and go to OpenBLAS.
 *
 * A result depends on shapes, values and the path alone. The inner dimension is summed in an order that follows from k
 * alone, so calls that cut the output at multiples of SHD_HALF_ROWS and SHD_HALF_COLUMNS give the same bits as one
 * call for the whole. On "amx" and "avx512-bf16" it may be cut anywhere, for each element is one sum of its own.
 *
 * Infinities and NaN propagate. The two bf16 instructions take subnormal numbers for zero, inputs and sums, and round
 * to nearest even, whatever the thread's floating-point mode says; widening keeps subnormal numbers. */
#ifndef SHD_OPS_HALF_PRODUCT_H
#define SHD_OPS_HALF_PRODUCT_H

#include <sherd/dtype.h>
#include <stdbool.h>
#include <stdint.h>

enum { SHD_HALF_ROWS = 512, SHD_HALF_COLUMNS = 512 };

/* c[m,n] = op(a)·op(b) (+ c) + bias + residual: added in this order in float32, and rounded once. Row-major; a leading
 * dimension is at least its row's length. m, n and k may be 0. */
typedef struct shd_half_product {
    sherd_dtype dtype; /* of a, b, bias and residual: SHERD_BF16 or SHERD_FP16 */
    bool a_transposed; /* a is [k,m], not [m,k] */
    bool b_transposed; /* b is [n,k], not [k,n] */
    int64_t m, n, k;
    const uint16_t *a;
    int64_t lda;
    const uint16_t *b;
    int64_t ldb;
    sherd_dtype c_dtype; /* SHERD_FP32, or `dtype` */
    void *c;
    int64_t ldc;
    bool accumulate;          /* adds the old c; only with c_dtype SHERD_FP32 */
    const uint16_t *bias;     /* [n], or NULL */
    const uint16_t *residual; /* [m,n] with leading dimension ldc, or NULL; may be c */
    void *scratch;            /* shd_half_product_scratch_bytes() of the calling thread's own, 64-byte aligned */
} shd_half_product;

/* What `scratch` needs on this processor, for any product. Threads: any. */
int64_t shd_half_product_scratch_bytes(void);
/* Whether products of `dtype` may be cut anywhere on this processor. Threads: any. */
bool shd_half_product_cuts_freely(sherd_dtype dtype);
/* Writes c, and nothing else but scratch. Threads: any, each with its own scratch. */
void shd_half_product_run(const shd_half_product *product);
/* The path that products of `dtype` take on this processor, for the log. Threads: any. */
const char *shd_half_product_name(sherd_dtype dtype);

#endif
