/* What the model being trained writes: after every validation a short text, into the log of rank 0.
 *
 * Each token is a forward pass of all ranks, since each has its part of the parameters; rank 0 computes, with a decoder
 * beside the plan's memory, the others pass through the brackets. How many passes there are follows from
 * train.sample_tokens and model.context alone, never from what is drawn: every rank makes the same evaluations, in
 * which nobody waits for more than the parameters of the next unit. The text is the same on any number of ranks. */
#ifndef SHD_TRAIN_SAMPLE_H
#define SHD_TRAIN_SAMPLE_H

#include "io/job.h"
#include "runtime/model/model.h"

#include <sherd/session.h>

typedef struct shd_sample shd_sample;

/* Bytes that rank 0 takes for it beside what is planned, which its peak_bytes count too; 0 when train.sample_tokens is 0.
 * Fails: CONFIG, MEMORY. */
sherd_status shd_sample_bytes(const shd_job *job, int64_t *out);

/* For a job with train.sample_tokens above 0. `options`: the session's; rank 0 gets a decoder.
 * Owns: borrows model and pool until shd_sample_destroy. Fails: MEMORY. */
sherd_status shd_sample_create(const shd_job *job, const sherd_options *options, const shd_model *model, shd_pool *pool,
                               shd_sample **out);
/* Accepts NULL. */
void shd_sample_destroy(shd_sample *sample);

/* Writes a text after `step` completed steps and logs it. Its random numbers follow from train.seed and the step.
 * Collective; at step boundaries. Allocates nothing. Fails: what the session's brackets return. */
sherd_status shd_sample_write(shd_sample *sample, sherd_session *session, int64_t step);

#endif
