/* Runs a job over ranks that are processes: rank 0 here, the others forked. */
#ifndef TESTS_TRAIN_RUN_JOB_H
#define TESTS_TRAIN_RUN_JOB_H

#include "runtime/train/train.h"

enum { MAX_STEPS = 128, MAX_RANKS = 8 };

/* What came of it. */
typedef struct job_result {
    sherd_status status[MAX_RANKS];
    char cause[2048]; /* rank 0's */
    shd_train_summary summary;
    int64_t step_count; /* rows seen by the hook */
    shd_train_step steps[MAX_STEPS];
    int64_t save_count, save_steps[MAX_STEPS]; /* of checkpoints that the hook was told of */
    int64_t allocations[MAX_STEPS];            /* calls between a step's row and the one before it */
} job_result;

/* A small gpt2 on tokens.u16 of the working directory (make_tokens); 12 steps of 12 sequences of 8 tokens. */
extern const char small_job[];
/* Writes `count` u16 tokens below 60, a fixed pseudo-random text. */
void make_tokens(const char *path, int64_t count, uint32_t seed);

/* Loads `text` with settings ("key=value", NULL at the end) and runs it; `stopping_rank` is told to stop after
 * `stop_step` steps, -1: none. */
void run_job_stopping(const char *text, const char *const *settings, int32_t stopping_rank, int64_t stop_step,
                      job_result *out);
/* The same, and rank 1, or the only one, asks for a checkpoint after `asking_step` steps. */
void run_job_asking(const char *text, const char *const *settings, int64_t asking_step, job_result *out);
/* The same, and rank `slow_rank` sleeps for `nap_ms` in every step. */
void run_job_slowly(const char *text, const char *const *settings, int32_t slow_rank, int32_t nap_ms, job_result *out);
void run_job(const char *text, const char *const *settings, job_result *out);
/* What a run meets: `saved` is called in rank 0's process for every checkpoint that is complete; rank 0 is told to
 * stop when it has seen `stop_rows` rows, if that is not 0. */
typedef struct job_events {
    void (*saved)(int64_t step);
    int64_t stop_rows;
} job_events;
void run_job_watched(const char *text, const char *const *settings, const job_events *events, job_result *out);
/* Loads and checks, without running. */
sherd_status check_job(const char *text, const char *const *settings);
/* The same, as a dry run does: what is damaged is logged. */
sherd_status look_at_job(const char *text, const char *const *settings);

#endif
