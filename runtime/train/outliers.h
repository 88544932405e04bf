/* Losses and gradient norms that stand out from the steps before: a robust z-score over a window.
 *
 * z = (x − median) ÷ max(1.4826 · MAD, 0.01 · |median|) over the last steps that were not left out, MAD being the median of
 * the distances from the median, which of normal numbers is σ ÷ 1.4826. Neither moves with a few outliers in the window.
 * The second bound keeps a run whose numbers hardly move from being judged by their noise. Only what is high stands out.
 * Pure: every rank that sees the same numbers comes to the same scores.
 * Source: Iglewicz and Hoaglin, "How to detect and handle outliers", 1993. */
#ifndef SHD_TRAIN_OUTLIERS_H
#define SHD_TRAIN_OUTLIERS_H

#include <stdbool.h>
#include <stdint.h>

enum { SHD_OUTLIER_WINDOW_MAX = 1000 };

/* The values of the last steps; all zero but for the size is the start. */
typedef struct shd_outlier_window {
    int32_t size;  /* 1 to SHD_OUTLIER_WINDOW_MAX */
    int32_t count; /* values so far, at most `size` */
    int32_t next;  /* where the next one goes */
    double values[SHD_OUTLIER_WINDOW_MAX];
} shd_outlier_window;

/* Takes a value in, in the place of the oldest once the window is full. */
void shd_outlier_window_add(shd_outlier_window *window, double value);
/* The value `index` steps after the oldest one. */
double shd_outlier_window_at(const shd_outlier_window *window, int32_t index);
/* How far `value` stands out; 0 while the window is not full. All values finite. */
double shd_outlier_window_score(const shd_outlier_window *window, double value);

#endif
