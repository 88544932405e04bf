/* The inner loops of optimizers that need whole tensors, compiled once for each instruction set, like those of
 * update_kernels.h: all sets give the same bits. Sums run over 16 lanes of doubles, folded in lane order. */
#ifndef SHD_OPTIM_WHOLE_KERNELS_H
#define SHD_OPTIM_WHOLE_KERNELS_H

#include "optim/update_kernels.h"

#include <stdint.h>

/* Muon's momentum, rounded once from double. */
typedef struct shd_momentum_constants {
    float gradient_scale;
    float momentum, momentum_rest; /* momentum and 1 − momentum */
} shd_momentum_constants;

typedef struct shd_whole_kernels {
    /* buffer = momentum·buffer + (1 − momentum)·g, g being the scaled value; values = buffer, or for Nesterov
     * momentum·buffer + (1 − momentum)·g. */
    void (*follow)(const shd_momentum_constants *constants, float *values, float *buffer, int64_t count);
    void (*follow_nesterov)(const shd_momentum_constants *constants, float *values, float *buffer, int64_t count);
    /* out = factor·values; out may be values. */
    void (*scale)(float factor, const float *values, float *out, int64_t count);
    /* gram = linear·gram + square·squared */
    void (*combine)(float linear, float square, float *gram, const float *squared, int64_t count);
    /* Σ values² */
    double (*square_sum)(const float *values, int64_t count);
    /* sums[j] += Σ_i values[i·stride + j]², rows in order */
    void (*column_square_sums)(const float *values, int64_t rows, int64_t stride, int64_t columns, double *sums);
    /* values /= √max(row·columns[j], floor) */
    void (*precondition)(float row, const float *columns, float floor, float *values, int64_t count);
    /* variances += weight·(values² − variances); values /= √max(variances, floor) */
    void (*precondition_elements)(float weight, float floor, float *variances, float *values, int64_t count);
    /* parameters = keep·parameters − steps */
    void (*take)(float keep, float *parameters, const float *steps, int64_t count);
} shd_whole_kernels;

/* The fastest set that this CPU runs. */
const shd_whole_kernels *shd_whole_kernels_best(void);
/* Lists all that it runs, slowest first; returns how many, at least 1. */
int32_t shd_whole_kernels_list(const shd_whole_kernels *list[SHD_OPTIM_KERNELS_MAX]);

#endif
