/* The built-in models: gpt2 and llama as units (embedding, each block, head), mlp as units (each layer), with forward and
 * backward by hand.
 *
 * A model is a description (<sherd/model.h>) and two callbacks over sherd_view; it knows nothing of ranks, stages or
 * shards. */
#ifndef SHD_MODEL_MODEL_H
#define SHD_MODEL_MODEL_H

#include "runtime/ops/ops.h"

#include <sherd/dtype.h>
#include <sherd/model.h>
#include <sherd/session.h>

typedef enum shd_model_family { SHD_MODEL_GPT2, SHD_MODEL_LLAMA, SHD_MODEL_MLP } shd_model_family;
typedef enum shd_model_activation { SHD_MODEL_RELU, SHD_MODEL_GELU } shd_model_activation;
/* CROSS_ENTROPY: outputs are logits of classes. MSE: outputs are numbers, each of them a target. */
typedef enum shd_model_loss { SHD_MODEL_CROSS_ENTROPY, SHD_MODEL_MSE } shd_model_loss;

typedef struct shd_model_config {
    shd_model_family family;
    int64_t n_layer;                              /* blocks, of mlp hidden layers */
    int64_t vocab_size, context, d_model, n_head; /* gpt2, llama */
    int64_t n_kv_head, d_ff;                      /* llama */
    double rope_theta;                            /* llama */
    bool tied_embeddings;                         /* gpt2, llama */
    double dropout; /* gpt2, llama: 0 ≤ p < 1, chance of an element to be dropped in training, see shd_dropout_place */
    uint64_t seed;  /* of dropout masks */
    int64_t inputs, outputs, hidden; /* mlp: numbers of a sample, of the output, of a hidden layer */
    shd_model_activation activation; /* mlp */
    shd_model_loss loss;             /* mlp */
    sherd_dtype precision; /* of parameters, activations and the residual stream; gradients of parameters are fp32 */
    const char *const *frozen; /* shell-style patterns over tensor names; borrowed during create */
    int32_t frozen_count;
    int64_t micro_batch; /* sequences a rank runs at once */
    int32_t threads;     /* of the pool that will run it: sizes the scratch memory */
    const shd_ops *ops;  /* where it will run (ops.h), which sizes the scratch memory too; NULL: the CPU */
} shd_model_config;

typedef struct shd_model shd_model;

/* Fails: CONFIG (which key is impossible: d_model not divisible by n_head, …; a frozen pattern that matches
 * nothing), MEMORY. */
sherd_status shd_model_create(const shd_model_config *config, shd_model **out);
/* Accepts NULL. */
void shd_model_destroy(shd_model *model);

/* The description to hand to sherd_session_create. Tensor names are Hugging Face's: wte.weight,
 * h.0.attn.c_attn.weight, … or model.embed_tokens.weight, model.layers.0.…, lm_head.weight; of mlp
 * layers.0.weight, layers.0.bias, …, the output layer's the last.
 * Owns: borrowed, lives with the model. */
const sherd_model *shd_model_describe(const shd_model *model);

/* One micro-batch of tokens or of samples. Tokens: inputs: [micro_batch, context] ids; targets: the same, negative where a target counts for nothing.
 * losses: [micro_batch × context] per-token losses (natural log), written by the head. document_starts: [micro_batch,
 * context], the place in its sequence where a token's document begins, before which it does not attend; NULL: it
 * attends to all before it. Positions count from the sequence's start all the same.
 *
 * Samples (mlp): features: [micro_batch, inputs]. With loss CROSS_ENTROPY, targets: [micro_batch] classes, negative where
 * one counts for nothing; losses: [micro_batch]; correct: [micro_batch], 1 where the class was predicted, else 0. With
 * MSE, values: [micro_batch, outputs], NaN where one counts for nothing; losses: [micro_batch × outputs].
 *
 * Borrowed until the next call. */
typedef struct shd_batch {
    const int32_t *inputs, *targets;
    double *losses;
    const int32_t *document_starts;
    int64_t first_sequence; /* the number in the whole run of its first sequence: what dropout masks go by */
    const float *features, *values;
    double *correct;
} shd_batch;
/* The first call prepares the process for products (shd_ops_init). `pool` has at most config.threads threads. */
void shd_model_bind(shd_model *model, shd_pool *pool, const shd_batch *batch);

/* A model on a device: its passes enqueue there, what views lend is device memory, and losses come back later. */
typedef struct shd_model_place {
    const shd_device_ops *device_ops;
    shd_device *device;
    shd_stream *stream; /* that of brackets */
    /* Returns when the event is reached, minding other ranks meanwhile. Fails: as a session's waits. */
    sherd_status (*wait)(void *user, shd_event *event);
    void *user;
} shd_model_place;

/* Puts a model whose config named a device's operations where these run; before its first pass. Borrows all that `place`
 * names, for the model's life or until shd_model_leave. Fails: MEMORY, DEVICE. */
sherd_status shd_model_move(shd_model *model, const shd_model_place *place);
/* Gives back what the model has there; nothing of it may be under way. Without a place it does nothing. */
void shd_model_leave(shd_model *model);
/* What the last head has computed, in pinned memory, there when the stream is past it, and valid for 16 micro-batches
 * more; false: the model is on the CPU, where losses are in the batch. */
bool shd_model_late_losses(const shd_model *model, const double **losses, const double **correct);

/* The callbacks, for sherd_callbacks; `user` is the model. In training the head computes its losses in BACKWARD (one
 * pass over the logits, chunk by chunk, each chunk's borders fixed by the shape); in evaluation in FORWARD. */
sherd_status shd_model_forward(void *model, const sherd_view *view);
sherd_status shd_model_backward(void *model, const sherd_view *view);

/* What this process has done in matrix products since the last reset: wall time on the caller's side, floating-point
 * operations. */
typedef struct shd_model_work {
    double ms, flop;
} shd_model_work;
shd_model_work shd_model_work_get(void);
void shd_model_work_reset(void);

/* Floating-point operations of one token, of mlp one sample, forward and backward: what utilisation is counted by. 6 for
 * each element of a matrix that it is multiplied by (2 forward, 4 backward), the output layer's among them, tied or not,
 * and 12·n_layer·d_model·context for attention's scores and sums, as Chowdhery et al. 2022 (PaLM, appendix B) have it:
 * causal masks are not taken off, nor is anything added for what is computed twice. Looking up embeddings, norms,
 * activations and biases count for nothing. */
double shd_model_flop(const shd_model_config *config);

/* What runs products and other kernels in this process, in words; the library for products, with its version. */
void shd_model_kernels(char *text, size_t bytes);
void shd_model_library(char *text, size_t bytes);
/* What one thread reaches in large products, measured for a tenth of a second. Fails: MEMORY. */
typedef struct shd_model_speed {
    double fp32_gflops, bf16_gflops;
} shd_model_speed;
sherd_status shd_model_measure(shd_model_speed *out);

/* Random initialisation: weights of two or more dimensions normal with σ 0.02 (residual projections
 * 0.02/√(2·n_layer)), norm gains 1, biases 0; of mlp σ √(2/inputs of the layer), in the output layer √(1/inputs). Each
 * value is a function of seed, tensor name and element index alone. A sherd_fill_fn. */
typedef struct shd_model_random {
    const shd_model *model;
    uint64_t seed;
} shd_model_random;
sherd_status shd_model_fill_random(void *random, int32_t tensor, int64_t first, int64_t count, float *values);

#endif
