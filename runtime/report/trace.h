/* What a chart draws of one curve: a line, and a band around it, by columns. Here values become SVG paths.
 *
 * Paths are in a square of SHD_PLOT_UNITS, y downwards, which the page stretches to the plot's size. */
#ifndef SHD_REPORT_TRACE_H
#define SHD_REPORT_TRACE_H

#include "io/text.h"
#include "runtime/report/history.h"
#include "runtime/report/scale.h"

#include <stdbool.h>

#define SHD_PLOT_UNITS 1000

/* One number a column, NaN where there is none. */
typedef struct shd_trace {
    const char *label;
    int32_t colour; /* class c1, c2, … of the page's style */
    int32_t count;
    double *low, *line, *high; /* the band is drawn where low < high; of a part of a stack `line` is NaN */
    double *value;             /* what a reader is told: `line`, but of a part of a stack its own amount */
    bool sparse;               /* a value every now and then: joined across empty columns */
    bool dotted;               /* so few that each gets a dot */
    bool part;                 /* of a stack */
    double last;               /* where its label stands */
} shd_trace;

/* Fails: MEMORY. */
sherd_status shd_trace_make(const shd_history *history, const char *label, int32_t colour, shd_trace *out);
/* Accepts one that is all zero. */
void shd_trace_release(shd_trace *trace);

/* The values of a curve: the line is their mean, the band from the least to the greatest. */
void shd_trace_take(shd_trace *trace, const shd_history *history, const shd_curve *curve);
/* A line with a band from the least of `low` to the greatest of `high`; those may be NULL. */
void shd_trace_spread(shd_trace *trace, const shd_history *history, const shd_curve *low, const shd_curve *middle,
                      const shd_curve *high);
/* The mean amounts of a curve on top of `below`, which may be NULL. */
void shd_trace_stack(shd_trace *trace, const shd_history *history, const shd_curve *curve, const shd_trace *below);

/* The least and the greatest of everything that is drawn; false: nothing is. */
bool shd_trace_range(const shd_trace *trace, double *low, double *high);

/* From 0 to SHD_PLOT_UNITS. */
double shd_plot_x(const shd_history *history, double step);
double shd_plot_y(const shd_scale *scale, double value);

/* The contents of a path's d: empty when there is nothing to draw. */
void shd_trace_line_path(shd_text *out, const shd_trace *trace, const shd_history *history, const shd_scale *scale);
void shd_trace_band_path(shd_text *out, const shd_trace *trace, const shd_history *history, const shd_scale *scale);
/* A dot for each value of a sparse trace: lines without length, which round ends make visible. */
void shd_trace_dot_path(shd_text *out, const shd_trace *trace, const shd_history *history, const shd_scale *scale);

#endif
