/* Exact sums of doubles: an integer accumulator wide enough for every finite double, so that neither order nor grouping
 * of additions, nor merging of partial accumulators, can change the result. */
#ifndef SHD_BASE_EXACT_SUM_H
#define SHD_BASE_EXACT_SUM_H

#include <stdbool.h>
#include <stdint.h>

/* 2^-1074 … 2^1023 in 32-bit digits, held in 64 bits so that carries may wait; room for 2^30 additions between
 * carries. */
enum { SHD_EXACT_SUM_DIGITS = 68 };

/* A plain value: copy it, send it to other ranks (same byte order). All zero is the empty sum. */
typedef struct shd_exact_sum {
    int64_t digits[SHD_EXACT_SUM_DIGITS];
    int64_t pending;   /* additions since the last carry */
    int64_t nan_count; /* how many addends were NaN, +inf, -inf: they take the sum over as in IEEE arithmetic */
    int64_t plus_inf_count, minus_inf_count;
} shd_exact_sum;

void shd_exact_sum_clear(shd_exact_sum *sum);
void shd_exact_sum_add(shd_exact_sum *sum, double value);
/* Adds all that `other` holds. */
void shd_exact_sum_merge(shd_exact_sum *sum, const shd_exact_sum *other);
/* The sum, rounded once to nearest, ties to even; NaN or infinity where the addends say so. */
double shd_exact_sum_value(const shd_exact_sum *sum);

#endif
