/* Compiled once for each instruction set: SHD_ISA names it. The loops are plain C that the compiler vectorises;
 * -fno-math-errno lets it use the vector square root, which rounds as the scalar one does. */
#include "optim/update_kernels.h"

#include "optim/codebook_kernels.h"
#include "optim/square_lanes.h"
#include "runtime/base/dtype.h"

#include <math.h>

#define PASTE_(a, b) a##b
#define PASTE(a, b)  PASTE_(a, b)
#define TEXT_(a)     #a
#define TEXT(a)      TEXT_(a)

/* Moves one element's moments along `gradient`; returns what its parameter loses. */
static inline float adam_step(const shd_update_constants *c, float gradient, float *first_moment,
                              float *second_moment) {
    float first = c->beta1 * *first_moment + c->beta1_rest * gradient;
    float second = c->beta2 * *second_moment + c->beta2_rest * (gradient * gradient);
    *first_moment = first;
    *second_moment = second;
    return c->step_size * (first / (c->root_factor * sqrtf(second) + c->eps));
}

static void update_adamw(const shd_update_constants *constants, float *restrict parameters,
                         const float *restrict gradients, float *restrict first_moments, float *restrict second_moments,
                         int64_t count) {
    const shd_update_constants c = *constants;
    for (int64_t i = 0; i < count; i++) {
        float step = adam_step(&c, c.gradient_scale * gradients[i], &first_moments[i], &second_moments[i]);
        parameters[i] = c.keep * parameters[i] - step;
    }
}

static void update_adam(const shd_update_constants *constants, float *restrict parameters,
                        const float *restrict gradients, float *restrict first_moments, float *restrict second_moments,
                        int64_t count) {
    const shd_update_constants c = *constants;
    for (int64_t i = 0; i < count; i++) {
        float gradient = c.gradient_scale * gradients[i] + c.weight_decay * parameters[i];
        parameters[i] = parameters[i] - adam_step(&c, gradient, &first_moments[i], &second_moments[i]);
    }
}

static void update_lion(const shd_update_constants *constants, float *restrict parameters,
                        const float *restrict gradients, float *restrict moments, float *unused, int64_t count) {
    (void)unused;
    const shd_update_constants c = *constants;
    for (int64_t i = 0; i < count; i++) {
        float gradient = c.gradient_scale * gradients[i];
        float direction = c.beta1 * moments[i] + c.beta1_rest * gradient;
        float sign = (direction > 0 ? 1.0f : 0.0f) - (direction < 0 ? 1.0f : 0.0f);
        moments[i] = c.beta2 * moments[i] + c.beta2_rest * gradient;
        parameters[i] = c.keep * parameters[i] - c.lr * sign;
    }
}

static void update_sgd(const shd_update_constants *constants, float *restrict parameters,
                       const float *restrict gradients, float *unused0, float *unused1, int64_t count) {
    (void)unused0, (void)unused1;
    const shd_update_constants c = *constants;
    for (int64_t i = 0; i < count; i++) {
        float gradient = c.gradient_scale * gradients[i] + c.weight_decay * parameters[i];
        parameters[i] = parameters[i] - c.lr * gradient;
    }
}

/* Moves one element's buffer and returns its gradient, decay included. The first step needs no case of its own: the
 * buffer is zero then. */
static inline float momentum_step(const shd_update_constants *c, float gradient, float parameter, float *buffer) {
    gradient = c->gradient_scale * gradient + c->weight_decay * parameter;
    *buffer = c->momentum * *buffer + gradient;
    return gradient;
}

static void update_sgd_momentum(const shd_update_constants *constants, float *restrict parameters,
                                const float *restrict gradients, float *restrict buffer, float *unused, int64_t count) {
    (void)unused;
    const shd_update_constants c = *constants;
    for (int64_t i = 0; i < count; i++) {
        momentum_step(&c, gradients[i], parameters[i], &buffer[i]);
        parameters[i] = parameters[i] - c.lr * buffer[i];
    }
}

static void update_sgd_nesterov(const shd_update_constants *constants, float *restrict parameters,
                                const float *restrict gradients, float *restrict buffer, float *unused, int64_t count) {
    (void)unused;
    const shd_update_constants c = *constants;
    for (int64_t i = 0; i < count; i++) {
        float gradient = momentum_step(&c, gradients[i], parameters[i], &buffer[i]);
        parameters[i] = parameters[i] - c.lr * (gradient + c.momentum * buffer[i]);
    }
}

static void sum_squares(const float *restrict values, int64_t block_count, double *restrict partials) {
    for (int64_t block = 0; block < block_count; block++, values += SHD_OPTIM_BLOCK_COUNT) {
        double lanes[SQUARE_LANES] = {0};
        square_lanes_add(values, SHD_OPTIM_BLOCK_COUNT / SQUARE_LANES, lanes);
        partials[block] = square_lanes_fold(lanes);
    }
}

static void round_bf16(const float *restrict from, uint16_t *restrict to, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = shd_bf16_round(from[i]);
}

static void round_fp16(const float *restrict from, uint16_t *restrict to, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = shd_fp16_round(from[i]);
}

extern const shd_optim_kernels PASTE(shd_optim_kernels_, SHD_ISA);
const shd_optim_kernels PASTE(shd_optim_kernels_, SHD_ISA) = {
    .name = TEXT(SHD_ISA),
    .adamw = update_adamw,
    .adam = update_adam,
    .lion = update_lion,
    .sgd = update_sgd,
    .sgd_momentum = update_sgd_momentum,
    .sgd_nesterov = update_sgd_nesterov,
    .square_sums = sum_squares,
    .round_bf16 = round_bf16,
    .round_fp16 = round_fp16,
    .quantize = quantize_blocks,
    .dequantize = dequantize_blocks,
};
