/* What a run does about steps whose numbers are wrong: not finite (run.on_nonfinite), or far out of the usual
 * (run.outlier_zscore, run.on_outlier); and the ranks that are slow (run.straggler_factor).
 *
 *   warn      the step counts; a line in the log
 *   skip      nothing was updated; run.max_nonfinite such steps in a row end the run
 *   rollback  nothing was updated; the run goes back to its newest checkpoint, and on with the data behind the step's
 *             batch; run.max_nonfinite times without a new checkpoint in between end the run
 *   abort     the run ends
 *
 * What fp16 skips to halve its loss scale is none of these. Each step of these kinds goes to log.dir/alerts.jsonl with
 * its batch, and to events.jsonl. Every rank decides, from what all ranks know alike; rank 0 logs and writes. Threads:
 * the session's. */
#ifndef SHD_TRAIN_SAFETY_H
#define SHD_TRAIN_SAFETY_H

#include "io/dataset.h"
#include "io/job.h"
#include "runtime/train/outliers.h"
#include "runtime/train/stragglers.h"

#include <jansson.h>
#include <sherd/session.h>

/* What of it a checkpoint keeps. */
typedef struct shd_safety_state {
    int64_t bad_in_row;                      /* skipped ones, up to the newest step */
    int64_t rollbacks_in_row, rollback_step; /* since a checkpoint of more steps than that was complete; -1: none yet */
    double lr_factor;                        /* of all learning rates: run.rollback_lr_factor for each rollback */
    shd_outlier_window loss, grad_norm;      /* of steps that were no outliers, or were let pass */
} shd_safety_state;

/* Where a run starts. */
shd_safety_state shd_safety_start(const shd_job *job);

/* As a note has it, {"skipped_in_row", "rollbacks_in_row", "rollback_step", "lr_factor", "window":
 * {"loss", "grad_norm"}}; NULL when memory is out. */
json_t *shd_safety_json(const shd_safety_state *state);
/* Reads it back; `json` NULL (a checkpoint of a version without it) is the start. Fails: DATA. */
sherd_status shd_safety_read(const json_t *json, const shd_job *job, shd_safety_state *out);

typedef struct shd_safety {
    const shd_job *job;
    const shd_dataset *dataset;   /* the training data */
    const sherd_options *options; /* of the session */
    sherd_session *session;
    bool speaks; /* rank 0 logs and writes */
    shd_safety_state state;
    shd_stragglers stragglers;
    /* What was found about the step that is being judged. */
    int64_t judged_step; /* -1: none */
    bool outlier;
    double loss_zscore, grad_norm_zscore;
} shd_safety;

/* A step's data, and what there is to go back to. */
typedef struct shd_safety_place {
    int64_t first_sequence; /* number of the step's first one */
    int64_t saved_step;     /* the newest checkpoint; -1: none, and the run can go back to its start */
} shd_safety_place;

/* Borrows everything; `state` is where the run stands. */
void shd_safety_init(shd_safety *safety, const shd_job *job, const shd_dataset *dataset, const sherd_options *options,
                     const shd_safety_state *state);
/* sherd_options.judge, whose user is a shd_safety. */
bool shd_safety_judge(void *safety, const sherd_step_result *found);
/* Whether a job's session needs it. */
bool shd_safety_has_judge(const shd_job *job);

/* Whether the policy for such a step is to go back, be it the last one that max_nonfinite allows or not. The save that
 * is under way is ended first. */
bool shd_safety_rolls_back(shd_safety *safety, const sherd_step_result *result);
/* After a step: counts it, tells of it, and says in *rolls_back whether the run is to go back, which is told when it
 * is back. Allocates only when something is to be told. Fails: NUMERIC, with the words "step N: …", when the run ends
 * by it: on all ranks alike. */
sherd_status shd_safety_conclude(shd_safety *safety, const sherd_step_result *result, const shd_safety_place *place,
                                 bool *rolls_back);
/* Tells of a step that ends the run otherwise: it has failed in the session with NUMERIC, or there is no way back from
 * it. */
void shd_safety_tell_failure(shd_safety *safety, const sherd_step_result *result, const shd_safety_place *place);

/* The run is back from this step at place->saved_step, a checkpoint that was made with `then`, or at its start: takes
 * over its windows, lowers the learning rate, and tells of it. Fails: as shd_safety_conclude, when the checkpoint is
 * an older one than was meant, so that this is one rollback too many without a new one. */
sherd_status shd_safety_go_back(shd_safety *safety, const sherd_step_result *result, const shd_safety_place *place,
                                const shd_safety_state *then);

#endif
