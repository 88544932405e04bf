/* A model whose training can be repeated by brute force, bit for bit: every gradient element is a simple function of
 * the parameter and the sample, so that a test knows what every parameter must be at every moment.
 *
 * Four units, with everything that is awkward: a tied table, frozen tensors, an all-frozen unit, a scalar, zero
 * elements, odd sizes.
 *   embedding: table [17, 33], offset [5] frozen · middle: gain [], nothing [0, 3], matrix [7, 41]
 *   constant: mask [300] frozen · head: bias [19], and the shared table
 * One sample is a micro-batch. Its loss gradient at element i of tensor t is wave(t, i, sample) + parameter/2; the
 * table gets the head's (written first) and the embedding's. */
#ifndef SHD_TESTS_SUPPORT_TOY_H
#define SHD_TESTS_SUPPORT_TOY_H

#include <sherd/sherd.h>

enum { TOY_TABLE, TOY_OFFSET, TOY_GAIN, TOY_NOTHING, TOY_MATRIX, TOY_MASK, TOY_BIAS, TOY_TENSORS, TOY_UNITS = 4 };

const sherd_model *toy_model(void);
/* A sherd_fill_fn. */
sherd_status toy_fill(void *user, int32_t tensor, int64_t first, int64_t count, float *values);

/* The brute-force trainer: all parameters in one place, plain SGD, gradients folded in sample order, block by block. In
 * 16 bits it holds the masters; frozen values must have no more bits than the precision, as toy_fill's have. */
typedef struct toy_oracle {
    sherd_dtype precision, reduce_dtype; /* as in the session's options; FP32 after init */
    float loss_scale;                    /* of the next step; 1 after init */
    float *parameters[TOY_TENSORS];
    float *gradients[TOY_TENSORS];
    int64_t sample; /* the next one */
    int32_t blocks; /* of neighbouring samples, each folded for itself, their sums then added in order; 0: one */
} toy_oracle;
void toy_oracle_init(toy_oracle *oracle);
void toy_oracle_fini(toy_oracle *oracle);
/* One step over `batch` samples. With loss scale 0 it is one that is skipped. */
void toy_oracle_step(toy_oracle *oracle, int64_t batch, float lr);
int64_t toy_count(int32_t tensor);

/* One step of a session over the same samples as the oracle's next step, checking in every bracket that what is lent
 * are the oracle's parameters, and nothing else is. With replicas each takes a block of the samples. Returns 0 or a
 * line number. */
int toy_step(sherd_session *session, const toy_oracle *before, const sherd_options *options, sherd_step_result *result);

/* What a bracket of that step does. */
typedef struct toy_work {
    sherd_view view;
    bool backward;
    bool unchecked; /* whatever is lent is taken */
    int64_t sample;
    const toy_oracle *before;
} toy_work;
/* Checks what is lent, and writes gradients made from it. Returns 0 or a line number. */
int toy_do(const toy_work *work);
/* The same step, with every bracket's work handed to `run` instead, which may do it later, in the same order; what it is
 * lent is copied there. */
typedef int (*toy_run_fn)(const toy_work *work, void *user);
int toy_step_by(sherd_session *session, const toy_oracle *before, const sherd_options *options, toy_run_fn run,
                void *user, sherd_step_result *result);

#endif
