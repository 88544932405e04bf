#include "runtime/report/trace.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/report/markup.h"

#include <math.h>

/* More of them would run into each other. */
enum { DOTS = 80 };

static bool is_known(double value) { return !isnan(value); }

sherd_status shd_trace_make(const shd_history *history, const char *label, int32_t colour, shd_trace *out) {
    int32_t count = history->column_count;
    double *numbers = shd_alloc((size_t)count * 4 + 1, sizeof *numbers);
    if (!numbers) return shd_fail(SHERD_MEMORY, "out of memory for a chart");
    for (int32_t i = 0; i < 4 * count; i++) numbers[i] = (double)NAN;
    *out = (shd_trace){.label = label,
                       .colour = colour,
                       .count = count,
                       .low = numbers,
                       .line = numbers + count,
                       .high = numbers + 2 * count,
                       .value = numbers + 3 * count,
                       .last = (double)NAN};
    return SHERD_OK;
}

void shd_trace_release(shd_trace *trace) {
    shd_free(trace->low);
    *trace = (shd_trace){0};
}

/* Whether a curve has values in so few columns that an empty one says nothing. */
static bool is_sparse(const shd_curve *curve, const shd_history *history) {
    return (curve->all.count + curve->all.odd_count) * 2 < history->row_count;
}

void shd_trace_take(shd_trace *trace, const shd_history *history, const shd_curve *curve) {
    shd_trace_spread(trace, history, curve, curve, curve);
}

void shd_trace_spread(shd_trace *trace, const shd_history *history, const shd_curve *low, const shd_curve *middle,
                      const shd_curve *high) {
    for (int32_t c = 0; c < trace->count; c++) {
        const shd_column *column = &middle->columns[c];
        if (column->count == 0) continue;
        trace->line[c] = trace->value[c] = shd_column_mean(column);
        trace->low[c] = low && low->columns[c].count > 0 ? low->columns[c].low : column->low;
        trace->high[c] = high && high->columns[c].count > 0 ? high->columns[c].high : column->high;
    }
    trace->sparse = is_sparse(middle, history);
    trace->dotted = trace->sparse && middle->all.count <= DOTS;
    trace->last = middle->all.count > 0 ? middle->last : (double)NAN;
}

void shd_trace_stack(shd_trace *trace, const shd_history *history, const shd_curve *curve, const shd_trace *below) {
    const bool holds = is_sparse(curve, history); /* an amount told now and then is the same in between */
    double held = (double)NAN;
    trace->part = true;
    for (int32_t c = 0; c < trace->count; c++) {
        double base = below && is_known(below->high[c]) ? below->high[c] : 0;
        const shd_column *column = &curve->columns[c];
        double amount = column->count > 0 ? shd_column_mean(column) : holds ? held : (double)NAN;
        held = amount;
        /* A part that is missing here leaves the parts above it where they are. */
        if (!is_known(amount) && !(below && is_known(below->high[c]))) continue;
        trace->value[c] = amount;
        trace->low[c] = base;
        trace->high[c] = base + (is_known(amount) ? fmax(amount, 0) : 0);
        trace->last = trace->high[c];
    }
}

static void widen(double value, bool *any, double *low, double *high) {
    if (!is_known(value)) return;
    *low = *any ? fmin(*low, value) : value;
    *high = *any ? fmax(*high, value) : value;
    *any = true;
}

bool shd_trace_range(const shd_trace *trace, double *low, double *high) {
    bool any = false;
    for (int32_t c = 0; c < trace->count; c++) {
        widen(trace->low[c], &any, low, high);
        widen(trace->line[c], &any, low, high);
        widen(trace->high[c], &any, low, high);
    }
    return any;
}

double shd_plot_x(const shd_history *history, double step) {
    if (history->last_step == history->first_step) return SHD_PLOT_UNITS / 2.0;
    double share = (step - (double)history->first_step) / (double)(history->last_step - history->first_step);
    return SHD_PLOT_UNITS * fmin(fmax(share, 0), 1);
}

double shd_plot_y(const shd_scale *scale, double value) { return SHD_PLOT_UNITS * (1 - shd_scale_place(scale, value)); }

/* Tenths of units, far less than a pixel, none of them negative; with a letter that begins a line ('M') or goes on with it ('L'). */
static void add_point(shd_text *out, char letter, double x, double y) {
    long across = lround(10 * x), down = lround(10 * y);
    shd_text_add(out, across % 10 ? "%c%ld.%ld " : "%c%ld ", letter, across / 10, across % 10);
    shd_text_add(out, down % 10 ? "%ld.%ld" : "%ld", down / 10, down % 10);
}

void shd_trace_line_path(shd_text *out, const shd_trace *trace, const shd_history *history, const shd_scale *scale) {
    bool joined = false;
    for (int32_t c = 0; c < trace->count; c++) {
        if (!is_known(trace->line[c])) {
            joined = joined && trace->sparse;
            continue;
        }
        double x = shd_plot_x(history, shd_history_middle(history, c));
        add_point(out, joined ? 'L' : 'M', x, shd_plot_y(scale, trace->line[c]));
        /* A value between gaps would have no length: round ends make it a dot. */
        bool alone = !joined && (c + 1 == trace->count || !is_known(trace->line[c + 1]));
        if (alone && !trace->sparse) shd_text_add(out, "h0");
        joined = true;
    }
}

void shd_trace_dot_path(shd_text *out, const shd_trace *trace, const shd_history *history, const shd_scale *scale) {
    for (int32_t c = 0; c < trace->count; c++) {
        if (!is_known(trace->line[c])) continue;
        double x = shd_plot_x(history, shd_history_middle(history, c));
        add_point(out, 'M', x, shd_plot_y(scale, trace->line[c]));
        shd_text_add(out, "h0");
    }
}

/* The band of the columns from `first` to before `end`, all known: along its upper edge, and back along the lower. */
static void add_band(shd_text *out, const shd_trace *trace, const shd_history *history, const shd_scale *scale,
                     int32_t first, int32_t end) {
    for (int32_t c = first; c < end; c++)
        add_point(out, c == first ? 'M' : 'L', shd_plot_x(history, shd_history_middle(history, c)),
                  shd_plot_y(scale, trace->high[c]));
    for (int32_t c = end; c-- > first;)
        add_point(out, 'L', shd_plot_x(history, shd_history_middle(history, c)), shd_plot_y(scale, trace->low[c]));
    shd_text_add(out, "z");
}

void shd_trace_band_path(shd_text *out, const shd_trace *trace, const shd_history *history, const shd_scale *scale) {
    for (int32_t c = 0; c < trace->count;) {
        int32_t first = c;
        bool wide = false;
        for (; c < trace->count && is_known(trace->low[c]); c++) wide = wide || trace->low[c] < trace->high[c];
        if (c > first && wide) add_band(out, trace, history, scale, first, c);
        if (c == first) c++;
    }
}
