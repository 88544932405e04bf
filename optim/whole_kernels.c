/* Compiled once for each instruction set, as update_kernels.c is. */
#include "optim/whole_kernels.h"

#include "optim/square_lanes.h"

#include <math.h>

#define PASTE_(a, b) a##b
#define PASTE(a, b)  PASTE_(a, b)

static inline float follow_one(const shd_momentum_constants *c, float gradient, float *buffer) {
    *buffer = c->momentum * *buffer + c->momentum_rest * gradient;
    return *buffer;
}

static void follow(const shd_momentum_constants *constants, float *restrict values, float *restrict buffer,
                   int64_t count) {
    const shd_momentum_constants c = *constants;
    for (int64_t i = 0; i < count; i++) values[i] = follow_one(&c, c.gradient_scale * values[i], &buffer[i]);
}

static void follow_nesterov(const shd_momentum_constants *constants, float *restrict values, float *restrict buffer,
                            int64_t count) {
    const shd_momentum_constants c = *constants;
    for (int64_t i = 0; i < count; i++) {
        float gradient = c.gradient_scale * values[i];
        values[i] = c.momentum * follow_one(&c, gradient, &buffer[i]) + c.momentum_rest * gradient;
    }
}

static void scale(float factor, const float *values, float *out, int64_t count) {
    for (int64_t i = 0; i < count; i++) out[i] = factor * values[i];
}

static void combine(float linear, float square, float *restrict gram, const float *restrict squared, int64_t count) {
    for (int64_t i = 0; i < count; i++) gram[i] = linear * gram[i] + square * squared[i];
}

static double square_sum(const float *values, int64_t count) {
    double lanes[SQUARE_LANES] = {0};
    square_lanes_add(values, count / SQUARE_LANES, lanes);
    for (int64_t i = count / SQUARE_LANES * SQUARE_LANES; i < count; i++)
        lanes[i % SQUARE_LANES] += (double)values[i] * (double)values[i];
    return square_lanes_fold(lanes);
}

static void column_square_sums(const float *restrict values, int64_t rows, int64_t stride, int64_t columns,
                               double *restrict sums) {
    for (int64_t row = 0; row < rows; row++, values += stride)
        for (int64_t column = 0; column < columns; column++) {
            double value = values[column];
            sums[column] += value * value;
        }
}

/* A NaN stays. */
static inline float at_least(float floor, float value) { return value < floor ? floor : value; }

static void precondition(float row, const float *restrict columns, float floor, float *restrict values, int64_t count) {
    for (int64_t i = 0; i < count; i++) values[i] = values[i] / sqrtf(at_least(floor, row * columns[i]));
}

static void precondition_elements(float weight, float floor, float *restrict variances, float *restrict values,
                                  int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        float variance = variances[i] + weight * (values[i] * values[i] - variances[i]);
        variances[i] = variance;
        values[i] = values[i] / sqrtf(at_least(floor, variance));
    }
}

static void take(float keep, float *restrict parameters, const float *restrict steps, int64_t count) {
    for (int64_t i = 0; i < count; i++) parameters[i] = keep * parameters[i] - steps[i];
}

extern const shd_whole_kernels PASTE(shd_whole_kernels_, SHD_ISA);
const shd_whole_kernels PASTE(shd_whole_kernels_, SHD_ISA) = {
    .follow = follow,
    .follow_nesterov = follow_nesterov,
    .scale = scale,
    .combine = combine,
    .square_sum = square_sum,
    .column_square_sums = column_square_sums,
    .precondition = precondition,
    .precondition_elements = precondition_elements,
    .take = take,
};
