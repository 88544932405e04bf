#include "runtime/report/scale.h"

#include <criterion/criterion.h>
#include <math.h>

Test(scale, values_lie_in_proportion) {
    shd_scale scale = {.low = 10, .high = 30};
    cr_assert(shd_scale_place(&scale, 10) == 0 && shd_scale_place(&scale, 30) == 1);
    cr_assert(fabs(shd_scale_place(&scale, 15) - 0.25) < 1e-15);
    cr_assert(shd_scale_place(&scale, -5) == 0 && shd_scale_place(&scale, 1e9) == 1, "outside is at the edge");
    shd_scale decades = {.low = 1e-3, .high = 10, .logarithmic = true};
    cr_assert(fabs(shd_scale_place(&decades, 0.1) - 0.5) < 1e-15);
    shd_scale all = {.low = 1e-300, .high = 1e300, .logarithmic = true};
    cr_assert(fabs(shd_scale_place(&all, 1) - 0.5) < 1e-12);
    cr_assert(shd_scale_place(&decades, 0) == 0 && shd_scale_place(&decades, -1) == 0);
}

Test(scale, has_room_for_every_value_whatever_they_are) {
    static const double ends[][2] = {{0, 0},          {5, 5},    {-5, -5},         {0, 1e-300},
                                     {-1e308, 1e308}, {1e-9, 1}, {7e15, 7e15 + 2}, {-3, -1}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        for (int from_zero = 0; from_zero < 2; from_zero++) {
            shd_scale scale = shd_scale_make(ends[i][0], ends[i][1], from_zero, false);
            cr_assert(isfinite(scale.low) && isfinite(scale.high) && scale.low < scale.high, "%zu", i);
            cr_assert(isfinite(scale.high - scale.low));
            cr_assert(scale.low <= fmax(ends[i][0], -1e300) && scale.high >= fmin(ends[i][1], 1e300));
            if (from_zero) cr_assert(scale.low <= 0 && scale.high >= 0);
        }
    shd_scale same = shd_scale_make(2, 2, false, true);
    cr_assert(same.low < 2 && same.high > 2);
}

Test(scale, ticks_are_round_within_the_scale_and_ascend) {
    static const double ends[][2] = {{0, 1},   {0, 5.6},    {1.4, 1.6}, {0, 3.2e-3},
                                     {-7, 12}, {99.5, 101}, {0, 8e9},   {-1e300, 1e300}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        for (int32_t wanted = 3; wanted <= 6; wanted++) {
            shd_scale scale = {.low = ends[i][0], .high = ends[i][1]};
            double ticks[SHD_TICKS];
            int32_t count = shd_scale_ticks(&scale, wanted, ticks);
            cr_assert(count >= wanted / 2 && count >= 1 && count <= wanted + 1, "%zu, %d: %d", i, (int)wanted,
                      (int)count);
            for (int32_t k = 0; k < count; k++) {
                double room = 1e-6 * (scale.high - scale.low);
                cr_assert(ticks[k] >= scale.low - room && ticks[k] <= scale.high + room);
                cr_assert(!signbit(ticks[k]) || ticks[k] < 0, "no -0");
                if (k > 0) cr_assert_gt(ticks[k], ticks[k - 1]);
            }
            if (count > 1) {
                double step = ticks[1] - ticks[0], digit = step / pow(10, floor(log10(step) + 1e-9));
                cr_assert(fabs(digit - 1) < 1e-6 || fabs(digit - 2) < 1e-6 || fabs(digit - 5) < 1e-6, "step %g", step);
            }
        }
}

Test(scale, logarithmic_ticks_are_few_and_within) {
    static const double ends[][2] = {{0.05, 20}, {1e-8, 1e8}, {1, 50}, {3, 3.5}, {1e-300, 1e300}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        shd_scale scale = {.low = ends[i][0], .high = ends[i][1], .logarithmic = true};
        double ticks[SHD_TICKS];
        int32_t count = shd_scale_ticks(&scale, 4, ticks);
        cr_assert(count >= 2 && count <= SHD_TICKS, "%zu: %d", i, (int)count);
        for (int32_t k = 0; k < count; k++)
            cr_assert(ticks[k] >= scale.low * 0.999999 && ticks[k] <= scale.high * 1.000001);
        for (int32_t k = 1; k < count; k++) cr_assert_gt(ticks[k], ticks[k - 1]);
    }
}
