/* The loops of codebook.h, as update_kernels.c compiles them for each instruction set. */
#ifndef SHD_OPTIM_CODEBOOK_KERNELS_H
#define SHD_OPTIM_CODEBOOK_KERNELS_H

#include "optim/codebook.h"
#include "runtime/base/dtype.h"

#include <math.h>
#include <string.h>

/* The code of a magnitude, given as a share of its block's scale. */
static inline int32_t find_code(const shd_codebook *codebook, float share) {
    int32_t bucket = (int32_t)(shd_float_bits(share) >> 16) - SHD_SHARE_BUCKET_FIRST;
    int32_t code = codebook->first_code[bucket > 0 ? bucket : 0];
    return code + (share > codebook->borders[code]);
}

/* The bits of the largest of a block's magnitudes. Those of infinities and NaNs are above those of all numbers. */
static inline uint32_t find_largest(const float *restrict magnitudes) {
    uint32_t largest = 0;
    for (int32_t i = 0; i < SHD_CODE_BLOCK_COUNT; i++) {
        uint32_t bits = shd_float_bits(magnitudes[i]);
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

static inline void quantize_block(const shd_codebook *codebook, const float *restrict values,
                                  shd_code_block *restrict block) {
    enum { INFINITY_BITS = 0x7f800000 };
    float magnitudes[SHD_CODE_BLOCK_COUNT];
    if (codebook->root)
        for (int32_t i = 0; i < SHD_CODE_BLOCK_COUNT; i++) magnitudes[i] = fabsf(sqrtf(values[i]));
    else
        for (int32_t i = 0; i < SHD_CODE_BLOCK_COUNT; i++) magnitudes[i] = fabsf(values[i]);
    uint32_t largest = find_largest(magnitudes);
    float scale = shd_float_of_bits(largest);
    if (largest == 0 || largest >= INFINITY_BITS) {
        block->scale = largest ? NAN : 0;
        memset(block->codes, 0, sizeof block->codes);
        return;
    }
    block->scale = scale;
    if (codebook->root)
        for (int32_t i = 0; i < SHD_CODE_BLOCK_COUNT; i++)
            block->codes[i] = (uint8_t)find_code(codebook, magnitudes[i] / scale);
    else
        for (int32_t i = 0; i < SHD_CODE_BLOCK_COUNT; i++) {
            int32_t code = find_code(codebook, magnitudes[i] / scale);
            block->codes[i] = (uint8_t)(values[i] < 0 ? -code : code);
        }
}

static void quantize_blocks(const shd_codebook *codebook, const float *restrict values, int64_t block_count,
                            shd_code_block *restrict blocks) {
    for (int64_t b = 0; b < block_count; b++) quantize_block(codebook, values + b * SHD_CODE_BLOCK_COUNT, &blocks[b]);
}

static void dequantize_blocks(const shd_codebook *codebook, const shd_code_block *restrict blocks, int64_t block_count,
                              float *restrict values) {
    for (int64_t b = 0; b < block_count; b++, values += SHD_CODE_BLOCK_COUNT) {
        const shd_code_block *block = &blocks[b];
        for (int32_t i = 0; i < SHD_CODE_BLOCK_COUNT; i++) values[i] = codebook->shares[block->codes[i]] * block->scale;
        if (codebook->root)
            for (int32_t i = 0; i < SHD_CODE_BLOCK_COUNT; i++) values[i] *= values[i];
    }
}

#endif
