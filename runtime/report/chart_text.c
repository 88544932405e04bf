/* The words around a chart. */
#include "runtime/report/chart_parts.h"
#include "runtime/report/markup.h"

#include <math.h>
#include <string.h>

/* Heights of plots in the style, and of a line of text, in pixels. */
enum { PLOT_PIXELS = 200, SMALL_PIXELS = 110, LINE_PIXELS = 15 };

/* The value in the axis's unit: numbers of one chart are told in one unit. */
static void add_value(const shd_drawing *drawing, double value) {
    char text[SHD_NUMBER_BYTES];
    shd_number_text(value * drawing->factor, text);
    shd_text_add(drawing->canvas->html, "%s", text);
}

/* With its unit; of times the one that fits it, as it may be far beyond the scale. */
static void add_amount(const shd_drawing *drawing, double value) {
    if (drawing->chart->quantity == SHD_MILLISECONDS && drawing->factor == 1 && value >= 1e4) {
        char text[SHD_NUMBER_BYTES];
        shd_number_text(value / 1e3, text);
        shd_text_add(drawing->canvas->html, "%s s", text);
        return;
    }
    add_value(drawing, value);
    shd_text_add(drawing->canvas->html, "%s%s", *drawing->unit ? " " : "", drawing->unit);
}

static void add_step(const shd_drawing *drawing, int64_t step) {
    char text[SHD_NUMBER_BYTES];
    shd_count_text(step, text);
    shd_text_add(drawing->canvas->html, "%s", text);
}

void shd_drawing_describe(const shd_drawing *drawing) {
    shd_text *out = drawing->canvas->html;
    for (int32_t i = 0; i < drawing->count; i++) {
        const shd_curve *curve = drawing->curves[i];
        shd_markup_text(out, drawing->traces[i].label);
        if (curve->all.count == 0) {
            shd_text_add(out, ": no finite value. ");
            continue;
        }
        shd_text_add(out, ": least ");
        add_value(drawing, curve->all.low);
        shd_text_add(out, " at step ");
        add_step(drawing, curve->low_step);
        shd_text_add(out, ", greatest ");
        add_value(drawing, curve->all.high);
        shd_text_add(out, " at step ");
        add_step(drawing, curve->high_step);
        shd_text_add(out, ", last ");
        add_amount(drawing, curve->last);
        shd_text_add(out, ". ");
    }
}

void shd_drawing_key(const shd_drawing *drawing) {
    shd_text *out = drawing->canvas->html;
    double sum = 0;
    for (int32_t i = 0; i < drawing->count; i++) sum += drawing->curves[i]->all.sum;
    shd_text_add(out, "<ul class=\"key\">");
    for (int32_t i = 0; i < drawing->count; i++) {
        const shd_trace *trace = &drawing->traces[i];
        double share = sum > 0 ? 100 * drawing->curves[i]->all.sum / sum : 0;
        shd_text_add(out, "<li><i class=\"swatch c%d\"></i>", (int)trace->colour);
        shd_markup_text(out, trace->label);
        shd_text_add(out, share > 0 && share < 0.05 ? " <b>&lt; 0.1 %%</b></li>" : " <b>%.1f %%</b></li>", share);
    }
    shd_text_add(out, "</ul>\n");
}

void shd_drawing_ticks(const shd_drawing *drawing) {
    shd_text *out = drawing->canvas->html;
    double ticks[SHD_TICKS];
    if (drawing->is_empty) {
        shd_text_add(out, "<p class=\"nothing\">no finite value</p>\n");
        return;
    }
    int32_t count = shd_scale_ticks(&drawing->scale, drawing->chart->small ? 3 : 5, ticks);
    for (int32_t i = 0; i < count; i++) {
        char text[SHD_NUMBER_BYTES];
        shd_number_text(ticks[i], text);
        shd_text_add(out, "<span class=\"y\" style=\"bottom:%.2f%%\">%s</span>\n",
                     100 * shd_scale_place(&drawing->scale, ticks[i]), text);
    }
}

