/* The dynamic loss scale: the exact steps at which it moves. */
#include "optim/loss_scale.h"
#include "runtime/base/status.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static const sherd_loss_scale defaults = SHERD_LOSS_SCALE_INIT;

static void learn(const sherd_loss_scale *options, bool overflow, int32_t times, shd_loss_scale *state) {
    for (int32_t i = 0; i < times; i++)
        cr_assert_eq(shd_loss_scale_learn(options, overflow, state), SHERD_OK, "%s", sherd_last_error());
}

Test(loss_scale, doubles_after_exactly_two_thousand_good_steps) {
    shd_loss_scale state = shd_loss_scale_start(&defaults);
    cr_assert_eq(state.scale, 65536);
    learn(&defaults, false, 1999, &state);
    cr_assert_eq(state.scale, 65536);
    learn(&defaults, false, 1, &state);
    cr_assert_eq(state.scale, 131072);
    learn(&defaults, false, 1999, &state);
    cr_assert_eq(state.scale, 131072);
    learn(&defaults, false, 1, &state);
    cr_assert_eq(state.scale, 262144);
}

Test(loss_scale, halves_at_every_overflow_and_counts_good_steps_anew) {
    shd_loss_scale state = shd_loss_scale_start(&defaults);
    learn(&defaults, true, 1, &state);
    cr_assert_eq(state.scale, 32768);
    learn(&defaults, false, 1999, &state);
    learn(&defaults, true, 2, &state);
    cr_assert_eq(state.scale, 8192);
    learn(&defaults, false, 1999, &state);
    cr_assert_eq(state.scale, 8192);
    learn(&defaults, false, 1, &state);
    cr_assert_eq(state.scale, 16384);
}

Test(loss_scale, an_overflow_at_the_minimum_is_an_error_and_changes_nothing) {
    sherd_loss_scale options = defaults;
    options.initial = 24;
    options.minimum = 5;
    shd_loss_scale state = shd_loss_scale_start(&options);
    learn(&options, true, 2, &state);
    cr_assert_eq(state.scale, 6);
    learn(&options, true, 1, &state);
    cr_assert_eq(state.scale, 5);
    learn(&options, false, 3, &state);
    cr_assert_eq(shd_loss_scale_learn(&options, true, &state), SHERD_NUMERIC);
    cr_assert_str_eq(
        sherd_last_error(),
        "loss or gradients overflow fp16 at a loss scale of 5, the least that train.loss_scale.minimum allows");
    cr_assert(state.scale == 5 && state.good_steps == 3 && state.hysteresis == 1);
}

Test(loss_scale, hysteresis_forgives_overflows_until_the_next_growth) {
    sherd_loss_scale options = defaults;
    options.hysteresis = 3;
    options.growth_interval = 4;
    shd_loss_scale state = shd_loss_scale_start(&options);
    learn(&options, true, 2, &state);
    cr_assert_eq(state.scale, 65536);
    learn(&options, true, 1, &state);
    cr_assert_eq(state.scale, 32768);
    learn(&options, false, 3, &state); /* not enough to forgive again */
    learn(&options, true, 1, &state);
    cr_assert_eq(state.scale, 16384);
    learn(&options, false, 4, &state);
    cr_assert_eq(state.scale, 32768);
    learn(&options, true, 2, &state);
    cr_assert_eq(state.scale, 32768);
    learn(&options, true, 1, &state);
    cr_assert_eq(state.scale, 16384);
}

Test(loss_scale, hysteresis_at_the_minimum_is_used_up_before_it_is_an_error) {
    sherd_loss_scale options = {.initial = 1, .minimum = 1, .growth_interval = 10, .hysteresis = 2};
    shd_loss_scale state = shd_loss_scale_start(&options);
    learn(&options, true, 1, &state);
    cr_assert_eq(shd_loss_scale_learn(&options, true, &state), SHERD_NUMERIC);
}

Test(loss_scale, stays_finite_in_float32_however_long_it_grows) {
    sherd_loss_scale options = defaults;
    options.growth_interval = 1;
    shd_loss_scale state = shd_loss_scale_start(&options);
    learn(&options, false, 5000, &state);
    cr_assert(isfinite((float)state.scale));
    cr_assert_eq(state.scale, 0x1p126);
}

Test(loss_scale, refuses_what_makes_no_sense_by_key) {
    static const struct {
        sherd_loss_scale options;
        const char *cause;
    } cases[] = {
        {{0, 1, 2000, 1},
         "train.loss_scale.initial is 0; it must be at least train.loss_scale.minimum, which is 1, and "
         "finite in float32"},
        {{NAN, 1, 2000, 1}, "train.loss_scale.initial is nan; "},
        {{1e39, 1, 2000, 1}, "train.loss_scale.initial is 1e+39; "},
        {{65536, 0, 2000, 1}, "train.loss_scale.minimum is 0; it must be a positive number, finite in float32"},
        {{2, 4, 2000, 1}, "train.loss_scale.initial is 2; it must be at least train.loss_scale.minimum, which is 4"},
        {{65536, 1, 0, 1}, "train.loss_scale.growth_interval is 0; it must be 1 or more"},
        {{65536, 1, 2000, 0}, "train.loss_scale.hysteresis is 0; it must be 1 or more"},
    };
    cr_assert_eq(shd_loss_scale_check(&defaults), SHERD_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert_eq(shd_loss_scale_check(&cases[i].options), SHERD_CONFIG, "case %zu", i);
        cr_assert_eq(strncmp(sherd_last_error(), cases[i].cause, strlen(cases[i].cause)), 0, "%s", sherd_last_error());
    }
}
