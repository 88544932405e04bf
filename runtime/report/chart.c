#include "runtime/report/chart.h"

#include "runtime/base/status.h"
#include "runtime/report/chart_parts.h"
#include "runtime/report/markup.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Values that differ by more than this are drawn on a logarithmic axis where a chart may have one. */
static const double log_ratio = 40;
/* Above so many times what all but a twentieth of the columns have, an axis that may be is cut off. */
static const double clip_ratio = 3;

/* --- what is drawn ------------------------------------------------------------------------------------------------ */

static const shd_curve *line_curve(const shd_history *history, const shd_chart *chart, int32_t line) {
    return chart->lines[line].field ? shd_history_find(history, chart->lines[line].field) : NULL;
}

static int32_t line_count(const shd_chart *chart) {
    int32_t count = 0;
    while (count < SHD_CHART_LINES && chart->lines[count].field) count++;
    return count;
}

static bool curve_shows(const shd_curve *curve, bool skips_zero) {
    return curve && !(skips_zero && curve->all.odd_count == 0 && curve->all.low == 0 && curve->all.high == 0);
}

bool shd_chart_applies(const shd_history *history, const shd_chart *chart) {
    int32_t count = chart->kind == SHD_CHART_SPREAD ? 1 : line_count(chart);
    for (int32_t i = 0; i < count; i++)
        if (curve_shows(line_curve(history, chart, i), chart->skips_zero)) return true;
    return false;
}

