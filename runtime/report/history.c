#include "runtime/report/history.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <math.h>
#include <string.h>

void shd_column_merge(shd_column *into, const shd_column *from) {
    if (from->count > 0) {
        into->low = into->count > 0 ? fmin(into->low, from->low) : from->low;
        into->high = into->count > 0 ? fmax(into->high, from->high) : from->high;
        into->sum += from->sum;
        into->count += from->count;
    }
    into->odd_count += from->odd_count;
}

/* Every `by` neighbours become one column. */
static void coarsen(shd_history *history, int32_t by) {
    int32_t count = (history->column_count + by - 1) / by;
    for (int32_t i = 0; i < history->curve_count; i++) {
        shd_column *columns = history->curves[i].columns;
        for (int32_t c = 0; c < count; c++) {
            shd_column sum = {0};
            for (int32_t k = c * by; k < (c + 1) * by && k < history->column_count; k++)
                shd_column_merge(&sum, &columns[k]);
            columns[c] = sum;
        }
        memset(columns + count, 0, (size_t)(history->column_count - count) * sizeof *columns);
    }
    history->column_count = count;
    history->width *= by;
}

sherd_status shd_history_row(shd_history *history, int64_t step) {
    if (step < 0 || step > SHD_HISTORY_LAST_STEP) return shd_fail(SHERD_DATA, "step %lld is none", (long long)step);
    if (history->row_count == 0) {
        history->first_step = step;
        history->width = 1;
    } else if (step <= history->last_step) {
        return shd_fail(SHERD_DATA, "step %lld comes after step %lld", (long long)step, (long long)history->last_step);
    }
    while ((step - history->first_step) / history->width >= SHD_HISTORY_COLUMNS) coarsen(history, 2);
    history->column_count = (int32_t)((step - history->first_step) / history->width) + 1;
    history->last_step = step;
    history->row_count++;
    history->hint = 0;
    return SHERD_OK;
}

static sherd_status find_or_add(shd_history *history, const char *name, shd_curve **out) {
    *out = NULL;
    for (int32_t i = 0; i < history->curve_count; i++) {
        int32_t at = (history->hint + i) % history->curve_count;
        if (strcmp(history->curves[at].name, name) != 0) continue;
        history->hint = at + 1;
        *out = &history->curves[at];
        return SHERD_OK;
    }
    if (history->curve_count == SHD_HISTORY_CURVES || strlen(name) >= SHD_HISTORY_NAME_BYTES) return SHERD_OK;
    shd_column *columns = shd_alloc(SHD_HISTORY_COLUMNS, sizeof *columns);
    if (!columns) return shd_fail(SHERD_MEMORY, "out of memory for the values of \"%s\"", name);
    *out = &history->curves[history->curve_count++];
    **out = (shd_curve){.columns = columns, .last_step = -1, .low_step = -1, .high_step = -1, .first_odd_step = -1};
    memcpy((*out)->name, name, strlen(name) + 1);
    history->hint = history->curve_count;
    return SHERD_OK;
}

sherd_status shd_history_value(shd_history *history, const char *name, double value) {
    shd_curve *curve;
    SHD_TRY(find_or_add(history, name, &curve));
    if (!curve) {
        history->left_out_count++;
        return SHERD_OK;
    }
    const shd_column one = isfinite(value) ? (shd_column){.low = value, .high = value, .sum = value, .count = 1}
                                           : (shd_column){.odd_count = 1};
    if (one.odd_count > 0 && curve->first_odd_step < 0) curve->first_odd_step = history->last_step;
    if (one.count > 0) {
        if (curve->all.count == 0 || value < curve->all.low) curve->low_step = history->last_step;
        if (curve->all.count == 0 || value > curve->all.high) curve->high_step = history->last_step;
        curve->last = value;
        curve->last_step = history->last_step;
    }
    shd_column_merge(&curve->all, &one);
    shd_column_merge(&curve->columns[(history->last_step - history->first_step) / history->width], &one);
    return SHERD_OK;
}

void shd_history_reduce(shd_history *history, int32_t most) {
    int32_t by = (history->column_count + most - 1) / most;
    if (by > 1) coarsen(history, by);
}

void shd_history_release(shd_history *history) {
    for (int32_t i = 0; i < history->curve_count; i++) shd_free(history->curves[i].columns);
    *history = (shd_history){0};
}

const shd_curve *shd_history_find(const shd_history *history, const char *name) {
    for (int32_t i = 0; i < history->curve_count; i++)
        if (!strcmp(history->curves[i].name, name)) return &history->curves[i];
    return NULL;
}

int32_t shd_history_column(const shd_history *history, int64_t step) {
    if (step <= history->first_step) return 0;
    if (step >= history->last_step) return history->column_count - 1;
    return (int32_t)((step - history->first_step) / history->width);
}

double shd_history_middle(const shd_history *history, int32_t column) {
    int64_t first = history->first_step + column * history->width, last = first + history->width - 1;
    if (last > history->last_step) last = history->last_step;
    return ((double)first + (double)last) / 2;
}
