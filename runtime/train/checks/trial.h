/* What only ranks can find: that all are the same program and job with one clock; that collectives are right, and how
 * fast; that a step of the real model on real data is sound. One call is one rank's part; what it finds it writes, as
 * it goes, into memory that it shares with whoever has started it, so that the cause of an end is known however ranks
 * end.
 *
 * Nothing is written anywhere else: parameters are those with which the job would start, and are given up. */
#ifndef SHD_TRAIN_CHECKS_TRIAL_H
#define SHD_TRAIN_CHECKS_TRIAL_H

#include "io/job.h"
#include "runtime/comm/selftest.h"

#include <sherd/options.h>

enum { SHD_TRIAL_TEXT = 800, SHD_TRIAL_STEPS = 3, SHD_TRIAL_TENSORS = 8192 };

/* What a rank is at; each comes after the one before. */
typedef enum shd_trial_phase {
    SHD_TRIAL_STARTING,    /* it has not spoken */
    SHD_TRIAL_COLLECTIVES, /* it has said who it is, and tests collectives */
    SHD_TRIAL_STEP,        /* it makes a session, and a step or two */
    SHD_TRIAL_OVERFIT,
    SHD_TRIAL_DONE
} shd_trial_phase;

/* What one rank writes. Plain data, begun with zeros. */
typedef struct shd_trial_rank {
    shd_trial_phase phase;
    sherd_status status; /* why it has ended before DONE; OK: it has not, or could not say */
    char text[SHD_TRIAL_TEXT];
    uint64_t program, job; /* hashes: of the file that runs, of the job as resolved */
    double clock_ms;       /* wall clock - monotonic clock */
    int64_t pid;
    shd_selftest_result comm;

    double start_ms; /* until the session had its parameters */
    double loss;     /* of the first step; NaN when no target counted */
    double grad_norm;
    int64_t target_count, tokens;                              /* of the step, over all ranks */
    bool random;                                               /* parameters were random, not loaded */
    double step_ms, compute_ms, exposed_comm_ms, optimizer_ms; /* of a step, the mean of several when they are quick */
    double wait_ms; /* in it, of the thread that does most: ready to run, without a core */
    double products_gflops;
    int32_t threads;
    int64_t peak_bytes, planned_bytes;

    int64_t overfit_steps;
    double overfit_first, overfit_last, overfit_ms;
} shd_trial_rank;

/* The bits of a few steps, of rank 0. */
typedef struct shd_trial_bits {
    int32_t step_count, tensor_count;
    double loss[SHD_TRIAL_STEPS], grad_norm[SHD_TRIAL_STEPS];
    uint64_t tensors[SHD_TRIAL_STEPS]
                    [SHD_TRIAL_TENSORS]; /* hashes of parameters before each step; those beyond the last
                                                             place are hashed into it */
} shd_trial_bits;

typedef struct shd_trial_board {
    int64_t bytes; /* sizeof: that of a program which knows the same fields */
    shd_trial_rank ranks[SHD_COMM_MAX_RANKS];
    shd_trial_bits bits;
} shd_trial_board;

typedef struct shd_trial {
    const shd_job *job;      /* NULL: collectives alone are tested */
    uint64_t job_hash;       /* of the job as this rank has resolved it */
    bool overfit;            /* one batch, until the loss is near zero */
    int32_t compare_batches; /* > 0: instead of all but the collectives, the bits of steps of so many micro-batches */
} shd_trial;

/* A loss of this part of the first one is near zero. */
static inline double shd_trial_goal(double first) { return first / 50; }

/* What a fresh model's loss is near to when it knows nothing: ln(vocab_size), of classes ln(outputs); NaN: unknown. */
double shd_trial_blind_loss(const shd_job *job);

/* Runs this rank's part; `place`: rank, world_size and rendezvous. Collective. Fails: as what it tries does;
 * board->ranks[rank] has it, too. */
sherd_status shd_trial_run(const shd_trial *trial, const sherd_options *place, shd_trial_board *board);

/* Wall clock minus monotonic clock, in ms: the same in all processes of a host whose clocks are right. */
double shd_trial_clock_ms(void);

#endif