static sherd_status make_traces(shd_drawing *drawing) {
    const shd_chart *chart = drawing->chart;
    const shd_history *history = drawing->canvas->history;
    int32_t count = chart->kind == SHD_CHART_SPREAD ? 1 : line_count(chart);
    for (int32_t i = 0; i < count; i++) {
        const shd_curve *curve = line_curve(history, chart, i);
        if (!curve) continue;
        shd_trace *trace = &drawing->traces[drawing->count];
        SHD_TRY(shd_trace_make(history, chart->lines[i].label, chart->lines[i].colour, trace));
        drawing->curves[drawing->count++] = curve;
        if (chart->kind == SHD_CHART_STACK)
            shd_trace_stack(trace, history, curve, drawing->count > 1 ? trace - 1 : NULL);
        else if (chart->kind == SHD_CHART_SPREAD)
            shd_trace_spread(trace, history, line_curve(history, chart, 1), curve, line_curve(history, chart, 2));
        else
            shd_trace_take(trace, history, curve);
    }
    drawing->total = chart->total ? shd_history_find(history, chart->total) : NULL;
    return SHERD_OK;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The greatest value that the axis must show: rare ones far above all others would leave nothing of the rest. Their
 * columns are marked instead, and the greatest is told. */
static double clipped_high(shd_drawing *drawing, double high) {
    const shd_trace *top = &drawing->traces[drawing->count - 1];
    double sorted[SHD_DRAWN_COLUMNS];
    int32_t count = 0;
    if (!drawing->chart->clips) return high;
    for (int32_t c = 0; c < top->count && count < SHD_DRAWN_COLUMNS; c++)
        if (!isnan(top->high[c])) sorted[count++] = top->high[c];
    if (count < 20) return high;
    qsort(sorted, (size_t)count, sizeof *sorted, compare);
    double usual = sorted[count * 19 / 20];
    if (high <= clip_ratio * usual) return high;
    for (int32_t c = 0; c < top->count; c++) drawing->beyond_count += top->high[c] > 1.3 * usual;
    return 1.3 * usual;
}

static void choose_unit(shd_drawing *drawing, double high) {
    static const char *const sizes[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    drawing->factor = 1;
    drawing->unit = "";
    switch (drawing->chart->quantity) {
    case SHD_MILLISECONDS:
        drawing->factor = high >= 1e4 ? 1e-3 : high < 1 ? 1e3 : 1;
        drawing->unit = high >= 1e4 ? "s" : high < 1 ? "µs" : "ms";
        break;
    case SHD_BYTES:
        for (; high >= 1000 && unit < 4; unit++) high /= 1024;
        drawing->factor = pow(1024, -unit);
        drawing->unit = sizes[unit];
        break;
    case SHD_SHARE:
        drawing->factor = 100;
        drawing->unit = "%";
        break;
    case SHD_PLAIN: break;
    }
}

static void choose_scale(shd_drawing *drawing) {
    const shd_chart *chart = drawing->chart;
    double low = 0, high = 0;
    bool any = false;
    for (int32_t i = 0; i < drawing->count; i++) {
        double from, to;
        if (!shd_trace_range(&drawing->traces[i], &from, &to)) continue;
        low = any ? fmin(low, from) : from;
        high = any ? fmax(high, to) : to;
        any = true;
    }
    drawing->is_empty = !any;
    if (!any) return;
    bool logarithmic = chart->may_be_log && low > 0 && high / low > log_ratio;
    double shown = clipped_high(drawing, high);
    if (chart->reference > 0 && chart->reference < 2 * high) {
        shown = fmax(shown, chart->reference);
        drawing->has_reference = true;
    }
    if (drawing->has_reference && logarithmic) low = fmin(low, chart->reference);
    drawing->greatest = high;
    choose_unit(drawing, shown);
    drawing->scale = shd_scale_make(low * drawing->factor, shown * drawing->factor, chart->from_zero, logarithmic);
    for (int32_t i = 0; i < drawing->count; i++) {
        shd_trace *trace = &drawing->traces[i];
        for (int32_t k = 0; k < 4 * trace->count; k++) trace->low[k] *= drawing->factor;
        trace->last *= drawing->factor;
    }
}

/* --- markup ------------------------------------------------------------------------------------------------------- */

static void write_path(shd_text *out, const char *classes, const shd_trace *trace, const shd_history *history,
                       const shd_scale *scale,
                       void (*write)(shd_text *, const shd_trace *, const shd_history *, const shd_scale *)) {
    shd_text_add(out, "<path class=\"%s c%d\" d=\"", classes, (int)trace->colour);
    write(out, trace, history, scale);
    shd_text_add(out, "\"/>\n");
}

/* Short lines at the upper edge of the columns that `is_marked` tells of. */
static void write_marks(const shd_drawing *drawing, const char *classes, const char *title,
                        bool (*is_marked)(const shd_drawing *drawing, int32_t column)) {
    shd_text *out = drawing->canvas->html;
    const shd_history *history = drawing->canvas->history;
    bool any = false;
    for (int32_t c = 0; c < history->column_count; c++) {
        if (!is_marked(drawing, c)) continue;
        if (!any) shd_text_add(out, "<path class=\"%s\" d=\"", classes);
        any = true;
        shd_text_add(out, "M%.1f 0v%d", shd_plot_x(history, shd_history_middle(history, c)), SHD_MARK_UNITS);
    }
    if (any) shd_text_add(out, "\"><title>%s</title></path>\n", title);
}

static bool is_odd(const shd_drawing *drawing, int32_t column) {
    for (int32_t i = 0; i < drawing->count; i++)
        if (drawing->curves[i]->columns[column].odd_count > 0) return true;
    return false;
}

static bool is_beyond(const shd_drawing *drawing, int32_t column) {
    return drawing->beyond_count > 0 && drawing->traces[drawing->count - 1].high[column] > drawing->scale.high;
}

static void write_grid(const shd_drawing *drawing) {
    double ticks[SHD_TICKS];
    int32_t count = shd_scale_ticks(&drawing->scale, drawing->chart->small ? 3 : 5, ticks);
    shd_text_add(drawing->canvas->html, "<path class=\"grid\" d=\"");
    for (int32_t i = 0; i < count; i++)
        shd_text_add(drawing->canvas->html, "M0 %.1fh%d", shd_plot_y(&drawing->scale, ticks[i]), SHD_PLOT_UNITS);
    shd_text_add(drawing->canvas->html, "\"/>\n");
}

static void write_traces(const shd_drawing *drawing) {
    shd_text *out = drawing->canvas->html;
    const shd_history *history = drawing->canvas->history;
    bool stack = drawing->chart->kind == SHD_CHART_STACK;
    for (int32_t i = 0; i < drawing->count; i++)
        write_path(out, stack ? "part" : "band", &drawing->traces[i], history, &drawing->scale, shd_trace_band_path);
    for (int32_t i = 0; !stack && i < drawing->count; i++) {
        write_path(out, "line", &drawing->traces[i], history, &drawing->scale, shd_trace_line_path);
        if (drawing->traces[i].dotted)
            write_path(out, "dots", &drawing->traces[i], history, &drawing->scale, shd_trace_dot_path);
    }
    if (drawing->has_reference)
        shd_text_add(out, "<path class=\"reference\" d=\"M0 %.1fh%d\"/>\n",
                     shd_plot_y(&drawing->scale, drawing->chart->reference * drawing->factor), SHD_PLOT_UNITS);
}

static void write_picture(const shd_drawing *drawing) {
    const shd_chart *chart = drawing->chart;
    shd_text *out = drawing->canvas->html;
    shd_text_add(out,
                 "<svg viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" role=\"img\" aria-labelledby=\"%s-t %s-d\">\n"
                 "<title id=\"%s-t\">",
                 SHD_PLOT_UNITS, SHD_PLOT_UNITS, chart->id, chart->id, chart->id);
    shd_markup_text(out, chart->title);
    shd_text_add(out, " by step</title>\n<desc id=\"%s-d\">", chart->id);
    shd_drawing_describe(drawing);
    shd_text_add(out, "</desc>\n");
    if (!drawing->is_empty) write_grid(drawing);
    shd_chart_guides(drawing->canvas);
    if (!drawing->is_empty) write_traces(drawing);
    write_marks(drawing, "odd", "a value that is not finite", is_odd);
    write_marks(drawing, "beyond", "beyond the scale", is_beyond);
    shd_text_add(out, "</svg>\n");
}

static void write_figure(const shd_drawing *drawing) {
    const shd_chart *chart = drawing->chart;
    shd_text *out = drawing->canvas->html;
    shd_text_add(out, "<figure class=\"chart%s\" id=\"%s\">\n<figcaption><h3>", chart->small ? " small" : "",
                 chart->id);
    shd_markup_text(out, chart->title);
    shd_text_add(out, "</h3> <span class=\"unit\">");
    shd_markup_text(out, drawing->unit);
    shd_markup_text(out, chart->unit);
    if (drawing->scale.logarithmic) shd_text_add(out, "%slogarithmic", *drawing->unit || *chart->unit ? ", " : "");
    shd_text_add(out, "</span></figcaption>\n");
    if (chart->kind == SHD_CHART_STACK) shd_drawing_key(drawing);
    shd_text_add(out, "<div class=\"plot\" data-chart=\"%d\" tabindex=\"0\">\n", (int)drawing->canvas->chart_count);
    write_picture(drawing);
    shd_drawing_ticks(drawing);
    shd_drawing_labels(drawing);
    shd_chart_steps(drawing->canvas);
    shd_text_add(out, "</div>\n");
    shd_drawing_notes(drawing);
    shd_drawing_table(drawing);
    shd_text_add(out, "</figure>\n");
}

sherd_status shd_chart_write(shd_canvas *canvas, const shd_chart *chart) {
    if (!shd_chart_applies(canvas->history, chart)) return SHERD_OK;
    shd_drawing drawing = {.chart = chart, .canvas = canvas, .factor = 1, .unit = ""};
    sherd_status status = make_traces(&drawing);
    if (status == SHERD_OK) {
        choose_scale(&drawing);
        write_figure(&drawing);
        shd_drawing_data(&drawing);
        canvas->chart_count++;
    }
    for (int32_t i = 0; i < SHD_CHART_LINES; i++) shd_trace_release(&drawing.traces[i]);
    return status;
}

/* --- the common axis ---------------------------------------------------------------------------------------------- */

void shd_chart_guides(const shd_canvas *canvas) {
    if (canvas->guide_count == 0) return;
    shd_text_add(canvas->html, "<path class=\"guide\" d=\"");
    for (int32_t i = 0; i < canvas->guide_count; i++)
        shd_text_add(canvas->html, "M%.1f 0v%d", shd_plot_x(canvas->history, canvas->guides[i]), SHD_PLOT_UNITS);
    shd_text_add(canvas->html, "\"/>\n");
}

void shd_chart_steps(const shd_canvas *canvas) {
    const shd_history *history = canvas->history;
    double ticks[SHD_TICKS], first = (double)history->first_step, last = (double)history->last_step;
    shd_scale scale = {.low = first, .high = last > first ? last : first + 1};
    int32_t count = last > first ? shd_scale_ticks(&scale, 8, ticks) : 1;
    if (last <= first) ticks[0] = first;
    for (int32_t i = 0; i < count; i++) {
        char step[SHD_NUMBER_BYTES], span[SHD_NUMBER_BYTES];
        if (ticks[i] != floor(ticks[i])) continue;
        shd_count_text((int64_t)ticks[i], step);
        shd_text_add(canvas->html, "<span class=\"x%s\" style=\"left:%.2f%%\">%s", i % 2 ? " spare" : "",
                     shd_plot_x(history, ticks[i]) / SHD_PLOT_UNITS * 100, step);
        if (canvas->elapsed_ms) {
            int32_t column = shd_history_column(history, (int64_t)ticks[i]);
            shd_span_text(canvas->elapsed_ms[column] / 1e3, span);
            shd_text_add(canvas->html, "<small>%s</small>", span);
        }
        shd_text_add(canvas->html, "</span>\n");
    }
}
