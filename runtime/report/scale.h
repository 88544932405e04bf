/* From values to places: the vertical axis of a chart, and its ticks. Pure. */
#ifndef SHD_REPORT_SCALE_H
#define SHD_REPORT_SCALE_H

#include <stdbool.h>
#include <stdint.h>

enum { SHD_TICKS = 12 };

typedef struct shd_scale {
    double low, high; /* low < high; of a logarithmic one both are > 0 */
    bool logarithmic;
    bool clipped; /* there are values above `high` */
} shd_scale;

/* An axis for values from `low` to `high`, finite, with some room at the ends; low = high is fine. A logarithmic one
 * needs low > 0. `from_zero`: for what adds up, or is an amount. */
shd_scale shd_scale_make(double low, double high, bool from_zero, bool logarithmic);

/* 0 at the low end, 1 at the high one; what lies outside is put at the nearer end. */
double shd_scale_place(const shd_scale *scale, double value);

/* Round numbers within the scale, in ascending order, about `wanted` of them; returns how many. */
int32_t shd_scale_ticks(const shd_scale *scale, int32_t wanted, double ticks[SHD_TICKS]);

#endif
