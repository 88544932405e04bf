/* The fields of metrics.jsonl over a run, reduced while they are read: memory does not grow with the number of rows.
 *
 * All curves share one grid of columns, each `width` steps wide. A column keeps the least, the greatest and the sum of its
 * values, so no spike is lost by reducing. When a step lies beyond the grid, neighbouring columns are put together and
 * `width` doubles. shd_history_reduce then goes down to the number of columns that a picture has; the result is what
 * grouping the rows by (step - first_step) div width gives. */
#ifndef SHD_REPORT_HISTORY_H
#define SHD_REPORT_HISTORY_H

#include <sherd/status.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    SHD_HISTORY_COLUMNS = 8192, /* of the grid while reading */
    SHD_HISTORY_CURVES = 96,
    SHD_HISTORY_NAME_BYTES = 64
};
/* Steps beyond are no steps: a double holds every whole number up to here. */
#define SHD_HISTORY_LAST_STEP ((int64_t)1 << 53)

typedef struct shd_column {
    double low, high, sum; /* of the finite values; 0 while there are none */
    int64_t count;         /* of finite values */
    int64_t odd_count;     /* of those that are not finite */
} shd_column;

typedef struct shd_curve {
    char name[SHD_HISTORY_NAME_BYTES];
    shd_column *columns; /* column_count of the history are in use */
    shd_column all;      /* over the whole run */
    double last;         /* the last finite value, at last_step */
    int64_t last_step, low_step, high_step;
    int64_t first_odd_step; /* -1: all are finite */
} shd_curve;

/* All zero is the empty history. */
typedef struct shd_history {
    int64_t row_count;
    int64_t first_step, last_step; /* while row_count > 0 */
    int64_t width;                 /* steps in a column; the last column may have fewer */
    int32_t column_count;
    int32_t curve_count;
    int64_t left_out_count; /* values of fields beyond SHD_HISTORY_CURVES, or with longer names */
    int32_t hint;           /* fields of rows come in the same order again and again */
    shd_curve curves[SHD_HISTORY_CURVES];
} shd_history;

/* Begins the row of a step. Fails: DATA (steps must grow, from 0 to SHD_HISTORY_LAST_STEP). */
sherd_status shd_history_row(shd_history *history, int64_t step);
/* A value of the row that has begun, finite or not. Fails: MEMORY. */
sherd_status shd_history_value(shd_history *history, const char *name, double value);
/* Puts columns together until there are at most `most` > 0. No rows are to follow. */
void shd_history_reduce(shd_history *history, int32_t most);
/* Accepts one that is all zero. */
void shd_history_release(shd_history *history);

/* NULL: no row has this field. */
const shd_curve *shd_history_find(const shd_history *history, const char *name);
/* The column of a step, the nearest one for steps outside. There is one. */
int32_t shd_history_column(const shd_history *history, int64_t step);
/* The middle of the steps that a column holds. */
double shd_history_middle(const shd_history *history, int32_t column);

/* Adds the values of one column to another. */
void shd_column_merge(shd_column *into, const shd_column *from);
/* The mean of the finite values, of which there is one. */
static inline double shd_column_mean(const shd_column *column) { return column->sum / (double)column->count; }

#endif
