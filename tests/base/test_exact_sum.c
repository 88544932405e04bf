#include "runtime/base/exact_sum.h"
#include "runtime/base/random.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "exact_sums.h"

enum { MANY = 4000 };

static bool same_bits(double a, double b) { return memcmp(&a, &b, sizeof a) == 0; }

static double sum_of(const double *values, int count) {
    shd_exact_sum sum;
    shd_exact_sum_clear(&sum);
    for (int i = 0; i < count; i++) shd_exact_sum_add(&sum, values[i]);
    return shd_exact_sum_value(&sum);
}

/* Values of both signs whose exponents spread over 2^-spread … 2^spread. */
static void fill(uint64_t key, int spread, double *values, int count) {
    for (int i = 0; i < count; i++) {
        uint32_t words[4];
        shd_philox(key, (uint64_t)i, 0, words);
        double mantissa = (double)((uint64_t)words[0] << 21 | words[1] >> 11) - 0x1p52;
        values[i] = ldexp(mantissa, (int)(words[2] % (2 * spread + 1)) - spread - 52);
    }
}

/* Shewchuk's sum by error-free transformations: non-overlapping partial sums, rounded once. Independent of the
 * accumulator. */
static double shewchuk_sum(const double *values, int count) {
    static double partials[256];
    int used = 0;
    for (int i = 0; i < count; i++) {
        double x = values[i];
        int kept = 0;
        for (int j = 0; j < used; j++) {
            double y = partials[j], high = x + y, back = high - x;
            double low = (x - (high - back)) + (y - back);
            if (low != 0) partials[kept++] = low;
            x = high;
        }
        used = kept;
        partials[used++] = x;
    }
    double high = used ? partials[--used] : 0, low = 0;
    while (used && low == 0) {
        double x = high, y = partials[--used];
        high = x + y;
        low = y - (high - x);
    }
    /* A tie is broken by the sign of what lies below it. */
    if (used && low != 0 && (low < 0) == (partials[used - 1] < 0)) {
        double twice = low * 2, raised = high + twice;
        if (twice == raised - high) high = raised;
    }
    return high;
}

Test(exact_sum, equals_rational_arithmetic) {
    for (size_t i = 0; i < sizeof exact_sums / sizeof *exact_sums; i++) {
        double sum = sum_of(exact_sums[i].values, 8);
        cr_assert(sum == exact_sums[i].sum, "row %zu: %a is not %a", i, sum, exact_sums[i].sum);
    }
}

Test(exact_sum, equals_error_free_transformations) {
    static double values[MANY];
    for (int spread = 1; spread <= 300; spread += 13)
        for (int count = 0; count <= MANY; count += 977) {
            fill((uint64_t)spread, spread, values, count);
            double sum = sum_of(values, count), expected = shewchuk_sum(values, count);
            cr_assert(same_bits(sum, expected), "spread %d, %d values: %a is not %a", spread, count, sum, expected);
        }
}

Test(exact_sum, does_not_depend_on_order_or_grouping) {
    static double values[MANY];
    fill(99, 400, values, MANY);
    double expected = sum_of(values, MANY);
    for (int64_t group = 1; group <= 1000; group = group * 3 + 1) {
        shd_exact_sum total;
        shd_exact_sum_clear(&total);
        for (int64_t first = 0; first < MANY; first += group) {
            shd_exact_sum part;
            shd_exact_sum_clear(&part);
            for (int64_t i = first; i < first + group && i < MANY; i++)
                shd_exact_sum_add(&part, values[shd_permute((uint64_t)group, MANY, i)]);
            shd_exact_sum_merge(&total, &part);
        }
        cr_assert(same_bits(shd_exact_sum_value(&total), expected), "groups of %ld", (long)group);
    }
}

Test(exact_sum, carries_before_digits_overflow) {
    /* Two million additions of the largest digit values, with sums that say they are about to be full. */
    static const double value = 0x1.fffffffffffffp0;
    shd_exact_sum sum, twin;
    shd_exact_sum_clear(&sum);
    enum { ADDITIONS = 1 << 21 };
    for (int i = 0; i < ADDITIONS; i++) shd_exact_sum_add(&sum, value);
    cr_assert_eq(shd_exact_sum_value(&sum), value * ADDITIONS);
    /* Doubling by merging: 2^40 addends, many times the room between carries. */
    for (int i = 0; i < 19; i++) {
        twin = sum;
        shd_exact_sum_merge(&sum, &twin);
    }
    cr_assert_eq(shd_exact_sum_value(&sum), ldexp(value, 40));
    sum.pending = (int64_t)1 << 30; /* full: the next addition must carry, not change the value */
    shd_exact_sum_add(&sum, -ldexp(value, 40));
    cr_assert_eq(shd_exact_sum_value(&sum), 0);
    cr_assert_lt(sum.pending, 8);
    shd_exact_sum_add(&sum, -3);
    cr_assert_eq(shd_exact_sum_value(&sum), -3);
}

Test(exact_sum, a_value_at_the_edge_of_every_digit_survives) {
    for (int exponent = -1074; exponent <= 1023; exponent++) {
        double value = ldexp(1, exponent), addends[3] = {value, value, -value};
        cr_assert(same_bits(sum_of(addends, 1), value));
        cr_assert(same_bits(sum_of(addends, 3), value));
        addends[0] = -value;
        cr_assert(same_bits(sum_of(addends, 1), -value));
        cr_assert_eq(sum_of(addends, 2), 0);
    }
}

Test(exact_sum, treats_infinities_and_nan_as_ieee_does) {
    cr_assert_eq(sum_of((double[]){1, INFINITY, -5}, 3), INFINITY);
    cr_assert_eq(sum_of((double[]){1, -INFINITY, -INFINITY}, 3), -INFINITY);
    cr_assert(isnan(sum_of((double[]){INFINITY, 2, -INFINITY}, 3)));
    cr_assert(isnan(sum_of((double[]){INFINITY, NAN}, 2)));
    shd_exact_sum infinite, finite;
    shd_exact_sum_clear(&infinite);
    shd_exact_sum_clear(&finite);
    shd_exact_sum_add(&infinite, -INFINITY);
    shd_exact_sum_add(&finite, 3);
    shd_exact_sum_merge(&finite, &infinite);
    cr_assert_eq(shd_exact_sum_value(&finite), -INFINITY);
}

Test(exact_sum, of_nothing_is_plus_zero) {
    cr_assert(same_bits(sum_of(NULL, 0), 0.0));
    cr_assert(same_bits(sum_of((double[]){1.5, -1.5}, 2), 0.0));
}
