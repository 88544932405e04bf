/* One rank of `sherd train`: the training loop, with what the user sees of it. */
#ifndef SHD_CLI_TRAIN_RANK_H
#define SHD_CLI_TRAIN_RANK_H

#include "runtime/cli/saving.h"
#include "runtime/train/train.h"

#include <stdbool.h>

typedef struct shd_train_rank {
    const shd_job *job;
    const sherd_options *place;
    bool launched;         /* by our own launcher, which tells the user how the job ended, and why */
    int causes;            /* where it wants to be told why (cause.h), or -1 */
    int records;           /* the flight recorder that the launcher has made, or -1 */
    shd_saving_slot *slot; /* where it tells its launcher that it saves, or NULL */
    /* After this time, told to stop, it ends where it is, unless it saves; if nobody gave it, after two steps where that is
     * more. Launched, the launcher sees to it. */
    double stop_timeout_s;
    bool stop_timeout_given;
} shd_train_rank;

/* Trains; rank 0 shows progress. Returns the exit code, errors said. */
int shd_train_rank_run(const shd_train_rank *rank);

/* Says what a run that was stopped leaves: the newest checkpoint, or that there is none. `first_step`, `step`: completed
 * steps when it started and when it ended; -1: not known. */
void shd_train_say_left(const shd_job *job, int64_t first_step, int64_t step);

/* Says what the job would be: ranks, stage, model, memory a rank, and that it would begin after `first_step` completed
 * steps. Returns the exit code. */
int shd_train_dry_run_say(const shd_job *job, int64_t first_step);

#endif
