/* Digit i weighs 2^(32·i - 1074): the sum is an integer multiple of the smallest subnormal. A value touches three
 * neighbouring digits by less than 2^32 each, so digits stay within 63 bits for 2^30 additions; then carries move up,
 * which leaves every digit in [0, 2^32) but the last, which keeps the sign. Finite doubles end in digit 65; the two
 * above hold 2^62 of them. */
#include "runtime/base/exact_sum.h"

#include <math.h>
#include <string.h>

enum { LAST = SHD_EXACT_SUM_DIGITS - 1, DIGIT_BITS = 32, LOWEST_EXPONENT = -1074, MANTISSA_BITS = 53 };
static const int64_t pending_limit = (int64_t)1 << 30, digit_mask = ((int64_t)1 << DIGIT_BITS) - 1;

void shd_exact_sum_clear(shd_exact_sum *sum) { memset(sum, 0, sizeof *sum); }

static void carry(shd_exact_sum *sum) {
    for (int i = 0; i < LAST; i++) {
        int64_t low = sum->digits[i] & digit_mask;
        sum->digits[i + 1] += (sum->digits[i] - low) / (digit_mask + 1);
        sum->digits[i] = low;
    }
    sum->pending = 1; /* what is left counts as one addition */
}

void shd_exact_sum_add(shd_exact_sum *sum, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    int exponent = (int)(bits >> 52 & 0x7FF);
    uint64_t mantissa = bits & (((uint64_t)1 << 52) - 1);
    if (exponent == 0x7FF) {
        if (mantissa)
            sum->nan_count++;
        else if (bits >> 63)
            sum->minus_inf_count++;
        else
            sum->plus_inf_count++;
        return;
    }
    if (exponent)
        mantissa |= (uint64_t)1 << 52;
    else
        exponent = 1; /* subnormals lie where the smallest normal numbers do */
    if (sum->pending >= pending_limit) carry(sum);
    int position = exponent - 1; /* of the mantissa's lowest bit */
    /* The mantissa's two halves, shifted into place; their bits in the middle digit are disjoint. */
    uint64_t mask = (uint64_t)digit_mask;
    uint64_t lower = (mantissa & mask) << position % DIGIT_BITS;
    uint64_t upper = (mantissa >> DIGIT_BITS) << position % DIGIT_BITS;
    int64_t low = (int64_t)(lower & mask), middle = (int64_t)(lower >> DIGIT_BITS | (upper & mask));
    int64_t high = (int64_t)(upper >> DIGIT_BITS);
    int64_t sign = bits >> 63 ? -1 : 1;
    int64_t *digits = sum->digits + position / DIGIT_BITS;
    digits[0] += sign * low;
    digits[1] += sign * middle;
    digits[2] += sign * high;
    sum->pending++;
}

void shd_exact_sum_merge(shd_exact_sum *sum, const shd_exact_sum *other) {
    shd_exact_sum addend = *other;
    carry(sum);
    carry(&addend);
    for (int i = 0; i <= LAST; i++) sum->digits[i] += addend.digits[i];
    sum->pending += addend.pending;
    sum->nan_count += addend.nan_count;
    sum->plus_inf_count += addend.plus_inf_count;
    sum->minus_inf_count += addend.minus_inf_count;
}

/* Bit `position` of non-negative carried digits; zero outside. */
static uint64_t bit_at(const shd_exact_sum *sum, int position) {
    return (uint64_t)(sum->digits[position / DIGIT_BITS] >> position % DIGIT_BITS) & 1;
}

/* Whether any bit below `position` is set. */
static bool any_below(const shd_exact_sum *sum, int position) {
    int digit = position / DIGIT_BITS;
    for (int i = 0; i < digit; i++)
        if (sum->digits[i]) return true;
    return (sum->digits[digit] & (((int64_t)1 << position % DIGIT_BITS) - 1)) != 0;
}

/* The value of non-negative carried digits. */
static double round_digits(const shd_exact_sum *sum) {
    int top_digit = LAST;
    while (top_digit > 0 && !sum->digits[top_digit]) top_digit--;
    if (!sum->digits[top_digit]) return 0;
    int top = top_digit * DIGIT_BITS + 63 - __builtin_clzll((uint64_t)sum->digits[top_digit]);
    int bottom = top - (MANTISSA_BITS - 1);
    if (bottom < 0) bottom = 0; /* subnormal or nearly so: exact */
    uint64_t mantissa = 0;
    for (int position = top; position >= bottom; position--) mantissa = mantissa << 1 | bit_at(sum, position);
    if (bottom > 0 && bit_at(sum, bottom - 1) && (mantissa & 1 || any_below(sum, bottom - 1))) mantissa++;
    return ldexp((double)mantissa, bottom + LOWEST_EXPONENT);
}

double shd_exact_sum_value(const shd_exact_sum *sum) {
    if (sum->nan_count || (sum->plus_inf_count && sum->minus_inf_count)) return NAN;
    if (sum->plus_inf_count) return INFINITY;
    if (sum->minus_inf_count) return -INFINITY;
    shd_exact_sum rest = *sum;
    carry(&rest);
    bool negative = rest.digits[LAST] < 0;
    if (negative) {
        for (int i = 0; i <= LAST; i++) rest.digits[i] = -rest.digits[i];
        carry(&rest);
    }
    double magnitude = round_digits(&rest);
    return negative ? -magnitude : magnitude;
}
