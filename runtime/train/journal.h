/* What rank 0 writes of a run's steps into log.dir: metrics.jsonl and, where the job wants it, TensorBoard's files.
 *
 * Rows come with what the step has told; the journal adds what it counts over steps, what the model's work is, and now
 * and then a look at the machine. A row that cannot be written is remembered and kept: the caller ends the run when all
 * ranks know of it. TensorBoard's files are a convenience: one that cannot be written is left, with a warning. */
#ifndef SHD_TRAIN_JOURNAL_H
#define SHD_TRAIN_JOURNAL_H

#include "io/job.h"
#include "io/metrics.h"
#include "runtime/session/setup.h"

typedef struct shd_journal shd_journal;

/* Opens the files for rows from `first_step` on. Owns: keeps `job`; close *out with shd_journal_close. Fails: as
 * shd_metrics_open; TensorBoard's with a warning only. */
sherd_status shd_journal_open(const shd_job *job, const shd_plan *plan, int64_t first_step, shd_journal **out);
/* Accepts NULL. */
void shd_journal_close(shd_journal *journal);

/* Writes the row of a step, whose figures that the journal adds are filled in: those counted since step 0, and usage in
 * rows that log.every picks, one a second at most, and in the first. `nonfinite`: loss or gradients were not finite. */
void shd_journal_add(shd_journal *journal, shd_metrics_row *row, bool nonfinite);

/* Takes back the rows from `first_step` on; those that could not be written, too. That one could not is still
 * remembered. Fails: as shd_metrics_go_back. */
sherd_status shd_journal_go_back(shd_journal *journal, int64_t first_step);

/* OK, or why a row could not be written; then each further row is only kept, as far as there is room. */
sherd_status shd_journal_status(const shd_journal *journal);
/* At the end of the run, `step` steps being done and saved. Fails: as the row that could not be written, after one more
 * try: a checkpoint less on a full disk may have made room. */
sherd_status shd_journal_settle(shd_journal *journal, int64_t step);

#endif
