#include "runtime/base/random.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* kat_vectors of the Random123 distribution, philox4x32 10. */
Test(random, gives_the_published_words) {
    static const struct {
        uint64_t key, low, high;
        uint32_t expected[4];
    } known[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (int i = 0; i < 3; i++) {
        uint32_t words[4];
        shd_philox(known[i].key, known[i].low, known[i].high, words);
        for (int j = 0; j < 4; j++) cr_assert_eq(words[j], known[i].expected[j], "vector %d, word %d", i, j);
    }
}

Test(random, keys_differ_by_seed_and_by_name) {
    static const char *names[] = {"", "a", "b", "ab", "ba", "wte.weight", "wpe.weight"};
    uint64_t keys[21];
    int count = 0;
    for (uint64_t seed = 0; seed < 3; seed++)
        for (int i = 0; i < 7; i++) {
            keys[count] = shd_random_key(seed, names[i]);
            cr_assert_eq(keys[count], shd_random_key(seed, names[i]));
            for (int j = 0; j < count; j++) cr_assert_neq(keys[count], keys[j]);
            count++;
        }
    /* Pinned: runs of other days and machines must draw the same weights. FNV-1a("a") is af63dc4c8601ec8c. */
    uint32_t words[4];
    shd_philox(1, 0xaf63dc4c8601ec8c, 0, words);
    cr_assert_eq(shd_random_key(1, "a"), (uint64_t)words[1] << 32 | words[0]);
}

Test(random, subkeys_differ_from_each_other_and_from_draws) {
    enum { KEYS = 3, SUBKEYS = 50 };
    uint64_t seen[KEYS * SUBKEYS];
    for (uint64_t key = 0; key < KEYS; key++)
        for (uint64_t i = 0; i < SUBKEYS; i++) {
            uint32_t words[4];
            const uint64_t made = seen[key * SUBKEYS + i] = shd_random_subkey(key, i);
            for (uint64_t j = 0; j < key * SUBKEYS + i; j++) cr_assert_neq(made, seen[j]);
            shd_philox(key, i, 0, words);
            cr_assert_neq(made, (uint64_t)words[1] << 32 | words[0]);
            /* Pinned, as docs/NUMERICS.md has it: runs of other days draw the same masks. */
            shd_philox(key, i, 0xffffffffffffffffu, words);
            cr_assert_eq(made, (uint64_t)words[1] << 32 | words[0]);
        }
}

Test(random, normal_values_follow_box_and_muller) {
    float values[6];
    shd_random_normal(42, 0, 6, 0.5, values);
    for (uint64_t pair = 0; pair < 3; pair++) {
        uint32_t w[4];
        shd_philox(42, pair, 0, w);
        long double u = ((long double)((uint64_t)w[1] << 21 | w[0] >> 11) + 1) / 0x1p53L;
        long double v = (long double)((uint64_t)w[3] << 21 | w[2] >> 11) / 0x1p53L;
        long double radius = 0.5L * sqrtl(-2 * logl(u)), angle = 2 * acosl(-1) * v;
        cr_assert_float_eq(values[2 * pair], radius * cosl(angle), 1e-7);
        cr_assert_float_eq(values[2 * pair + 1], radius * sinl(angle), 1e-7);
    }
}

Test(random, any_split_gives_the_same_normal_values) {
    enum { COUNT = 101 };
    float whole[COUNT], parts[COUNT + 1];
    shd_random_normal(7, 5, COUNT, 0.02, whole);
    for (int64_t step = 1; step <= COUNT; step++) {
        memset(parts, 0xFF, sizeof parts);
        for (int64_t at = 0; at < COUNT; at += step)
            shd_random_normal(7, 5 + at, at + step < COUNT ? step : COUNT - at, 0.02, parts + at);
        cr_assert_eq(memcmp(parts, whole, sizeof whole), 0, "parts of %ld", (long)step);
        cr_assert(isnan(parts[COUNT]), "wrote past the end");
    }
}

Test(random, normal_values_have_the_moments_of_a_normal_distribution) {
    enum { COUNT = 400000 };
    float *values = malloc(COUNT * sizeof *values);
    shd_random_normal(shd_random_key(3, "moments"), 0, COUNT, 1, values);
    double moment[5] = {0}, lag = 0, within_one = 0;
    for (int i = 0; i < COUNT; i++) {
        double power = 1;
        for (int k = 1; k <= 4; k++) moment[k] += (power *= values[i]) / COUNT;
        if (i) lag += (double)values[i] * values[i - 1] / COUNT;
        within_one += fabs(values[i]) < 1;
    }
    free(values);
    /* Five standard errors each. */
    cr_assert_float_eq(moment[1], 0, 5 * sqrt(1.0 / COUNT));
    cr_assert_float_eq(moment[2], 1, 5 * sqrt(2.0 / COUNT));
    cr_assert_float_eq(moment[3], 0, 5 * sqrt(15.0 / COUNT));
    cr_assert_float_eq(moment[4], 3, 5 * sqrt(96.0 / COUNT));
    cr_assert_float_eq(lag, 0, 5 * sqrt(1.0 / COUNT));
    cr_assert_float_eq(within_one / COUNT, 0.682689492, 5 * sqrt(0.2166 / COUNT));
}

Test(random, permutations_are_bijections) {
    static const int64_t sizes[] = {1,  2,  3,   4,   5,   7,   8,   9,   15,   16,   17,   31,   32,
                                    33, 97, 127, 128, 129, 255, 256, 257, 1000, 1009, 4095, 4096, 4097};
    static bool seen[4097];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint64_t key = 0; key < 4; key++) {
            memset(seen, 0, sizeof seen);
            for (int64_t index = 0; index < sizes[i]; index++) {
                int64_t image = shd_permute(key, sizes[i], index);
                cr_assert(image >= 0 && image < sizes[i]);
                cr_assert_not(seen[image], "size %ld, key %lu: %ld twice", (long)sizes[i], (unsigned long)key,
                              (long)image);
                seen[image] = true;
            }
        }
}

