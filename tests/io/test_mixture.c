#include "io/mixture.h"

#include <criterion/criterion.h>
#include <math.h>

enum { COUNT = 10000 };

static const double weights[][7] = {
    {1},
    {1, 1},
    {1, 2},
    {0.7, 0.2, 0.1},
    {5, 3, 1, 1},
    {1, 1, 1, 1, 1},
    {100, 1, 10, 1000, 7, 0.5},
    {0.3, 0.05, 0.2, 0.15, 0.1, 0.12, 0.08},
};
enum { CASES = sizeof weights / sizeof *weights };

static int32_t count_weights(const double *list) {
    int32_t count = 0;
    while (count < 7 && list[count] > 0) count++;
    return count;
}

Test(mixture, gives_every_source_its_share_within_one_percent_and_three_sequences) {
    for (int c = 0; c < CASES; c++) {
        int32_t count = count_weights(weights[c]);
        const shd_mixture mixture = shd_mixture_make(weights[c], count);
        double sum = 0;
        for (int32_t i = 0; i < count; i++) sum += weights[c][i];
        int64_t drawn[7] = {0};
        for (int64_t q = 0; q < COUNT; q++) {
            shd_mixture_place place = shd_mixture_find(&mixture, q);
            cr_assert(place.source >= 0 && place.source < count);
            /* Numbers within a source follow one another. */
            cr_assert_eq(place.number, drawn[place.source]);
            drawn[place.source]++;
            for (int32_t i = 0; i < count; i++)
                cr_assert_leq(fabs((double)drawn[i] - (double)(q + 1) * weights[c][i] / sum), 3.0);
        }
        for (int32_t i = 0; i < count; i++) {
            cr_assert_leq(fabs((double)drawn[i] / COUNT - weights[c][i] / sum), 0.01);
            cr_assert_eq(shd_mixture_count(&mixture, i, COUNT), drawn[i]);
        }
    }
}

Test(mixture, counts_as_it_finds) {
    for (int c = 0; c < CASES; c++) {
        int32_t count = count_weights(weights[c]);
        const shd_mixture mixture = shd_mixture_make(weights[c], count);
        int64_t drawn[7] = {0};
        for (int64_t q = 0; q < 500; q++) {
            for (int32_t i = 0; i < count; i++) cr_assert_eq(shd_mixture_count(&mixture, i, q), drawn[i]);
            drawn[shd_mixture_find(&mixture, q).source]++;
        }
    }
}

Test(mixture, of_equal_weights_takes_turns) {
    const double two[2] = {3, 3};
    const shd_mixture mixture = shd_mixture_make(two, 2);
    for (int64_t q = 0; q < 100; q++) cr_assert_eq(shd_mixture_find(&mixture, q).source, q % 2);
}

Test(mixture, knows_any_sequence_number_at_once) {
    double many[SHD_MIXTURE_SOURCES];
    for (int i = 0; i < SHD_MIXTURE_SOURCES; i++) many[i] = i % 3 ? 1e-6 : 1e6;
    const shd_mixture mixture = shd_mixture_make(many, SHD_MIXTURE_SOURCES);
    static const int64_t far[] = {INT64_C(1) << 40, INT64_C(1) << 61, INT64_MAX - 1};
    for (size_t k = 0; k < sizeof far / sizeof *far; k++) {
        shd_mixture_place place = shd_mixture_find(&mixture, far[k]);
        cr_assert_eq(shd_mixture_count(&mixture, place.source, far[k]), place.number);
        cr_assert_eq(shd_mixture_count(&mixture, place.source, far[k] + 1), place.number + 1);
        int64_t all = 0;
        for (int32_t i = 0; i < SHD_MIXTURE_SOURCES; i++) all += shd_mixture_count(&mixture, i, far[k]);
        cr_assert_eq(all, far[k]);
    }
}
