/* The charts of the page: what each shows, and its markup. All have the same horizontal axis. */
#ifndef SHD_REPORT_CHART_H
#define SHD_REPORT_CHART_H

#include "io/text.h"
#include "runtime/report/history.h"

#include <stdbool.h>

enum { SHD_CHART_LINES = 8, SHD_CHART_GUIDES = 64 };

typedef enum shd_chart_kind {
    SHD_CHART_CURVES, /* lines side by side */
    SHD_CHART_STACK,  /* amounts that add up, and their sum's greatest */
    SHD_CHART_SPREAD  /* lines[0] with a band from lines[1] to lines[2] */
} shd_chart_kind;

typedef enum shd_quantity { SHD_PLAIN, SHD_MILLISECONDS, SHD_BYTES, SHD_SHARE } shd_quantity;

typedef struct shd_chart_line {
    const char *field; /* NULL ends the list */
    const char *label;
    int32_t colour;
} shd_chart_line;

typedef struct shd_chart {
    const char *id, *title;
    const char *unit; /* after the title, and after the unit of a quantity that has one: then with a space or comma */
    shd_chart_kind kind;
    shd_quantity quantity;
    bool from_zero;
    bool may_be_log; /* a logarithmic axis where values differ much */
    bool clips;      /* rare values far above all others may lie beyond the axis: they are marked, and told */
    bool skips_zero; /* not drawn where all is zero */
    bool small;      /* half as high */
    shd_chart_line lines[SHD_CHART_LINES];
    const char *total; /* of a stack: the field that is the sum */
    const char *reference_label;
    double reference; /* a line across, 0: none */
} shd_chart;

/* Where charts go. */
typedef struct shd_canvas {
    const shd_history *history;
    shd_text *html;
    shd_text *data; /* JSON objects, separated by commas, for the page's script */
    int32_t chart_count;
    int32_t guide_count; /* steps at which something happened: lines through all charts */
    double guides[SHD_CHART_GUIDES];
    const double *elapsed_ms; /* of training, until each column begins; NULL: not known */
} shd_canvas;

/* Writes a chart; nothing where the rows have none of its fields. Fails: MEMORY. */
sherd_status shd_chart_write(shd_canvas *canvas, const shd_chart *chart);

/* Whether the rows have one of its fields. */
bool shd_chart_applies(const shd_history *history, const shd_chart *chart);

/* The labels below a plot, and the lines of `guides` within it, as all charts have them. */
void shd_chart_steps(const shd_canvas *canvas);
void shd_chart_guides(const shd_canvas *canvas);

#endif
