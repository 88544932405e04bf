#include "runtime/report/trace.h"

#include "runtime/base/memory.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A run of `count` rows from step 0, reduced to `most` columns. */
static shd_history *make_history(const double *values, int64_t count, int32_t most) {
    shd_history *history = calloc(1, sizeof *history);
    for (int64_t i = 0; i < count; i++) {
        shd_history_row(history, i);
        shd_history_value(history, "a", values[i]);
        shd_history_value(history, "b", 2 * values[i]);
    }
    shd_history_reduce(history, most);
    return history;
}

typedef void path_writer(shd_text *, const shd_trace *, const shd_history *, const shd_scale *);

static void check_path(path_writer *write, const shd_trace *trace, const shd_history *history, const shd_scale *scale,
                       const char *want) {
    shd_text out = {0};
    char *got;
    shd_text_add(&out, "%s", "");
    write(&out, trace, history, scale);
    cr_assert_eq(shd_text_finish(&out, &got), SHERD_OK);
    cr_assert_str_eq(got, want);
    shd_free(got);
}

static void end(shd_history *history, shd_trace *trace) {
    shd_trace_release(trace);
    shd_history_release(history);
    free(history);
}

Test(trace, a_line_goes_through_every_value) {
    const double values[] = {0, 10, 5, 2.5, 10};
    shd_history *history = make_history(values, 5, 1000);
    shd_scale scale = {.low = 0, .high = 10};
    shd_trace trace;
    shd_trace_make(history, "a", 1, &trace);
    shd_trace_take(&trace, history, shd_history_find(history, "a"));
    check_path(shd_trace_line_path, &trace, history, &scale, "M0 1000L250 0L500 500L750 750L1000 0");
    check_path(shd_trace_band_path, &trace, history, &scale, "");
    end(history, &trace);
}

Test(trace, gaps_are_left_where_values_are_not_finite_and_a_lone_value_is_a_dot) {
    const double values[] = {0, 10, (double)NAN, 5, (double)INFINITY, 10, 10};
    shd_history *history = make_history(values, 7, 1000);
    shd_scale scale = {.low = 0, .high = 10};
    shd_trace trace;
    shd_trace_make(history, "a", 1, &trace);
    shd_trace_take(&trace, history, shd_history_find(history, "a"));
    check_path(shd_trace_line_path, &trace, history, &scale, "M0 1000L166.7 0M500 500h0M833.3 0L1000 0");
    end(history, &trace);
}

Test(trace, a_band_has_the_least_and_the_greatest_of_each_column) {
    /* Columns of two steps at 0.5, 2.5, 4: their middles of the steps 0 to 4. */
    const double values[] = {0, 10, 4, 4, 6};
    shd_history *history = make_history(values, 5, 3);
    shd_scale scale = {.low = 0, .high = 10};
    shd_trace trace;
    shd_trace_make(history, "a", 1, &trace);
    shd_trace_take(&trace, history, shd_history_find(history, "a"));
    check_path(shd_trace_line_path, &trace, history, &scale, "M125 500L625 600L1000 400");
    check_path(shd_trace_band_path, &trace, history, &scale, "M125 0L625 600L1000 400L1000 400L625 600L125 1000z");
    end(history, &trace);
}

Test(trace, a_spike_stays_visible_however_many_steps_there_are) {
    enum { STEPS = 300000 };
    double *values = malloc(STEPS * sizeof *values), low, high;
    for (int i = 0; i < STEPS; i++) values[i] = 1;
    values[123456] = 77;
    values[7] = -3;
    shd_history *history = make_history(values, STEPS, 1000);
    shd_trace trace;
    shd_trace_make(history, "a", 1, &trace);
    shd_trace_take(&trace, history, shd_history_find(history, "a"));
    cr_assert(shd_trace_range(&trace, &low, &high) && low == -3 && high == 77);
    cr_assert(trace.high[shd_history_column(history, 123456)] == 77);
    cr_assert(trace.low[shd_history_column(history, 7)] == -3);
    free(values);
    end(history, &trace);
}

Test(trace, parts_of_a_stack_stand_on_each_other) {
    const double values[] = {1, 2, 3};
    shd_history *history = make_history(values, 3, 1000);
    shd_scale scale = {.low = 0, .high = 10};
    shd_trace lower, upper;
    shd_trace_make(history, "a", 1, &lower);
    shd_trace_make(history, "b", 2, &upper);
    shd_trace_stack(&lower, history, shd_history_find(history, "a"), NULL);
    shd_trace_stack(&upper, history, shd_history_find(history, "b"), &lower);
    check_path(shd_trace_band_path, &lower, history, &scale, "M0 900L500 800L1000 700L1000 1000L500 1000L0 1000z");
    check_path(shd_trace_band_path, &upper, history, &scale, "M0 700L500 400L1000 100L1000 700L500 800L0 900z");
    cr_assert(upper.value[1] == 4 && upper.high[1] == 6);
    shd_trace_release(&lower);
    end(history, &upper);
}

Test(trace, values_now_and_then_are_joined_and_dotted) {
    shd_history *history = calloc(1, sizeof *history);
    shd_scale scale = {.low = 0, .high = 10};
    shd_trace trace;
    for (int64_t i = 0; i <= 10; i++) {
        shd_history_row(history, i);
        if (i % 5 == 0) shd_history_value(history, "validation", (double)i);
    }
    shd_trace_make(history, "v", 1, &trace);
    shd_trace_take(&trace, history, shd_history_find(history, "validation"));
    cr_assert(trace.sparse && trace.dotted);
    check_path(shd_trace_line_path, &trace, history, &scale, "M0 1000L500 500L1000 0");
    check_path(shd_trace_dot_path, &trace, history, &scale, "M0 1000h0M500 500h0M1000 0h0");
    end(history, &trace);
}

Test(trace, one_row_stands_in_the_middle_and_none_draws_nothing) {
    const double values[] = {5};
    shd_history *history = make_history(values, 1, 1000), *empty = make_history(values, 0, 1000);
    shd_scale scale = {.low = 0, .high = 10};
    shd_trace trace, none;
    double low, high;
    shd_trace_make(history, "a", 1, &trace);
    shd_trace_take(&trace, history, shd_history_find(history, "a"));
    check_path(shd_trace_line_path, &trace, history, &scale, "M500 500h0");
    cr_assert_eq(shd_trace_make(empty, "a", 1, &none), SHERD_OK);
    check_path(shd_trace_line_path, &none, empty, &scale, "");
    cr_assert_not(shd_trace_range(&none, &low, &high));
    end(empty, &none);
    end(history, &trace);
}
