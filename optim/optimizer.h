/* Optimizers over spans: one fused pass over parameters, gradients and state.
 *
 * Nothing here knows of tensors, shards or ranks: a span is any run of elements that share one learning rate and decay.
 * Elementwise, so any split of a tensor into spans gives the same bits, on any number of threads and any instruction
 * set; with states in 8 bits (codebook.h) any split at borders of their blocks. Optimizers that need whole tensors are in
 * whole.h; what Muon leaves aside is updated here, as by AdamW.
 *
 * Formulas, in float32 per element with factors computed in double once a step; t = step + 1, g the gradient times
 * gradient_scale:
 * AdamW  m = β₁m + (1−β₁)g, v = β₂v + (1−β₂)g², p = (1 − lr·wd)p − lr/(1−β₁ᵗ) · m / (√v/√(1−β₂ᵗ) + ε)
 *        (Loshchilov, Hutter: "Decoupled weight decay regularization", ICLR 2019; ε outside the root as in PyTorch)
 * Adam   g = g + wd·p, then as AdamW without its decay
 *        (Kingma, Ba: "Adam: a method for stochastic optimization", ICLR 2015)
 * Lion   u = sign(β₁m + (1−β₁)g), m = β₂m + (1−β₂)g, p = (1 − lr·wd)p − lr·u
 *        (Chen et al.: "Symbolic discovery of optimization algorithms", 2023)
 * SGD    g = g + wd·p, b = momentum·b + g, p = p − lr·b; b is 0 before the first step. Without momentum b is g.
 *        Nesterov: p = p − lr·(g + momentum·b)
 *        (Sutskever et al.: "On the importance of initialization and momentum in deep learning", 2013, in the form
 *        of PyTorch, which applies the coming step's momentum at once) */
#ifndef SHD_OPTIM_OPTIMIZER_H
#define SHD_OPTIM_OPTIMIZER_H

#include "optim/codebook.h"
#include "runtime/base/exact_sum.h"
#include "runtime/device/pool.h"

#include <sherd/dtype.h>
#include <sherd/options.h>
#include <stdint.h>

/* Checks the values that the chosen optimizer and schedule use, those of groups and patterns too.
 * Fails: CONFIG, naming the field as the job file does ("optimizer.betas[1] is 1.5; it must be in [0, 1)"). */
sherd_status shd_optimizer_check(const sherd_optimizer *optimizer);

/* State values per element that is updated by itself: AdamW, Muon's too, and Adam 2 (first and second moment), Lion 1,
 * SGD 1 with momentum, else 0. */
int32_t shd_optimizer_state_count(const sherd_optimizer *optimizer);
/* "exp_avg", "exp_avg_sq", "momentum": what checkpoints call state `index`. */
const char *shd_optimizer_state_name(const sherd_optimizer *optimizer, int32_t index);
/* Whether state `index` is a second moment, of which an update takes the root: the codebook it needs in 8 bits. */
bool shd_optimizer_state_is_root(const sherd_optimizer *optimizer, int32_t index);

/* min(1, clip/(norm + 1e-6)) when clip > 0 and norm > clip, else 1. */
double shd_clip_scale(double clip, double norm);

typedef struct shd_update {
    float *parameters;         /* [count], updated */
    void *rounded;             /* [count] of rounded_dtype: gets the new parameters, rounded; may be NULL */
    sherd_dtype rounded_dtype; /* BF16 or FP16 */
    const float *gradients;    /* [count] */
    float *states[2];          /* [count] each, as many as the optimizer has, updated; zero before the first step */
    /* With codebooks, states are these instead, in 8 bits: [⌈count/256⌉] each, the last one filled up with zeros. A span
     * then begins at a border of blocks. */
    shd_code_block *state_blocks[2];
    const shd_codebook *codebooks[2]; /* NULL: none */
    int64_t count;
    int64_t step;            /* completed updates before this one */
    double lr, weight_decay; /* of this span */
    float gradient_scale;    /* from clipping; gradients are multiplied by it first */
} shd_update;

/* Updates one span of an optimizer other than Adafactor, and what is rounded while it is in the cache; its arrays must
 * not overlap. Elements whose parameter, gradient and state are zero stay zero: padding needs no mask. States in 8 bits
 * are made float32 for the update of their block, and then 8 bits again.
 * Threads: spreads over `pool`. */
void shd_optimizer_update(const sherd_optimizer *optimizer, shd_pool *pool, const shd_update *update);

/* Adds Σ values² to *sum: per block of 256 elements 16 lanes of double partial sums, folded in lane order, then added
 * exactly, so that neither shards nor threads change the result. `count`: a multiple of 256. `partials`: work memory
 * for count/256 doubles. */
void shd_square_sum(shd_pool *pool, const float *values, int64_t count, double *partials, shd_exact_sum *sum);

#endif
