#include "runtime/train/journal.h"

#include "io/file.h"
#include "io/tensorboard.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/train/job_setup.h"
#include "runtime/train/usage.h"

#include <stdio.h>

static const double SAMPLE_MS = 1000; /* at least between two looks at the machine */

struct shd_journal {
    const shd_job *job;
    shd_metrics *metrics;
    shd_tensorboard *board; /* NULL: none is wanted, or it could not be written */
    shd_metrics_counts counted;
    shd_usage usage;
    shd_metrics_usage sample; /* the last one, which a row borrows */
    bool sampled;
    double step_flop, peak_flop_per_s;
    sherd_status status; /* of the first row that could not be written */
    bool taken_back;     /* that row, with its step */
    char cause[1000];
};

/* --- opening ------------------------------------------------------------------------------------------------------ */

static void open_board(shd_journal *journal, int64_t first_step) {
    char dir[SHD_PATH_BYTES];
    sherd_status status = shd_path_make(dir, "%s/tensorboard", journal->job->log.dir);
    if (status == SHERD_OK) status = shd_tensorboard_open(dir, first_step, &journal->board);
    if (status != SHERD_OK) shd_log(SHERD_LOG_WARN, "no files for TensorBoard: %s", sherd_last_error());
}

sherd_status shd_journal_open(const shd_job *job, const shd_plan *plan, int64_t first_step, shd_journal **out) {
    shd_journal *journal = shd_alloc(1, sizeof *journal);
    if (!journal) return shd_fail(SHERD_MEMORY, "no memory for the records of a run");
    journal->job = job;
    sherd_status status = shd_metrics_open(job->log.dir, first_step, &journal->metrics);
    if (status != SHERD_OK) {
        shd_journal_close(journal);
        return status;
    }
    const shd_model_config model = shd_job_model_config(job);
    journal->counted = shd_metrics_counted(journal->metrics);
    journal->step_flop = shd_model_flop(&model) * (double)shd_job_step_tokens(job);
    journal->peak_flop_per_s = job->log.peak_tflops * 1e12 * (double)job->run.ranks;
    if (job->log.tensorboard) open_board(journal, first_step);
    shd_usage_start(&journal->usage, plan);
    *out = journal;
    return SHERD_OK;
}

void shd_journal_close(shd_journal *journal) {
    if (!journal) return;
    shd_metrics_close(journal->metrics);
    shd_tensorboard_close(journal->board);
    shd_free(journal);
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

static void look_at_machine(shd_journal *journal, shd_metrics_row *row) {
    bool due = !journal->sampled || ((row->step + 1) % journal->job->log.every == 0 &&
                                     shd_clock_ms() - journal->usage.last.at_ms >= SAMPLE_MS);
    if (!due) return;
    shd_usage_sample(&journal->usage, &journal->sample);
    journal->sampled = true;
    row->usage = &journal->sample;
}

static void write_row(shd_journal *journal, const shd_metrics_row *row) {
    sherd_status status = shd_metrics_write(journal->metrics, row);
    if (status == SHERD_OK || journal->status != SHERD_OK) return;
    journal->status = status;
    snprintf(journal->cause, sizeof journal->cause, "%s", sherd_last_error());
}

static void write_scalars(shd_journal *journal, const shd_metrics_row *row) {
    if (!journal->board || shd_tensorboard_write(journal->board, row) == SHERD_OK) return;
    shd_log(SHERD_LOG_WARN, "nothing more for TensorBoard: %s", sherd_last_error());
    shd_tensorboard_close(journal->board);
    journal->board = NULL;
}

void shd_journal_add(shd_journal *journal, shd_metrics_row *row, bool nonfinite) {
    journal->counted.skipped_steps += row->skipped;
    journal->counted.nonfinite_steps += nonfinite;
    row->skipped_steps = journal->counted.skipped_steps;
    row->nonfinite_steps = journal->counted.nonfinite_steps;
    row->model_flop = journal->step_flop;
    row->peak_flop_per_s = journal->peak_flop_per_s;
    look_at_machine(journal, row);
    write_row(journal, row);
    write_scalars(journal, row);
}

sherd_status shd_journal_go_back(shd_journal *journal, int64_t first_step) {
    SHD_TRY(shd_metrics_go_back(journal->metrics, first_step));
    journal->counted = shd_metrics_counted(journal->metrics);
    journal->taken_back = journal->status != SHERD_OK;
    if (!journal->board) return SHERD_OK;
    shd_tensorboard_close(journal->board);
    journal->board = NULL;
    open_board(journal, first_step);
    return SHERD_OK;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

sherd_status shd_journal_status(const shd_journal *journal) { return journal->status; }

sherd_status shd_journal_settle(shd_journal *journal, int64_t step) {
    if (journal->status == SHERD_OK) return SHERD_OK;
    bool written = shd_metrics_flush(journal->metrics) == SHERD_OK;
    const char *now = journal->taken_back ? ", the row having been taken back with its step"
                      : written           ? ", and the row was written then"
                                          : "";
    return shd_fail(journal->status, "%s; the run ended after step %lld, which is saved%s", journal->cause,
                    (long long)step, now);
}