Test(random, permutations_of_huge_ranges_stay_inside_and_are_one_to_one_where_looked_at) {
    static const int64_t sizes[] = {((int64_t)1 << 32) + 1, ((int64_t)1 << 40) - 1, INT64_MAX};
    for (int i = 0; i < 3; i++) {
        int64_t images[200];
        for (int j = 0; j < 200; j++) {
            images[j] = shd_permute(9, sizes[i], sizes[i] - 1 - j);
            cr_assert(images[j] >= 0 && images[j] < sizes[i]);
            for (int k = 0; k < j; k++) cr_assert_neq(images[j], images[k]);
        }
    }
}

Test(random, permutations_of_three_are_all_equally_likely) {
    enum { KEYS = 12000 };
    int count[27] = {0};
    for (uint64_t key = 0; key < KEYS; key++)
        count[9 * shd_permute(key, 3, 0) + 3 * shd_permute(key, 3, 1) + shd_permute(key, 3, 2)]++;
    static const int orders[] = {5, 7, 11, 15, 19, 21};
    for (int i = 0; i < 6; i++)
        cr_assert_float_eq(count[orders[i]], KEYS / 6.0, 5 * sqrt(KEYS * 5 / 36.0), "order %d: %d", orders[i],
                           count[orders[i]]);
}

Test(random, every_place_of_a_permutation_is_equally_likely) {
    enum { SIZE = 100, KEYS = 10000 };
    static int count[SIZE][SIZE];
    for (uint64_t key = 0; key < KEYS; key++)
        for (int64_t index = 0; index < SIZE; index += 9) count[index][shd_permute(key, SIZE, index)]++;
    for (int index = 0; index < SIZE; index += 9) {
        double chi2 = 0, expected = (double)KEYS / SIZE;
        for (int image = 0; image < SIZE; image++) chi2 += pow(count[index][image] - expected, 2) / expected;
        cr_assert_lt(chi2, 99 + 6 * sqrt(2.0 * 99), "index %d: chi2 %g", index, chi2);
    }
}
