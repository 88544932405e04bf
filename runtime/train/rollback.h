/* Taking steps back: run.on_nonfinite and run.on_outlier: rollback. */
#ifndef SHD_TRAIN_ROLLBACK_H
#define SHD_TRAIN_ROLLBACK_H

#include "runtime/train/job_run.h"

/* Takes back the steps since the newest checkpoint, and goes on behind the data of the last one; no save is under way.
 * `asked`: a checkpoint is wanted, and will be that of the next good step. Collective. Fails: as shd_resume_take,
 * shd_job_run_fill, opening the journal and the feed. */
sherd_status shd_job_run_roll_back(shd_job_run *run, bool asked);

#endif
