#include "runtime/train/outliers.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

/* σ ÷ MAD of normal numbers, and the least share of the median that counts as σ. */
static const double SIGMAS_PER_MAD = 1.4826, LEAST_SHARE = 0.01;

void shd_outlier_window_add(shd_outlier_window *window, double value) {
    assert(window->size >= 1 && window->size <= SHD_OUTLIER_WINDOW_MAX);
    window->values[window->next] = value;
    window->next = (window->next + 1) % window->size;
    if (window->count < window->size) window->count++;
}

double shd_outlier_window_at(const shd_outlier_window *window, int32_t index) {
    int32_t oldest = window->count < window->size ? 0 : window->next;
    return window->values[(oldest + index) % window->size];
}

static int compare(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* Sorts them. */
static double find_median(double *values, int32_t count) {
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[(count - 1) / 2] / 2 + values[count / 2] / 2;
}

double shd_outlier_window_score(const shd_outlier_window *window, double value) {
    double sorted[SHD_OUTLIER_WINDOW_MAX];
    int32_t count = window->count;
    if (count < window->size) return 0;
    for (int32_t i = 0; i < count; i++) sorted[i] = window->values[i];
    double median = find_median(sorted, count);
    for (int32_t i = 0; i < count; i++) sorted[i] = fabs(sorted[i] - median);
    double scale = fmax(SIGMAS_PER_MAD * find_median(sorted, count), LEAST_SHARE * fabs(median));
    return (value - median) / fmax(scale, DBL_MIN);
}
