/* The ways to compute a product of 16-bit matrices: what half_product.c chooses from, and tests run one by one. */
#ifndef SHD_OPS_HALF_PATH_H
#define SHD_OPS_HALF_PATH_H

#include "runtime/ops/half_product.h"

typedef struct shd_half_path {
    const char *name;
    bool cuts_freely; /* an element's bits do not depend on where the output is cut */
    int64_t scratch_bytes;
    /* m and n are above 0; k may be 0. */
    void (*run)(const shd_half_product *product);
} shd_half_path;

extern const shd_half_path shd_half_widening;
#ifdef __x86_64__
/* For processors with AVX512-F, -BW, -DQ, -VL and -BF16. */
extern const shd_half_path shd_half_avx512_bf16;
/* For processors with those, AMX-TILE and AMX-BF16, in processes that the kernel lets use tiles. */
extern const shd_half_path shd_half_amx;
#endif

#endif
