/* Integer arithmetic that says what it means, and checked forms for numbers that come from outside. */
#ifndef SHD_BASE_ARITH_H
#define SHD_BASE_ARITH_H

#include <stdbool.h>
#include <stdint.h>

static inline int64_t shd_div_ceil(int64_t value, int64_t divisor) { return value / divisor + (value % divisor != 0); }
static inline int64_t shd_round_up(int64_t value, int64_t multiple) { return shd_div_ceil(value, multiple) * multiple; }
static inline int64_t shd_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t shd_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* True, with the result in *out, when it fits; false leaves *out alone. */
static inline bool shd_mul_checked(int64_t a, int64_t b, int64_t *out) {
    int64_t result;
    if (__builtin_mul_overflow(a, b, &result)) return false;
    *out = result;
    return true;
}
static inline bool shd_add_checked(int64_t a, int64_t b, int64_t *out) {
    int64_t result;
    if (__builtin_add_overflow(a, b, &result)) return false;
    *out = result;
    return true;
}

#endif
