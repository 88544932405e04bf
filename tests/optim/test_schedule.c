#include "optim/schedule.h"

#include <criterion/criterion.h>
#include <math.h>

/* What the reference runs recorded (Python), and hand-worked rows for the edges: no warm-up, warm-up to the end, past
 * the end. */
Test(schedule, follows_the_recorded_runs_and_hand_worked_rows) {
    static const struct {
        sherd_schedule schedule;
        int32_t warmup;
        int64_t total;
        double lr, min_lr;
        int64_t step;
        double expected;
    } rows[] = {
        {SHERD_COSINE, 6, 60, 0.003, 0.0003, 0, 0.0005},
        {SHERD_COSINE, 6, 60, 0.003, 0.0003, 2, 0.0015},
        {SHERD_COSINE, 6, 60, 0.003, 0.0003, 6, 0.003},
        {SHERD_COSINE, 6, 60, 0.003, 0.0003, 30, 0.0018844250398503562},
        {SHERD_COSINE, 6, 60, 0.003, 0.0003, 59, 0.00030228398633378795},
        {SHERD_COSINE, 4, 40, 0.3, 0, 5, 0.29942920471376183},
        {SHERD_COSINE, 4, 40, 0.3, 0, 39, 0.0005707952862381682},
        {SHERD_COSINE, 0, 7, 1, 0, 3, 0.61126046697815717},
        {SHERD_COSINE, 0, 7, 1, 0.25, 7, 0.25},
        {SHERD_COSINE, 0, 7, 1, 0.25, 700, 0.25},
        {SHERD_COSINE, 5, 5, 1, 0.25, 4, 1},
        {SHERD_COSINE, 5, 5, 1, 0.25, 5, 0.25},
        {SHERD_LINEAR, 4, 40, 0.0005, 0, 0, 0.000125},
        {SHERD_LINEAR, 4, 40, 0.0005, 0, 6, 0.00047222222222222224},
        {SHERD_LINEAR, 4, 40, 0.0005, 0, 39, 1.3888888888888913e-05},
        {SHERD_LINEAR, 0, 4, 1, 0.5, 1, 0.875},
        {SHERD_LINEAR, 0, 4, 1, 0.5, 9, 0.5},
        {SHERD_LINEAR, 10, 4, 1, 0.5, 3, 0.4},
        {SHERD_CONSTANT, 4, 1, 2, 0, 0, 0.5},
        {SHERD_CONSTANT, 4, 1, 2, 0, 3, 2},
        {SHERD_CONSTANT, 4, 1, 2, 0, 1000, 2},
        {SHERD_CONSTANT, 0, 1, 2, 7, 0, 2},
        {SHERD_WSD, 0, 100, 1, 0.5, 89, 1},
        {SHERD_WSD, 0, 100, 1, 0.5, 90, 1},
        {SHERD_WSD, 0, 100, 1, 0.5, 91, 0.95},
        {SHERD_WSD, 0, 100, 1, 0.5, 99, 0.55},
        {SHERD_WSD, 0, 100, 1, 0.5, 100, 0.5},
        {SHERD_WSD, 0, 100, 1, 0.5, 1000, 0.5},
        {SHERD_WSD, 4, 5, 1, 0, 3, 1},
        {SHERD_WSD, 4, 5, 1, 0, 4, 1},
        {SHERD_WSD, 4, 5, 1, 0, 5, 0},
        {SHERD_WSD, 9, 5, 1, 0.5, 8, 1},
        {SHERD_WSD, 9, 5, 1, 0.5, 9, 0.5},
        {SHERD_INVERSE_SQRT, 4, 1, 2, 0, 3, 2},
        {SHERD_INVERSE_SQRT, 4, 1, 2, 0, 15, 1},
        {SHERD_INVERSE_SQRT, 4, 1, 2, 0, 399, 0.2},
        {SHERD_INVERSE_SQRT, 4, 1, 2, 0.25, 399, 0.25},
        {SHERD_INVERSE_SQRT, 0, 1, 2, 0, 0, 2},
        {SHERD_INVERSE_SQRT, 0, 1, 2, 0, 99, 0.2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sherd_optimizer o = {.schedule = rows[i].schedule,
                             .warmup_steps = rows[i].warmup,
                             .total_steps = rows[i].total,
                             .lr = rows[i].lr,
                             .min_lr = rows[i].min_lr};
        double lr = shd_schedule_lr(&o, rows[i].step);
        cr_assert_float_eq(lr, rows[i].expected, 1e-14, "row %zu: %.17g", i, lr);
    }
}

/* The formulas once more, each step from the one before: written apart from the code under test. */
static double next_lr(const sherd_optimizer *o, int64_t step, int64_t warmup, double before) {
    static const double pi = 3.14159265358979323846;
    double fall = o->min_lr - o->lr, rest = (double)(o->total_steps - warmup);
    if (step < warmup) return before + o->lr / (double)warmup;
    switch (o->schedule) {
    case SHERD_CONSTANT: return o->lr;
    case SHERD_LINEAR: return step == warmup ? o->lr : step > o->total_steps ? before : before + fall / rest;
    case SHERD_COSINE:
        if (step > o->total_steps) return before;
        return o->lr + fall * pow(sin(pi / 2 * (double)(step - warmup) / rest), 2);
    case SHERD_WSD:
        if (step <= o->total_steps - o->decay_steps) return o->lr;
        return step > o->total_steps ? before : before + fall / (double)o->decay_steps;
    case SHERD_INVERSE_SQRT:
        if (step == 0) return o->lr;
        return fmax(o->min_lr, before * sqrt((double)step / (double)(step + 1)));
    }
    return NAN;
}

Test(schedule, follows_the_formulas_at_every_step) {
    static const int32_t warmups[] = {0, 1, 7, 60};
    for (int schedule = SHERD_CONSTANT; schedule <= SHERD_INVERSE_SQRT; schedule++)
        for (int i = 0; i < 4; i++) {
            sherd_optimizer o = {.schedule = (sherd_schedule)schedule,
                                 .warmup_steps = warmups[i],
                                 .total_steps = 100,
                                 .decay_steps = 33,
                                 .lr = 0.7,
                                 .min_lr = 0.07};
            double expected = 0;
            for (int64_t step = 0; step < 130; step++) {
                expected = next_lr(&o, step, warmups[i], expected);
                double lr = shd_schedule_lr(&o, step);
                cr_assert_float_eq(lr, expected, 1e-13, "schedule %d, warm-up %d, step %d: %.17g, not %.17g", schedule,
                                   warmups[i], (int)step, lr, expected);
            }
        }
}

Test(schedule, wsd_that_decays_all_along_is_linear) {
    sherd_optimizer wsd = {
        .schedule = SHERD_WSD, .warmup_steps = 6, .total_steps = 50, .decay_steps = 44, .lr = 0.3, .min_lr = 0.1};
    sherd_optimizer linear = wsd;
    linear.schedule = SHERD_LINEAR;
    for (int64_t step = 0; step < 60; step++) cr_assert_eq(shd_schedule_lr(&wsd, step), shd_schedule_lr(&linear, step));
}

Test(schedule, warms_up_for_as_many_steps_as_see_the_tokens) {
    static const struct {
        int64_t tokens, step_tokens, steps;
    } rows[] = {{1, 100, 1}, {99, 100, 1}, {100, 100, 1}, {101, 100, 2}, {700, 100, 7}, {INT64_MAX, INT64_MAX, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sherd_optimizer tokens = {.schedule = SHERD_COSINE,
                                  .warmup_tokens = rows[i].tokens,
                                  .step_tokens = rows[i].step_tokens,
                                  .total_steps = 20,
                                  .lr = 1};
        sherd_optimizer steps = {
            .schedule = SHERD_COSINE, .warmup_steps = (int32_t)rows[i].steps, .total_steps = 20, .lr = 1};
        cr_assert_eq(shd_schedule_warmup_steps(&tokens), rows[i].steps);
        for (int64_t step = 0; step < 25; step++)
            cr_assert_eq(shd_schedule_lr(&tokens, step), shd_schedule_lr(&steps, step));
    }
}
