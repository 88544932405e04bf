/* The row of a step: what metrics.jsonl gets, and whoever watches the run. */
#ifndef SHD_TRAIN_ROW_H
#define SHD_TRAIN_ROW_H

#include "runtime/train/job_run.h"

/* The row of the step that has just ended, by what its session tells; what a validation finds is the caller's. Takes
 * the saver's wait. Borrows of `run`. */
shd_metrics_row shd_row_make(shd_job_run *run, const sherd_step_result *result);
/* Writes the row, shows it, and starts the clock of the next one. `good`: the step neither ends the run nor is taken
 * back. A row that cannot be written ends the run, but only when all ranks know of it, and have saved. */
void shd_row_report(shd_job_run *run, shd_metrics_row *row, bool nonfinite, bool good);

/* The mean of no targets is no number, and no loss of 0, which sessions tell. */
double shd_row_loss(double mean, int64_t targets);
double shd_row_share(double correct, int64_t targets);

#endif
