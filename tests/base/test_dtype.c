/* The 16-bit types against what the standard says of them: every value by its definition, roundings by search. */
#include "runtime/base/dtype.h"

#include <criterion/criterion.h>
#include <math.h>

static const sherd_dtype halves[] = {SHERD_BF16, SHERD_FP16};

/* sign, exponent, fraction as IEEE 754 defines their value. */
static double value_of(sherd_dtype dtype, uint16_t bits) {
    int fraction_bits = dtype == SHERD_BF16 ? 7 : 10, bias = dtype == SHERD_BF16 ? 127 : 15;
    int exponent = (bits & 0x7fff) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
    double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 2 * bias + 1) return fraction ? NAN : sign * INFINITY;
    double significand = (exponent ? 1 : 0) + ldexp(fraction, -fraction_bits);
    return sign * ldexp(significand, (exponent ? exponent : 1) - bias);
}

static uint16_t round_one(sherd_dtype dtype, float value) {
    return dtype == SHERD_BF16 ? shd_bf16_round(value) : shd_fp16_round(value);
}

Test(dtype, widens_every_16_bit_value_exactly_and_rounds_it_back) {
    for (int d = 0; d < 2; d++)
        for (uint32_t bits = 0; bits < 0x10000; bits++) {
            uint16_t half = (uint16_t)bits;
            float wide = halves[d] == SHERD_BF16 ? shd_bf16_widen(half) : shd_fp16_widen(half);
            double expected = value_of(halves[d], half);
            if (isnan(expected)) {
                cr_assert(isnan(wide) && isnan(value_of(halves[d], round_one(halves[d], wide))), "%x", bits);
                continue;
            }
            cr_assert((double)wide == expected && !signbit(wide) == !signbit(expected), "%x", bits);
            cr_assert_eq(round_one(halves[d], wide), half, "%x", bits);
        }
}

/* The neighbours of every border between two values: the middle goes to the even one. */
Test(dtype, rounds_to_the_nearest_and_ties_to_even) {
    for (int d = 0; d < 2; d++) {
        uint16_t infinity = halves[d] == SHERD_BF16 ? 0x7f80 : 0x7c00;
        for (uint16_t low = 0; low < infinity; low++) {
            double below = value_of(halves[d], low), step = below - value_of(halves[d], low ? (uint16_t)(low - 1) : 1);
            double above = low + 1 == infinity ? below + step : value_of(halves[d], (uint16_t)(low + 1));
            float middle = (float)((below + above) / 2);
            uint16_t even = low & 1 ? (uint16_t)(low + 1) : low;
            cr_assert_eq(round_one(halves[d], middle), even, "%s %x", shd_dtype_text(halves[d]), low);
            cr_assert_eq(round_one(halves[d], nextafterf(middle, 0)), low, "%s %x", shd_dtype_text(halves[d]), low);
            cr_assert_eq(round_one(halves[d], nextafterf(middle, INFINITY)), low + 1);
            cr_assert_eq(round_one(halves[d], -middle), even | 0x8000);
        }
    }
}

Test(dtype, rounds_what_is_too_large_to_infinity_and_keeps_nans) {
    cr_assert_eq(shd_fp16_round(65520), 0x7c00);
    cr_assert_eq(shd_fp16_round(65519.996f), 0x7bff);
    cr_assert_eq(shd_fp16_round(-3e38f), 0xfc00);
    cr_assert_eq(shd_fp16_round(INFINITY), 0x7c00);
    cr_assert_eq(shd_bf16_round(3.4e38f), 0x7f80);
    cr_assert_eq(shd_bf16_round(-INFINITY), 0xff80);
    cr_assert(isnan(shd_bf16_widen(shd_bf16_round(shd_float_of_bits(0x7f800001)))));
    cr_assert(isnan(shd_fp16_widen(shd_fp16_round(shd_float_of_bits(0xff800001)))));
    cr_assert_eq(shd_fp16_round(1e-9f), 0);
}

Test(dtype, runs_of_any_length_are_what_single_values_are) {
    float values[37], back[37];
    uint16_t rounded[37];
    for (int i = 0; i < 37; i++) values[i] = ldexpf(1.0f + (float)i * 0.0371f, i - 18) * (i % 2 ? -1.0f : 1.0f);
    for (int d = 0; d < 2; d++)
        for (int64_t count = 0; count <= 37; count++) {
            memset(rounded, 0xa5, sizeof rounded);
            shd_round(halves[d], count, values, rounded);
            shd_widen(halves[d], count, rounded, back);
            for (int i = 0; i < 37; i++) cr_assert_eq(rounded[i], i < count ? round_one(halves[d], values[i]) : 0xa5a5);
            for (int i = 0; i < count; i++) cr_assert_eq((double)back[i], value_of(halves[d], rounded[i]));
        }
    shd_round(SHERD_FP32, 37, values, back);
    cr_assert_arr_eq(back, values, sizeof values);
    cr_assert_eq(shd_dtype_bytes(SHERD_FP32), 4);
    cr_assert_eq(shd_dtype_bytes(SHERD_FP16), 2);
}
