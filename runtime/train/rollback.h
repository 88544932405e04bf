/* Taking steps back: run.on_nonfinite and run.on_outlier: rollback. */
#ifndef SHD_TRAIN_ROLLBACK_H
#define SHD_TRAIN_ROLLBACK_H

#include "runtime/train/job_run.h"

/* Takes back the steps since the newest checkpoint that is whole, the last of which ended with `result`, and goes on
 * behind its data; no save is under way. `asked`: a checkpoint is wanted, and will be that of the next good step. Of a
 * run that is cut short rows stay as they are. Collective. Fails: NUMERIC (shd_safety_go_back); as shd_resume_take,
 * shd_job_run_fill, shd_journal_go_back, and making the feed. */
sherd_status shd_job_run_roll_back(shd_job_run *run, const sherd_step_result *result, bool asked);

#endif
