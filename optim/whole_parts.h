/* What the files of whole.h share. */
#ifndef SHD_OPTIM_WHOLE_PARTS_H
#define SHD_OPTIM_WHOLE_PARTS_H

#include "optim/whole.h"

int64_t shd_tensor_elements(const sherd_tensor *tensor);

/* The larger one, but a NaN stays: states and gradients that are none must not pass for sound. */
static inline double shd_whole_at_least(double floor, double value) { return value < floor ? floor : value; }

/* out = factor·values; out may be values. */
void shd_whole_scale(shd_pool *pool, float factor, const float *values, float *out, int64_t count);

int64_t shd_muon_work_bytes(const sherd_tensor *tensor);
void shd_muon_make_step(const sherd_optimizer *optimizer, shd_pool *pool, const shd_whole_step *step);

int64_t shd_adafactor_work_bytes(const sherd_tensor *tensor);
void shd_adafactor_make_step(const sherd_optimizer *optimizer, shd_pool *pool, const shd_whole_step *step);

/* The two last dimensions of a tensor, and how many such matrices it holds. */
typedef struct shd_matrices {
    int64_t count, rows, columns;
} shd_matrices;
static inline shd_matrices shd_tensor_matrices(const sherd_tensor *tensor) {
    shd_matrices matrices = {
        .count = 1, .rows = tensor->shape[tensor->dim_count - 2], .columns = tensor->shape[tensor->dim_count - 1]};
    for (int32_t i = 0; i < tensor->dim_count - 2; i++) matrices.count *= tensor->shape[i];
    return matrices;
}

#endif