/* A label's height above the lower edge, in percent. */
typedef struct label {
    double place;
    int32_t line; /* -1: the reference */
} label;

/* Sorts by place, and moves labels apart so far that each has its line. */
static void spread_labels(label *labels, int32_t count, double gap) {
    for (int32_t i = 1; i < count; i++)
        for (int32_t k = i; k > 0 && labels[k].place < labels[k - 1].place; k--) {
            label other = labels[k];
            labels[k] = labels[k - 1];
            labels[k - 1] = other;
        }
    for (int32_t i = 1; i < count; i++) labels[i].place = fmax(labels[i].place, labels[i - 1].place + gap);
    /* What came to stand above the upper edge pushes the others down again. */
    double limit = 100;
    for (int32_t i = count; i-- > 0; limit -= gap) labels[i].place = fmin(labels[i].place, limit);
}

void shd_drawing_labels(const shd_drawing *drawing) {
    shd_text *out = drawing->canvas->html;
    label labels[SHD_CHART_LINES + 1];
    int32_t count = 0;
    if (drawing->chart->kind == SHD_CHART_STACK || drawing->is_empty) return;
    for (int32_t i = 0; i < drawing->count; i++)
        if (!isnan(drawing->traces[i].last))
            labels[count++] =
                (label){.place = 100 * shd_scale_place(&drawing->scale, drawing->traces[i].last), .line = i};
    if (drawing->has_reference) {
        double at = drawing->chart->reference * drawing->factor;
        labels[count++] = (label){.place = 100 * shd_scale_place(&drawing->scale, at), .line = -1};
    }
    spread_labels(labels, count, 100.0 * LINE_PIXELS / (drawing->chart->small ? SMALL_PIXELS : PLOT_PIXELS));
    for (int32_t i = 0; i < count; i++) {
        const shd_trace *trace = labels[i].line >= 0 ? &drawing->traces[labels[i].line] : NULL;
        char number[SHD_NUMBER_BYTES];
        shd_number_text(trace ? trace->last : drawing->chart->reference * drawing->factor, number);
        shd_text_add(out, "<span class=\"label c%d\" style=\"bottom:%.2f%%\">", trace ? (int)trace->colour : 0,
                     labels[i].place);
        shd_markup_text(out, trace ? trace->label : drawing->chart->reference_label);
        shd_text_add(out, " <b>%s</b></span>\n", number);
    }
}

static void note_odd(const shd_drawing *drawing, int32_t line) {
    shd_text *out = drawing->canvas->html;
    const shd_curve *curve = drawing->curves[line];
    if (curve->all.odd_count == 0) return;
    shd_text_add(out, "<p class=\"note\"><i class=\"mark odd\"></i> ");
    shd_markup_text(out, drawing->traces[line].label);
    shd_text_add(out, " is not finite in ");
    add_step(drawing, curve->all.odd_count);
    shd_text_add(out, curve->all.odd_count == 1 ? " step: " : " steps, first in step ");
    add_step(drawing, curve->first_odd_step);
    shd_text_add(out, "</p>\n");
}

void shd_drawing_notes(const shd_drawing *drawing) {
    shd_text *out = drawing->canvas->html;
    for (int32_t i = 0; i < drawing->count; i++) note_odd(drawing, i);
    if (drawing->beyond_count > 0) {
        shd_text_add(out, "<p class=\"note\"><i class=\"mark beyond\"></i> ");
        add_step(drawing, drawing->beyond_count);
        shd_text_add(out, " column%s beyond the scale, up to ", drawing->beyond_count == 1 ? " reaches" : "s reach");
        add_amount(drawing, drawing->greatest);
        shd_text_add(out, "</p>\n");
    }
    const shd_curve *total = drawing->total;
    if (total && total->all.count > 0 && drawing->canvas->history->width > 1) {
        shd_text_add(out, "<p class=\"note\">The slowest step was ");
        add_step(drawing, total->high_step);
        shd_text_add(out, ", with ");
        add_amount(drawing, total->all.high);
        shd_text_add(out, "</p>\n");
    }
}
