/* From a job to what a session needs: the one conversion, for training and for everything that only wants to look. */
#ifndef SHD_TRAIN_JOB_SETUP_H
#define SHD_TRAIN_JOB_SETUP_H

#include "io/arrays.h"
#include "io/job.h"
#include "runtime/model/model.h"
#include "runtime/session/setup.h"

#include <sherd/options.h>

/* Compute threads of each rank: run.threads, or for `auto` the cores this process may use ÷ run.ranks, at least 1. */
int32_t shd_job_threads(const shd_job *job);

/* The session's options. Left at their defaults: rank and rendezvous, which the environment gives, and
 * eval_micro_steps, which the validation data give. */
void shd_job_options(const shd_job *job, sherd_options *out);

/* What the job says of its samples; false: it has none, but tokens. */
bool shd_job_samples(const shd_job *job, shd_sample_shape *out);

/* What the job says of its model, scratch memory sized for shd_job_threads. Its texts belong to the job. */
shd_model_config shd_job_model_config(const shd_job *job);

/* The job's model, its scratch memory sized for shd_job_threads. Owns: destroy *out with shd_model_destroy.
 * Fails: CONFIG (a key that is impossible, named, with its place), MEMORY. */
sherd_status shd_job_model(const shd_job *job, shd_model **out);

/* The plan that a session of the job has on rank `rank`, were its stage `stage`.
 * Owns: destroy *out with shd_plan_destroy.
 * Fails: CONFIG (with the key's place), ARGUMENT, MEMORY. */
sherd_status shd_job_plan(const shd_job *job, int32_t stage, int32_t rank, shd_plan **out);

/* How the policy's ranks come to see all parameters: "shared", "copy", or "none" where each holds them anyway. */
const char *shd_gather_text(const shd_policy *policy);

/* The mesh where there are replicas, " (2 replicas of 4)", for texts that have just said how many ranks there are; else
 * nothing. */
typedef struct shd_mesh_words {
    char text[40];
} shd_mesh_words;
shd_mesh_words shd_mesh_text(const shd_policy *policy);

/* What is not fp32, ", precision bf16, gradients between ranks bf16", at the end of a list; else nothing. */
typedef struct shd_precision_words {
    char text[64];
} shd_precision_words;
shd_precision_words shd_precision_text(const shd_policy *policy);

/* A program that a session of the job runs under such a plan.
 * Owns: destroy *out with shd_program_destroy. Fails: MEMORY. */
sherd_status shd_job_program(const shd_job *job, const shd_plan *plan, shd_program_kind kind, shd_program **out);

#endif
