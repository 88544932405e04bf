#include "runtime/train/outliers.h"

#include <criterion/criterion.h>
#include <math.h>

static shd_outlier_window fill(int32_t size, const double *values, int32_t count) {
    shd_outlier_window window = {.size = size};
    for (int32_t i = 0; i < count; i++) shd_outlier_window_add(&window, values[i]);
    return window;
}

Test(outliers, are_scored_by_median_and_median_distance, .timeout = 10) {
    static const double values[] = {4, 6, 7, 2, 9, 1, 100, 4};
    shd_outlier_window window = fill(8, values, 8);
    /* 1 2 4 4 | 6 7 9 100: median 5; distances 4 3 1 1 1 2 4 95, sorted 1 1 1 2 | 3 4 4 95: median 2.5 */
    cr_assert_float_eq(shd_outlier_window_score(&window, 12), (12 - 5) / (1.4826 * 2.5), 1e-12);
    cr_assert_float_eq(shd_outlier_window_score(&window, 5), 0, 0);
    cr_assert_lt(shd_outlier_window_score(&window, 0), 0, "what is low does not stand out");
}

Test(outliers, of_an_odd_number_of_steps_too, .timeout = 10) {
    static const double values[] = {3, 1, 2, 10, 4};
    shd_outlier_window window = fill(5, values, 5);
    cr_assert_float_eq(shd_outlier_window_score(&window, 9), (9 - 3) / (1.4826 * 1), 1e-12);
}

Test(outliers, none_is_one_before_the_window_is_full, .timeout = 10) {
    static const double values[] = {1, 1.1, 0.9};
    shd_outlier_window window = fill(4, values, 3);
    cr_assert_eq(shd_outlier_window_score(&window, 1e30), 0);
    shd_outlier_window_add(&window, 1);
    cr_assert_gt(shd_outlier_window_score(&window, 1e30), 1e20);
}

/* Numbers that hardly move: a hundredth of the median counts as their deviation. */
Test(outliers, of_steady_numbers_are_not_their_noise, .timeout = 10) {
    static const double values[] = {2, 2, 2, 2, 2.0001, 2, 2, 2};
    shd_outlier_window window = fill(8, values, 8);
    cr_assert_float_eq(shd_outlier_window_score(&window, 2.1), 0.1 / 0.02, 1e-9);
    static const double zeros[8] = {0};
    window = fill(8, zeros, 8);
    cr_assert_eq(shd_outlier_window_score(&window, 0), 0);
    cr_assert_gt(shd_outlier_window_score(&window, 1e-9), 1e100);
}

Test(outliers, are_compared_with_the_newest_values_alone, .timeout = 10) {
    static const double values[] = {1000, 1000, 1000, 1, 2, 3, 4, 5};
    shd_outlier_window window = fill(5, values, 8);
    for (int32_t i = 0; i < 5; i++) cr_assert_eq(shd_outlier_window_at(&window, i), i + 1);
    cr_assert_float_eq(shd_outlier_window_score(&window, 8), (8 - 3) / (1.4826 * 1), 1e-12);
    window = fill(5, values, 2);
    cr_assert_eq(window.count, 2);
    cr_assert_eq(shd_outlier_window_at(&window, 1), 1000);
}

/* A third of the window being outliers moves the score of a good value little: a mean and a deviation would be moved. */
Test(outliers, in_the_window_hardly_move_the_scores, .timeout = 10) {
    shd_outlier_window clean = {.size = 90}, dirty = {.size = 90};
    for (int i = 0; i < 90; i++) {
        double value = 3 + 0.1 * sin(i * 1.7);
        shd_outlier_window_add(&clean, value);
        shd_outlier_window_add(&dirty, i % 9 == 0 ? 1e4 : value);
    }
    double before = shd_outlier_window_score(&clean, 4), after = shd_outlier_window_score(&dirty, 4);
    cr_assert(after > 0.7 * before && after < 1.3 * before, "%g and %g", before, after);
}
