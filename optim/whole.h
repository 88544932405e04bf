/* Optimizers whose step for a tensor needs the whole tensor at once: one rank, its owner, keeps the state, sees the
 * whole gradient and works out the step; then whoever has elements of the parameter takes the step off them.
 *
 * Formulas; t = step + 1, g the gradient times gradient_scale, lr and wd the tensor's:
 * Muon       of matrices [m, n]. B = momentum·B + (1−momentum)·g; G = B, with Nesterov momentum·B + (1−momentum)·g;
 *            X = G / max(‖G‖, 1e-7); ns_steps times, with A = X·Xᵀ: X = 3.4445·X + (−4.7750·A + 2.0315·A·A)·X,
 *            which brings all singular values near 1; p = (1 − lr·wd)p − lr·a·X, a being 0.2·√max(m, n)
 *            (MATCH_RMS_ADAMW) or √max(1, m/n) (ORIGINAL)
 *            (Jordan et al.: "Muon: an optimizer for hidden layers in neural networks", 2024; the first a: Liu et al.:
 *            "Muon is scalable for LLM training", 2025; as torch.optim.Muon but for the iteration's precision, which
 *            is float32 here and bfloat16 there)
 * Adafactor  w = t^beta2_decay, ρ = min(lr, 1/√t), α = ρ·max(scale_floor, RMS(p)), p as it is before the step.
 *            Matrices [m, n], the last two dimensions of more: R += w·(row means of g² − R), C += w·(column means of
 *            g² − C), V = R·Cᵀ / max(mean R, ε); other tensors: V += w·(g² − V). U = g / √max(V, ε²),
 *            p = (1 − lr·wd)p − α·U / max(1, RMS(U)/update_clip), ε = 2⁻²³
 *            (Shazeer, Stern: "Adafactor: adaptive learning rates with sublinear memory cost", ICML 2018, in the form
 *            of torch.optim.Adafactor)
 *
 * Everything is float32 but sums and what is the same for a whole tensor, which are doubles. Results depend neither on
 * threads nor on who owns what. */
#ifndef SHD_OPTIM_WHOLE_H
#define SHD_OPTIM_WHOLE_H

#include "runtime/device/pool.h"

#include <sherd/model.h>
#include <sherd/options.h>
#include <stdbool.h>
#include <stdint.h>

enum { SHD_WHOLE_STATES_MAX = 3 };

/* States that owners keep: Muon 1 with momentum, else 0; Adafactor 3, of which no tensor has all. */
int32_t shd_whole_state_count(const sherd_optimizer *optimizer);
/* "momentum"; "row_variance", "column_variance", "variance": what checkpoints call state `index`. */
const char *shd_whole_state_name(const sherd_optimizer *optimizer, int32_t index);
/* Elements of state `index` of a tensor; 0: it has none. */
int64_t shd_whole_state_elements(const sherd_optimizer *optimizer, const sherd_tensor *tensor, int32_t index);
/* Work memory for a step of a tensor. */
int64_t shd_whole_work_bytes(const sherd_optimizer *optimizer, const sherd_tensor *tensor);
/* Whether a step needs the sum of the squares of the tensor's parameters. */
bool shd_whole_reads_parameters(const sherd_optimizer *optimizer);

/* c[m,n] = (accumulate ? c : 0) + op(a)·op(b); row-major without gaps. a: [m,k], or [k,m] when transposed; b: [k,n], or
 * [n,k]. */
typedef struct shd_product {
    int64_t m, n, k;
    const float *a, *b;
    float *c;
    bool a_transposed, b_transposed, accumulate;
} shd_product;
/* Who can multiply: the same bits on any number of threads. */
typedef void (*shd_product_fn)(shd_pool *pool, const shd_product *product);

typedef struct shd_whole_step {
    const sherd_tensor *tensor;
    float *values;                       /* all elements of the gradient; becomes the step */
    float *states[SHD_WHOLE_STATES_MAX]; /* updated; zero before the first step; NULL where the tensor has none */
    void *work;                          /* shd_whole_work_bytes, 64-byte aligned */
    int64_t step;                        /* completed updates before this one */
    double lr;                           /* of this tensor */
    float gradient_scale;                /* from clipping; gradients are multiplied by it first */
    double square_sum;                   /* of the parameters before the step, where that is read */
    shd_product_fn multiply;             /* Muon */
} shd_whole_step;

/* Turns the gradient of a tensor into the step that shd_whole_take takes. Nothing overlaps.
 * Threads: spreads over `pool`. */
void shd_whole_make_step(const sherd_optimizer *optimizer, shd_pool *pool, const shd_whole_step *step);

/* parameters = (1 − lr·weight_decay)·parameters − steps, for any `count` elements of a tensor. */
void shd_whole_take(shd_pool *pool, float *parameters, const float *steps, int64_t count, double lr,
                    double weight_decay);

/* Σ values², for any count; `work`: shd_whole_work_bytes of a tensor of so many elements. */
double shd_whole_square_sum(shd_pool *pool, const float *values, int64_t count, void *work);

#endif
