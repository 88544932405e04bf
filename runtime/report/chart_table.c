/* A chart as numbers: a table for people, lists for the page's script. */
#include "runtime/report/chart_parts.h"
#include "runtime/report/markup.h"

#include <math.h>

enum { TABLE_ROWS = 20, DATA_DIGITS = 5 };

static void add_number(shd_text *out, double value) {
    char text[SHD_NUMBER_BYTES];
    shd_number_text(value, text);
    shd_text_add(out, "%s", text);
}

/* Mean, and range where it has one, of a curve in the columns from `first` to before `end`. */
static void add_cell(const shd_drawing *drawing, const shd_curve *curve, int32_t first, int32_t end) {
    shd_text *out = drawing->canvas->html;
    shd_column sum = {0};
    for (int32_t c = first; c < end; c++) shd_column_merge(&sum, &curve->columns[c]);
    shd_text_add(out, "<td>");
    if (sum.count > 0) add_number(out, shd_column_mean(&sum) * drawing->factor);
    if (sum.count > 0 && sum.low < sum.high) {
        shd_text_add(out, " <small>");
        add_number(out, sum.low * drawing->factor);
        shd_text_add(out, " to ");
        add_number(out, sum.high * drawing->factor);
        shd_text_add(out, "</small>");
    }
    if (sum.odd_count > 0) shd_text_add(out, " <em>%lld not finite</em>", (long long)sum.odd_count);
    shd_text_add(out, "</td>");
}

void shd_drawing_table(const shd_drawing *drawing) {
    const shd_history *history = drawing->canvas->history;
    shd_text *out = drawing->canvas->html;
    shd_text_add(out, "<details><summary>Numbers</summary><div class=\"wide\"><table><thead><tr>"
                      "<th scope=\"col\">steps</th>");
    for (int32_t i = 0; i < drawing->count; i++) {
        shd_text_add(out, "<th scope=\"col\">");
        shd_markup_text(out, drawing->traces[i].label);
        if (*drawing->unit) shd_text_add(out, ", %s", drawing->unit);
        shd_text_add(out, "</th>");
    }
    shd_text_add(out, "</tr></thead><tbody>\n");
    int32_t by = (history->column_count + TABLE_ROWS - 1) / TABLE_ROWS;
    for (int32_t c = 0; c < history->column_count; c += by) {
        int64_t first = history->first_step + c * history->width, last = first + by * history->width - 1;
        char text[SHD_NUMBER_BYTES];
        if (last > history->last_step) last = history->last_step;
        shd_count_text(first, text);
        shd_text_add(out, "<tr><th scope=\"row\">%s", text);
        shd_count_text(last, text);
        shd_text_add(out, last > first ? " to %s</th>" : "</th>", text);
        int32_t end = c + by < history->column_count ? c + by : history->column_count;
        for (int32_t i = 0; i < drawing->count; i++) add_cell(drawing, drawing->curves[i], c, end);
        shd_text_add(out, "</tr>\n");
    }
    shd_text_add(out, "</tbody></table></div></details>\n");
}

static void add_list(shd_text *out, const char *key, const double *values, int32_t count) {
    shd_text_add(out, ",\"%s\":[", key);
    for (int32_t c = 0; c < count; c++) {
        if (c > 0) shd_text_add(out, ",");
        if (isfinite(values[c]))
            shd_markup_number(out, values[c], DATA_DIGITS);
        else
            shd_text_add(out, "null");
    }
    shd_text_add(out, "]");
}

void shd_drawing_data(const shd_drawing *drawing) {
    shd_text *out = drawing->canvas->data;
    if (drawing->canvas->chart_count > 0) shd_text_add(out, ",\n");
    shd_text_add(out, "{\"unit\":");
    shd_markup_json(out, drawing->unit);
    shd_text_add(out, ",\"lines\":[");
    for (int32_t i = 0; i < drawing->count; i++) {
        const shd_trace *trace = &drawing->traces[i];
        bool ranged = false;
        for (int32_t c = 0; c < trace->count && !trace->part; c++) ranged = ranged || trace->low[c] < trace->high[c];
        shd_text_add(out, "%s{\"name\":", i ? ",\n" : "");
        shd_markup_json(out, trace->label);
        shd_text_add(out, ",\"colour\":%d,\"sparse\":%s", (int)trace->colour, trace->sparse ? "true" : "false");
        add_list(out, "value", trace->value, trace->count);
        if (ranged) add_list(out, "low", trace->low, trace->count);
        if (ranged) add_list(out, "high", trace->high, trace->count);
        shd_text_add(out, "}");
    }
    shd_text_add(out, "]}");
}
