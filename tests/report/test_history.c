#include "runtime/report/history.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rows in memory, for grouping them the plain way. */
typedef struct rows {
    int64_t count;
    int64_t *steps;
    double *values; /* NaN: not finite; -1e300: the row does not have the field */
} rows;
#define ABSENT (-1e300)

static rows draw_rows(int64_t count, int64_t largest_gap, unsigned seed) {
    rows drawn = {.count = count, .steps = malloc((size_t)count * 8 + 1), .values = malloc((size_t)count * 8 + 1)};
    int64_t step = rand_r(&seed) % 100;
    for (int64_t i = 0; i < count; i++) {
        int kind = rand_r(&seed) % 50;
        drawn.steps[i] = step;
        drawn.values[i] = kind == 0 ? (double)NAN : kind == 1 ? ABSENT : rand_r(&seed) / 1e6 - 1000;
        step += 1 + rand_r(&seed) % largest_gap;
    }
    return drawn;
}

static shd_history *fill(const rows *all) {
    shd_history *history = calloc(1, sizeof *history);
    for (int64_t i = 0; i < all->count; i++) {
        cr_assert_eq(shd_history_row(history, all->steps[i]), SHERD_OK);
        cr_assert_eq(shd_history_value(history, "always", (double)i), SHERD_OK);
        if (all->values[i] != ABSENT) cr_assert_eq(shd_history_value(history, "loss", all->values[i]), SHERD_OK);
    }
    return history;
}

/* Every column against all rows whose steps it holds. */
static void compare_with_rows(const shd_history *history, const rows *all) {
    const shd_curve *curve = shd_history_find(history, "loss");
    int64_t at = 0;
    for (int32_t c = 0; c < history->column_count; c++) {
        shd_column want = {0};
        double low = (double)INFINITY, high = -(double)INFINITY;
        for (; at < all->count && all->steps[at] < all->steps[0] + (c + 1) * history->width; at++) {
            double value = all->values[at];
            if (value == ABSENT) continue;
            if (isnan(value)) {
                want.odd_count++;
                continue;
            }
            low = value < low ? value : low;
            high = value > high ? value : high;
            want.sum += value;
            want.count++;
        }
        cr_assert_eq(curve->columns[c].count, want.count);
        cr_assert_eq(curve->columns[c].odd_count, want.odd_count);
        cr_assert(fabs(curve->columns[c].sum - want.sum) <= 1e-9 * (fabs(want.sum) + 1e5));
        if (want.count > 0) cr_assert(curve->columns[c].low == low && curve->columns[c].high == high);
    }
    cr_assert_eq(at, all->count, "the columns must hold every row");
}

static void check(int64_t count, int64_t largest_gap, int32_t most) {
    rows all = draw_rows(count, largest_gap, (unsigned)(count + largest_gap));
    shd_history *history = fill(&all);
    shd_history_reduce(history, most);
    cr_assert_leq(history->column_count, most);
    cr_assert_eq(history->row_count, count);
    if (count > 0) cr_assert_eq(history->last_step, all.steps[count - 1]);
    if (shd_history_find(history, "loss")) compare_with_rows(history, &all);
    shd_history_release(history);
    free(history);
    free(all.steps);
    free(all.values);
}

Test(history, columns_are_what_grouping_the_rows_gives) {
    static const int64_t counts[] = {1,    17, 999, 1000, 1001, 17 * 257, SHD_HISTORY_COLUMNS, SHD_HISTORY_COLUMNS + 1,
                                     50000};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        check(counts[i], 1, 1000);
        check(counts[i], 1, 1);
        check(counts[i], 1000, 1000);
    }
}

Test(history, a_picture_uses_most_of_its_columns) {
    rows all = draw_rows(60000, 1, 1);
    shd_history *history = fill(&all);
    shd_history_reduce(history, 1000);
    cr_assert_geq(history->column_count, 750, "%d columns", (int)history->column_count);
    shd_history_release(history);
    free(history);
    free(all.steps);
    free(all.values);
}

Test(history, an_empty_one_reduces_to_itself) {
    shd_history *history = calloc(1, sizeof *history);
    shd_history_reduce(history, 1000);
    cr_assert_eq(history->column_count, 0);
    cr_assert_null(shd_history_find(history, "loss"));
    shd_history_release(history);
    free(history);
}

Test(history, steps_must_grow_and_be_steps) {
    shd_history *history = calloc(1, sizeof *history);
    cr_assert_eq(shd_history_row(history, -1), SHERD_DATA);
    cr_assert_eq(shd_history_row(history, 5), SHERD_OK);
    cr_assert_eq(shd_history_row(history, 5), SHERD_DATA);
    cr_assert_eq(shd_history_row(history, 4), SHERD_DATA);
    cr_assert_eq(shd_history_row(history, SHD_HISTORY_LAST_STEP + 1), SHERD_DATA);
    cr_assert_eq(history->row_count, 1);
    cr_assert_eq(shd_history_row(history, SHD_HISTORY_LAST_STEP), SHERD_OK);
    cr_assert_leq(history->column_count, SHD_HISTORY_COLUMNS);
    shd_history_release(history);
    free(history);
}

Test(history, the_whole_run_is_told_exactly) {
    shd_history *history = calloc(1, sizeof *history);
    const double values[] = {3, (double)INFINITY, 1, 7, (double)NAN, 2};
    for (int64_t i = 0; i < 6; i++) {
        shd_history_row(history, 10 + i);
        shd_history_value(history, "loss", values[i]);
    }
    const shd_curve *curve = shd_history_find(history, "loss");
    cr_assert(curve->all.low == 1 && curve->low_step == 12);
    cr_assert(curve->all.high == 7 && curve->high_step == 13);
    cr_assert(curve->all.count == 4 && curve->all.odd_count == 2 && curve->first_odd_step == 11);
    cr_assert(curve->last == 2 && curve->last_step == 15);
    shd_history_release(history);
    free(history);
}

Test(history, fields_beyond_the_room_are_counted_and_others_kept) {
    shd_history *history = calloc(1, sizeof *history);
    char name[100];
    shd_history_row(history, 0);
    for (int i = 0; i < SHD_HISTORY_CURVES + 5; i++) {
        snprintf(name, sizeof name, "field %d", i);
        cr_assert_eq(shd_history_value(history, name, i), SHERD_OK);
    }
    memset(name, 'x', 99);
    name[99] = 0;
    cr_assert_eq(shd_history_value(history, name, 1), SHERD_OK);
    cr_assert_eq(history->left_out_count, 6);
    cr_assert_eq(history->curve_count, SHD_HISTORY_CURVES);
    cr_assert(shd_history_find(history, "field 95")->last == 95);
    shd_history_release(history);
    free(history);
}

Test(history, a_step_has_the_column_that_holds_it) {
    shd_history *history = calloc(1, sizeof *history);
    for (int64_t step = 100; step < 2100; step++) shd_history_row(history, step);
    shd_history_reduce(history, 1000);
    cr_assert_eq(history->width, 2);
    cr_assert_eq(shd_history_column(history, 0), 0);
    cr_assert_eq(shd_history_column(history, 103), 1);
    cr_assert_eq(shd_history_column(history, 1 << 20), 999);
    cr_assert(shd_history_middle(history, 1) == 102.5);
    shd_history_release(history);
    free(history);
}
