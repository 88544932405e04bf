#include "runtime/base/random.h"

#include <assert.h>
#include <math.h>

void shd_philox(uint64_t key, uint64_t counter_low, uint64_t counter_high, uint32_t out[4]) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t x0 = (uint32_t)counter_low, x1 = (uint32_t)(counter_low >> 32);
    uint32_t x2 = (uint32_t)counter_high, x3 = (uint32_t)(counter_high >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t product0 = (uint64_t)x0 * 0xD2511F53u;
        uint64_t product1 = (uint64_t)x2 * 0xCD9E8D57u;
        x0 = (uint32_t)(product1 >> 32) ^ x1 ^ k0;
        x1 = (uint32_t)product1;
        x2 = (uint32_t)(product0 >> 32) ^ x3 ^ k1;
        x3 = (uint32_t)product0;
        k0 += 0x9E3779B9u; /* the golden ratio and √3 - 1, as the paper has them */
        k1 += 0xBB67AE85u;
    }
    out[0] = x0;
    out[1] = x1;
    out[2] = x2;
    out[3] = x3;
}

static uint64_t word_pair(const uint32_t words[2]) { return (uint64_t)words[1] << 32 | words[0]; }

uint64_t shd_random_key(uint64_t seed, const char *name) {
    uint64_t hash = 0xCBF29CE484222325u; /* FNV-1a; Philox then does the mixing */
    for (const char *at = name; *at; at++) hash = (hash ^ (unsigned char)*at) * 0x100000001B3u;
    uint32_t words[4];
    shd_philox(seed, hash, 0, words);
    return word_pair(words);
}

/* Draws of `key` itself, whose counters begin at 0, never come to this one. */
uint64_t shd_random_subkey(uint64_t key, uint64_t index) {
    uint32_t words[4];
    shd_philox(key, index, UINT64_MAX, words);
    return word_pair(words);
}

/* Values 2j and 2j+1 of `key`. */
static void draw_normal_pair(uint64_t key, int64_t pair, double out[2]) {
    static const double pi = 3.14159265358979323846, unit53 = 0x1p-53;
    uint32_t words[4];
    shd_philox(key, (uint64_t)pair, 0, words);
    double radius_draw = (double)((word_pair(words) >> 11) + 1) * unit53; /* (0, 1]: its logarithm is finite */
    double angle_draw = (double)(word_pair(words + 2) >> 11) * unit53;
    double radius = sqrt(-2 * log(radius_draw));
    out[0] = radius * cos(2 * pi * angle_draw);
    out[1] = radius * sin(2 * pi * angle_draw);
}

void shd_random_normal(uint64_t key, int64_t first, int64_t count, double scale, float *out) {
    double pair[2];
    int64_t done = 0;
    if (done < count && first % 2 != 0) {
        draw_normal_pair(key, first / 2, pair);
        out[done++] = (float)(scale * pair[1]);
    }
    for (; done < count; done += 2) {
        draw_normal_pair(key, (first + done) / 2, pair);
        out[done] = (float)(scale * pair[0]);
        if (done + 1 < count) out[done + 1] = (float)(scale * pair[1]);
    }
}

/* A bijection of [0, 2^(2·half_bits)), whatever the round function is: each round can be undone. */
static uint64_t feistel(uint64_t key, int half_bits, uint64_t value) {
    enum { ROUNDS = 8 }; /* four make it strong in theory; small domains need more to look random */
    uint64_t mask = ((uint64_t)1 << half_bits) - 1;
    uint64_t left = value >> half_bits, right = value & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint32_t words[4];
        shd_philox(key, right, round, words);
        uint64_t mixed = left ^ (words[0] & mask);
        left = right;
        right = mixed;
    }
    return left << half_bits | right;
}

int64_t shd_permute(uint64_t key, int64_t size, int64_t index) {
    assert(index >= 0 && index < size);
    if (size == 1) return 0;
    int bits = 64 - __builtin_clzll((uint64_t)size - 1);
    int half_bits = (bits + 1) / 2;
    /* A walk along the cycle of `index` comes back below `size` at the latest at `index` itself. The domain is less
     * than four times as large, so four steps are expected at most. */
    uint64_t value = (uint64_t)index;
    do value = feistel(key, half_bits, value);
    while (value >= (uint64_t)size);
    return (int64_t)value;
}
