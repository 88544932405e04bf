/* Counter-based random numbers: the value is a pure function of (key, counter), so that it never depends on rank,
 * thread or order.
 *
 * Philox4x32-10, Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC'11. */
#ifndef SHD_BASE_RANDOM_H
#define SHD_BASE_RANDOM_H

#include <stdint.h>

/* Four random words for a 64-bit key and a 128-bit counter. */
void shd_philox(uint64_t key, uint64_t counter_low, uint64_t counter_high, uint32_t out[4]);

/* A 64-bit key from a seed and a name (a tensor's, a purpose's): the same on every machine. */
uint64_t shd_random_key(uint64_t seed, const char *name);

/* Key number `index` of those that `key` stands for, none of which is `key`: for what is numbered, not named. */
uint64_t shd_random_subkey(uint64_t key, uint64_t index);

/* out[i] = standard normal value number `first + i` of `key` (Box–Muller in double; values 2j and 2j+1 share one draw),
 * times `scale`. Any split of the range gives the same values. */
void shd_random_normal(uint64_t key, int64_t first, int64_t count, double scale, float *out);

/* The image of `index` in [0, size) under a pseudo-random permutation of [0, size) chosen by `key`; O(1), no table
 * (a Feistel network over the next even power of two, walked until it lands inside). */
int64_t shd_permute(uint64_t key, int64_t size, int64_t index);

#endif
