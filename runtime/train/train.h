/* The job loop: data, step, metrics, evaluation, checkpoints. One call is one rank's part of a job, from start to end.
 *
 * It writes what the job says (metrics.jsonl, checkpoints) and logs events (info, rank 0); what a user sees of the
 * steps is the caller's, through hooks. */
#ifndef SHD_TRAIN_TRAIN_H
#define SHD_TRAIN_TRAIN_H

#include "io/job.h"
#include "runtime/comm/recorder.h"

#include <sherd/options.h>
#include <sherd/status.h>
#include <stdbool.h>
#include <stdint.h>

/* A step that is done; but for step_ms the same on every rank. */
typedef struct shd_train_step {
    int64_t step;               /* completed steps, from 1 (metrics.jsonl counts steps from 0) */
    double loss, grad_norm, lr; /* loss: NaN when no target counted */
    double loss_scale;          /* of fp16, else 1 */
    bool skipped;               /* nothing was updated */
    bool bad;                   /* it does not count as completed: it ends the run, or is taken back */
    bool samples;               /* what is counted are samples, not tokens */
    bool classified;            /* targets are classes: there are accuracies */
    bool validated;             /* a validation followed this step */
    double accuracy;            /* share of the classes that were predicted; NaN without any */
    double validation_loss;     /* NaN when none was made after this step, or no target counted in it */
    double validation_accuracy; /* likewise, and NaN without classes */
    int64_t tokens;             /* of this step, over all ranks; of mlp samples */
    double step_ms;
    int64_t peak_bytes; /* largest over the ranks */
    uint32_t stopped;   /* not 0: the run ends with this step, once it is saved; as in the summary */
} shd_train_step;

/* A checkpoint that is complete, in checkpoint.dir. */
typedef struct shd_train_save {
    int64_t step;                    /* completed steps */
    int64_t raw_bytes, stored_bytes; /* of all ranks: values, and what they take in files */
    double seconds;                  /* from its begin to its end */
} shd_train_save;

/* How many of this run's checkpoints are complete, and how many could not be saved. */
typedef struct shd_train_saves {
    int64_t saved_count, failed_count;
} shd_train_saves;

/* How a run went, as far as it came; the same on every rank. */
typedef struct shd_train_summary {
    int64_t first_step, step; /* completed steps when it started and when it ended */
    int64_t tokens_seen;      /* since step 0 */
    int64_t skipped_count;    /* of this run's steps */
    uint32_t stopped; /* what hooks.stopping said, on all ranks, when it ended the run; its last step is saved */
    shd_train_saves saves;
    double loss;                /* of the last step; NaN when there was none, or no target in it */
    double validation_loss;     /* the last one; likewise */
    double validation_accuracy; /* likewise, and NaN without classes */
} shd_train_summary;

/* What the caller wants to see; each may be NULL. Called on the thread of shd_train_run, on every rank. */
typedef struct shd_train_hooks {
    void (*started)(void *user, int64_t step); /* before the first step: completed steps, 0 or where it resumes */
    void (*stepped)(void *user, const shd_train_step *row);
    void (*saved)(void *user, const shd_train_save *save);
    /* true: a save begins; false: none is under way any more. */
    void (*saving)(void *user, bool under_way);
    /* Both are asked several times in every step, the last time just before its end. stopping: 0, or bits of the lowest 16
     * that mean why; on any rank: all ranks end together after this step, when its state is saved. save_asked: whether
     * somebody has asked for a checkpoint since it was called last: true on any rank: one is saved after this step, and
     * training goes on. */
    uint32_t (*stopping)(void *user);
    bool (*save_asked)(void *user);
    /* At the end of a run that has come to its end; `failed` may follow, where checkpoints could not be saved. */
    void (*finished)(void *user, const shd_train_summary *summary);
    /* Of one that has, before anything is given back, which can take long: sherd_last_error() is why. */
    void (*failed)(void *user, sherd_status status);
    /* The flight recorder that this rank has had since its start; NULL: the session makes one. */
    shd_recorder *recorder;
    /* Where it leaves its dump when ranks hang or are lost; NULL: nowhere. */
    const char *dump_dir;
    void *user;
} shd_train_hooks;

/* Looks at all that a job needs beyond its file, without starting or making anything: the model, the session's options,
 * the machine's memory, the init file (names, shapes), data files (header, length, format, ids in samples), a
 * checkpoint to resume from, every row that a validation will read, the folders of outputs and the room there. One process does it before ranks are started.
 * It is the quick part of the flight check (checks/checkup.h); warnings are logged, and what is damaged there when it
 * `tells`.
 * *first_step: where the job would begin, completed steps; not below train.steps when there is nothing to do.
 * Fails: CONFIG, DATA (file and place), IO, MEMORY. */
sherd_status shd_train_check(const shd_job *job, bool tells, int64_t *first_step);

/* Trains until train.steps. `place`: rank, world_size and rendezvous of this process (sherd_options_from_env); the rest
 * of it is not looked at. Collective over the ranks of the job, which must have the same job. `hooks` may be NULL. A
 * finished job that is started again does nothing, and says so: then first_step = step in the summary.
 * Fails: CONFIG, DATA, IO (also when a checkpoint could not be saved, however the run went otherwise, unless it was stopped), NUMERIC (the step is
 * named), MEMORY, and 100 and above when ranks are lost. */
sherd_status shd_train_run(const shd_job *job, const sherd_options *place, const shd_train_hooks *hooks);

#endif
