/* The inner loops of the optimizers, compiled once for each instruction set.
 *
 * Every loop does the same correctly rounded operations in the same order whatever the vector width, so all sets give
 * the same bits; the choice is one of speed only. */
#ifndef SHD_OPTIM_UPDATE_KERNELS_H
#define SHD_OPTIM_UPDATE_KERNELS_H

#include "optim/codebook.h"

#include <sherd/dtype.h>
#include <sherd/options.h>
#include <stdint.h>

struct shd_update;

/* What is the same for all elements of a span, rounded once from double. */
typedef struct shd_update_constants {
    float gradient_scale;
    float lr;
    float keep;                                 /* AdamW, Lion: 1 − lr·weight_decay, or 1 */
    float weight_decay;                         /* Adam, SGD: added to the gradient, or 0 */
    float momentum;                             /* SGD */
    float beta1, beta1_rest, beta2, beta2_rest; /* β and 1 − β */
    float step_size;                            /* AdamW, Adam: lr / (1 − β₁ᵗ) */
    float root_factor;                          /* AdamW, Adam: 1 / √(1 − β₂ᵗ) */
    float eps;
} shd_update_constants;

/* Of a step of an optimizer other than Adafactor. */
shd_update_constants shd_update_constants_make(const sherd_optimizer *optimizer, const struct shd_update *update);

/* Updates `count` elements; nothing overlaps. An optimizer without a state gets NULL for it. */
typedef void (*shd_update_fn)(const shd_update_constants *constants, float *parameters, const float *gradients,
                              float *state0, float *state1, int64_t count);

/* to[i] = from[i], rounded to a 16-bit type. */
typedef void (*shd_round_fn)(const float *from, uint16_t *to, int64_t count);

typedef struct shd_optim_kernels {
    const char *name; /* of the instruction set */
    shd_update_fn adamw, adam, lion, sgd, sgd_momentum, sgd_nesterov;
    /* partials[b] = Σ of the squares of block b's 256 values: 16 lanes, folded in lane order. */
    void (*square_sums)(const float *values, int64_t block_count, double *partials);
    shd_round_fn round_bf16, round_fp16;
    /* From values to codes and back; `values`: [block_count × 256]. */
    void (*quantize)(const shd_codebook *codebook, const float *values, int64_t block_count, shd_code_block *blocks);
    void (*dequantize)(const shd_codebook *codebook, const shd_code_block *blocks, int64_t block_count, float *values);
} shd_optim_kernels;

enum { SHD_OPTIM_KERNELS_MAX = 3, SHD_OPTIM_BLOCK_COUNT = 256 };

/* Lists the sets that this CPU runs, slowest first; returns how many, at least 1. */
int32_t shd_optim_kernels_list(const shd_optim_kernels *list[SHD_OPTIM_KERNELS_MAX]);
/* The last of them. */
const shd_optim_kernels *shd_optim_kernels_best(void);

/* The set's rounding to `dtype`, BF16 or FP16. */
static inline shd_round_fn shd_optim_round(const shd_optim_kernels *kernels, sherd_dtype dtype) {
    return dtype == SHERD_BF16 ? kernels->round_bf16 : kernels->round_fp16;
}

#endif
