#include "runtime/train/stragglers.h"

#include <criterion/criterion.h>

/* Takes the same times in, `count` times; how often it said that something changed. */
static int take(shd_stragglers *stragglers, const double *step_ms, double median_ms, int count) {
    int changes = 0;
    for (int i = 0; i < count; i++) changes += shd_stragglers_take(stragglers, step_ms, median_ms);
    return changes;
}

static const double even[4] = {100, 101, 99, 100}, one_slow[4] = {100, 101, 99, 180},
                    two_slow[4] = {100, 101, 170, 180};

Test(stragglers, are_named_once_after_their_time_and_again_when_who_is_slow_changes) {
    shd_stragglers stragglers = {.factor = 1.5, .steps = 10, .rank_count = 4};
    cr_assert_eq(take(&stragglers, even, 100, 50), 0);
    cr_assert_eq(take(&stragglers, one_slow, 100, 9), 0);
    cr_assert(shd_stragglers_take(&stragglers, one_slow, 100));
    cr_assert_eq(stragglers.named, 1u << 3);
    cr_assert_float_eq(stragglers.work_ms[3], 180, 1e-9);
    cr_assert_eq(take(&stragglers, one_slow, 100, 500), 0);
    cr_assert_eq(take(&stragglers, two_slow, 100, 10), 1);
    cr_assert_eq(stragglers.named, 1u << 3 | 1u << 2);
    cr_assert_eq(take(&stragglers, one_slow, 100, 10), 1);
    cr_assert_eq(stragglers.named, 1u << 3);
    cr_assert_eq(take(&stragglers, even, 100, 10), 1);
    cr_assert_eq(stragglers.named, 0);
}

Test(stragglers, a_slow_step_now_and_then_makes_none) {
    shd_stragglers stragglers = {.factor = 1.5, .steps = 10, .rank_count = 4};
    for (int i = 0; i < 30; i++) {
        cr_assert_eq(take(&stragglers, one_slow, 100, 9), 0);
        cr_assert_eq(take(&stragglers, even, 100, 1), 0);
    }
}

Test(stragglers, of_a_few_milliseconds_are_noise) {
    static const double short_steps[2] = {1, 5.9}, longer[2] = {1, 6};
    shd_stragglers stragglers = {.factor = 1.5, .steps = 2, .rank_count = 2};
    cr_assert_eq(take(&stragglers, short_steps, 1, 100), 0);
    cr_assert_eq(take(&stragglers, longer, 1, 2), 1);
}

Test(stragglers, nobody_is_looked_for_with_factor_0_or_alone) {
    static const double alone[1] = {1e6};
    shd_stragglers off = {.factor = 0, .steps = 1, .rank_count = 4},
                   single = {.factor = 1.5, .steps = 1, .rank_count = 1};
    cr_assert_eq(take(&off, one_slow, 100, 10), 0);
    cr_assert_eq(take(&single, alone, 1, 10), 0);
}
