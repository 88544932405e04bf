/* Compiled once for each instruction set: SHD_ISA names it. The loops are plain C that the compiler vectorises;
 * -fno-math-errno lets it use the vector square root, which rounds as the scalar one does. */
#include "optim/update_kernels.h"

#include <math.h>

#define PASTE_(a, b) a##b
#define PASTE(a, b)  PASTE_(a, b)
#define TEXT_(a)     #a
#define TEXT(a)      TEXT_(a)

static void update_adamw(const shd_update_constants *constants, float *restrict parameters,
                         const float *restrict gradients, float *restrict first_moments, float *restrict second_moments,
                         int64_t count) {
    const shd_update_constants c = *constants;
    for (int64_t i = 0; i < count; i++) {
        float gradient = c.gradient_scale * gradients[i];
        float first = c.beta1 * first_moments[i] + c.beta1_rest * gradient;
        float second = c.beta2 * second_moments[i] + c.beta2_rest * (gradient * gradient);
        first_moments[i] = first;
        second_moments[i] = second;
        parameters[i] = c.keep * parameters[i] - c.step_size * (first / (c.root_factor * sqrtf(second) + c.eps));
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

/* The first step needs no case of its own: the buffer is zero then. */
static void update_sgd_momentum(const shd_update_constants *constants, float *restrict parameters,
                                const float *restrict gradients, float *restrict buffer, float *unused, int64_t count) {
    (void)unused;
    const shd_update_constants c = *constants;
    for (int64_t i = 0; i < count; i++) {
        float gradient = c.gradient_scale * gradients[i] + c.weight_decay * parameters[i];
        float velocity = c.momentum * buffer[i] + gradient;
        buffer[i] = velocity;
        parameters[i] = parameters[i] - c.lr * velocity;
    }
}

static void sum_squares(const float *restrict values, int64_t block_count, double *restrict partials) {
    enum { LANES = 16 };
    for (int64_t block = 0; block < block_count; block++, values += SHD_OPTIM_BLOCK_COUNT) {
        double lanes[LANES] = {0};
        for (int row = 0; row < SHD_OPTIM_BLOCK_COUNT; row += LANES)
            for (int lane = 0; lane < LANES; lane++) {
                double value = values[row + lane];
                lanes[lane] += value * value;
            }
        double sum = lanes[0];
        for (int lane = 1; lane < LANES; lane++) sum += lanes[lane];
        partials[block] = sum;
    }
}

extern const shd_optim_kernels PASTE(shd_optim_kernels_, SHD_ISA);
const shd_optim_kernels PASTE(shd_optim_kernels_, SHD_ISA) = {
    .name = TEXT(SHD_ISA),
    .adamw = update_adamw,
    .lion = update_lion,
    .sgd = update_sgd,
    .sgd_momentum = update_sgd_momentum,
    .square_sums = sum_squares,
};
