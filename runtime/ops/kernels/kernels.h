/* Kernels: what one thread does to a row or a span. The files beside this one are compiled once per instruction set and
 * type of what is stored, into one table each; shd_kernels_get picks the widest set this processor has, by its feature
 * flags.
 *
 * - `void *` are elements of the table's type. They are widened when they are loaded and rounded when they are stored;
 *   everything between is float, whatever the type, as is what `float *` points to. Infinities and NaN pass.
 * - Elementwise kernels give each element the same bits wherever it stands in a span, so that spans may be cut
 *   anywhere.
 * - Sums run over 16 lanes whose layout depends on the length alone.
 * - Tables of different instruction sets may differ in the last bits (FMA or not).
 * Threads: pure functions over the caller's memory. Outputs may be the very input only where "in place" is said. */
#ifndef SHD_OPS_KERNELS_KERNELS_H
#define SHD_OPS_KERNELS_KERNELS_H

#include <sherd/dtype.h>
#include <stdint.h>

/* One row of a dropout mask; the fields are those of ops/dropout.h. */
typedef struct shd_mask_row {
    uint64_t key, sequence;
    uint32_t row, drop;
    float scale;
} shd_mask_row;

typedef struct shd_kernels {
    const char *name;

    /* Elementwise, in place. y = x + z. */
    void (*add)(int64_t count, const void *x, const void *z, void *y);
    /* sum += x. */
    void (*accumulate)(int64_t count, const void *x, float *sum);
    /* y = x, in float. */
    void (*widen)(int64_t count, const void *x, float *y);
    /* y = factor · x. y may begin where x does. */
    void (*scale)(int64_t count, float factor, const float *x, void *y);
    void (*gelu)(int64_t count, const void *x, void *y);
    void (*gelu_backward)(int64_t count, const void *x, const void *dy, void *dx);
    void (*relu)(int64_t count, const void *x, void *y);
    void (*relu_backward)(int64_t count, const void *y, const void *dy, void *dx);
    void (*swiglu)(int64_t count, const void *gate, const void *up, void *y);
    /* dgate and dup may be any of the inputs, but not one memory. */
    void (*swiglu_backward)(int64_t count, const void *gate, const void *up, const void *dy, void *dgate, void *dup);

    /* One row of a norm; mean and rstd are scalars of the row. In place only: dx on residual. */
    void (*layernorm)(int64_t columns, float eps, const void *x, const void *weight, const void *bias, void *y,
                      float *mean, float *rstd);
    void (*layernorm_backward)(int64_t columns, const void *x, const void *weight, float mean, float rstd,
                               const void *dy, const void *residual, void *dx);
    void (*rmsnorm)(int64_t columns, float eps, const void *x, const void *weight, void *y, float *rstd);
    void (*rmsnorm_backward)(int64_t columns, const void *x, const void *weight, float rstd, const void *dy,
                             const void *residual, void *dx);

    /* Sums over rows, in order, of `width` ≤ SHD_SLAB neighbouring columns of a matrix with `stride` elements a row.
     * sum[j] = Σ_i x[i,j]. */
    void (*column_sum)(int64_t rows, int64_t width, int64_t stride, const void *x, float *sum);
    /* dweight[j] = Σ_i dy[i,j]·(x[i,j] - mean[i])·rstd[i], dbias[j] = Σ_i dy[i,j]. mean may be NULL (zero), and either
     * output. */
    void (*norm_weight_backward)(int64_t rows, int64_t width, int64_t stride, const void *x, const float *mean,
                                 const float *rstd, const void *dy, float *dweight, float *dbias);

    /* Turns one head in place: (x[j], x[j+half]) by the angle with cosine cosines[j] and sine sign·sines[j]. */
    void (*rope)(int64_t half, const float *cosines, const float *sines, float sign, void *x);

    /* The largest of count ≥ 1 numbers (NaN may be passed over). */
    float (*max)(int64_t count, const float *x);
    /* y = exp(x - shift), in place, for x ≤ shift; returns Σ y. */
    double (*exp_sum)(int64_t count, const float *x, float shift, float *y);
    float (*dot)(int64_t count, const void *x, const void *z);
    /* One row of attention's backward, in place: p = exp(score - log_sum), ds = p·(dp - mean)·scale. */
    void (*softmax_backward)(int64_t count, float log_sum, float mean, float scale, float *score_to_p, float *dp_to_ds);

    /* y = mask·x (+ residual, when it is not NULL), in place; column 0 of the mask is the first. */
    void (*dropout)(const shd_mask_row *mask, int64_t count, const void *x, const void *residual, void *y);
    /* x = mask·x from column `first` of the mask on. */
    void (*drop)(const shd_mask_row *mask, int64_t first, int64_t count, float *x);
    /* softmax_backward where forward has dropped probabilities, from column `first` of the mask on: p = mask·exp(score -
     * log_sum), ds = exp(score - log_sum)·(mask·dp - mean)·scale. */
    void (*softmax_dropout_backward)(const shd_mask_row *mask, int64_t first, int64_t count, float log_sum, float mean,
                                     float scale, float *score_to_p, float *dp_to_ds);
} shd_kernels;

/* The widest slab of columns that the sums over rows take at once. */
enum { SHD_SLAB = 128 };

/* Owns: a constant. Threads: any. */
const shd_kernels *shd_kernels_get(sherd_dtype dtype);

#endif
