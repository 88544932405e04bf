/* Dropout masks on devices: ops/dropout.h says what they are. */
#ifndef SHD_OPS_CUDA_MASK_CUH
#define SHD_OPS_CUDA_MASK_CUH

#include "runtime/device/kernel.h"

/* Philox4x32-10, as base/random.c has it. */
__device__ inline void philox(uint64_t key, uint64_t counter_low, uint64_t counter_high, uint32_t (&out)[4]) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t x0 = (uint32_t)counter_low, x1 = (uint32_t)(counter_low >> 32);
    uint32_t x2 = (uint32_t)counter_high, x3 = (uint32_t)(counter_high >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t product0 = (uint64_t)x0 * 0xD2511F53u, product1 = (uint64_t)x2 * 0xCD9E8D57u;
        x0 = (uint32_t)(product1 >> 32) ^ x1 ^ k0;
        x1 = (uint32_t)product1;
        x2 = (uint32_t)(product0 >> 32) ^ x3 ^ k1;
        x3 = (uint32_t)product0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = x0, out[1] = x1, out[2] = x2, out[3] = x3;
}

__device__ inline uint64_t random_subkey(uint64_t key, uint64_t index) {
    uint32_t words[4];
    philox(key, index, ~(uint64_t)0, words);
    return (uint64_t)words[1] << 32 | words[0];
}

/* A mask, or none where `drop` is 0. */
struct mask_site {
    uint64_t key;
    int64_t first_sequence;
    uint32_t drop;
    float scale;
};

/* What the elements of columns 8·block to 8·block + 7 of a row are multiplied with. */
__device__ inline void draw_factors(const mask_site &site, uint64_t key, int64_t sequence, int64_t row, int64_t block,
                                    float (&factors)[8]) {
    uint32_t words[4];
    const uint64_t q = (uint64_t)(site.first_sequence + sequence);
    philox(key, (uint64_t)block | (uint64_t)row << 32, q, words);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const uint32_t number = words[i / 2] >> 16 * (i % 2) & 0xffffu;
        factors[i] = number >= site.drop ? site.scale : 0.0f;
    }
}

__device__ inline float draw_factor(const mask_site &site, uint64_t key, int64_t sequence, int64_t row,
                                    int64_t column) {
    float factors[8];
    draw_factors(site, key, sequence, row, column / 8, factors);
    return factors[column % 8];
}

#endif
