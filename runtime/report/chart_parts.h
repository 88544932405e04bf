/* One chart while it is written: what chart.c decides, and chart_text.c and chart_table.c put into words. */
#ifndef SHD_REPORT_CHART_PARTS_H
#define SHD_REPORT_CHART_PARTS_H

#include "runtime/report/chart.h"
#include "runtime/report/trace.h"

enum {
    SHD_DRAWN_COLUMNS = 1000, /* at most, about the pixels that a wide plot has */
    SHD_MARK_UNITS = 45       /* the length of marks at the upper edge */
};

typedef struct shd_drawing {
    const shd_chart *chart;
    shd_canvas *canvas;
    shd_trace traces[SHD_CHART_LINES]; /* in units of the axis once the scale is chosen */
    const shd_curve *curves[SHD_CHART_LINES];
    int32_t count;
    const shd_curve *total; /* of a stack; may be NULL */
    shd_scale scale;
    double factor; /* from the field's unit to the axis's */
    const char *unit;
    bool is_empty; /* no finite value */
    bool has_reference;
    int64_t beyond_count; /* columns that reach beyond the scale */
    double greatest;      /* of all values, in the field's unit */
} shd_drawing;

/* In words, for who cannot see it. */
void shd_drawing_describe(const shd_drawing *drawing);
/* What the colours of a stack mean, and each part's share of the run. */
void shd_drawing_key(const shd_drawing *drawing);
/* The numbers beside the vertical axis. */
void shd_drawing_ticks(const shd_drawing *drawing);
/* The names of lines, at their ends. */
void shd_drawing_labels(const shd_drawing *drawing);
/* What the picture cannot show. */
void shd_drawing_notes(const shd_drawing *drawing);
/* The same as numbers, in a few rows. */
void shd_drawing_table(const shd_drawing *drawing);
/* The same for the page's script. */
void shd_drawing_data(const shd_drawing *drawing);

#endif
