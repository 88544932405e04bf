/* Optimizer states in 8 bits: blocks of 256 values, each one float32 scale, the block's largest magnitude, and a code of
 * one byte a value, which stands for a share of it.
 *
 * The shares are dense where they are large, and reach down over seven decades: in decade d from above, those between
 * 0.1·10⁻ᵈ and 10⁻ᵈ, they are the middles of equal intervals, half as many as in the decade above; 1 is a share too, so
 * that a block's largest value is kept exactly (Dettmers et al.: "8-bit optimizers via block-wise quantization", ICLR
 * 2022, dynamic quantization; formulas, not code). Here
 * - a value that may be negative has its sign in the code: 127 shares, the top decade has 64. Both signs have 1, for
 *   which the lowest decade, of one share, is left out;
 * - a second moment, never negative, is stored as its root, which is what divides an update: 255 shares, the top decade
 *   has 128. One above zero never becomes zero, or its parameter would be divided by ε alone (Li et al.: "Memory
 *   efficient optimizers with 4-bit states", NeurIPS 2023, where zero is no code at all; here it is that of
 *   padding, and of elements whose gradient has always been zero).
 * Code 0 is zero, so memory full of zero bytes holds zeros. Values go to the nearest share, of two to the smaller.
 *
 * A block with a number that is not finite gets the scale NaN and is NaN from end to end: it cannot pass for sound. */
#ifndef SHD_OPTIM_CODEBOOK_H
#define SHD_OPTIM_CODEBOOK_H

#include "runtime/base/dtype.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    SHD_CODES = 256,
    SHD_SHARE_BUCKET_FIRST = 0x3400, /* the upper 16 bits of 2⁻²³, below every share that is not rounded up … */
    SHD_SHARE_BUCKETS = 0x3f80 - SHD_SHARE_BUCKET_FIRST + 1 /* … up to those of 1 */
};

/* A block of SHERD_INT8, in memory and in checkpoints. */
typedef struct shd_code_block {
    float scale;
    uint8_t codes[SHD_CODE_BLOCK_COUNT];
} shd_code_block;

/* What codes stand for, and how one is found. */
typedef struct shd_codebook {
    bool root;                /* a code stands for the root of its value, without a sign */
    float shares[SHD_CODES];  /* by code; with signs code 256 − c is −c, and 128, which is never written, NaN */
    float borders[SHD_CODES]; /* borders[c]: the largest magnitude that goes to code c */
    /* By the upper 16 bits of a magnitude, less SHD_SHARE_BUCKET_FIRST and not below zero: the code of the smallest
     * magnitude that has them. At most one border lies between magnitudes of the same upper bits. */
    int32_t first_code[SHD_SHARE_BUCKETS];
} shd_codebook;

/* Fills a codebook: for second moments (`root`), or for values of either sign. */
void shd_codebook_init(shd_codebook *codebook, bool root);

/* `count` values in codes, and codes as values; blocks are whole, the last one filled up with zeros. `to` and `from` are
 * apart. */
void shd_codes_encode(const shd_codebook *codebook, const float *from, int64_t count, shd_code_block *to);
void shd_codes_decode(const shd_codebook *codebook, const shd_code_block *from, int64_t count, float *to);

#endif
