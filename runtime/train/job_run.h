/* A run of a job on this rank, from its start to its end: what the files of the job loop share. train.c leads it,
 * row.c tells of its steps, rollback.c takes steps back. */
#ifndef SHD_TRAIN_JOB_RUN_H
#define SHD_TRAIN_JOB_RUN_H

#include "io/metrics.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/feed.h"
#include "runtime/train/job_setup.h"
#include "runtime/train/journal.h"
#include "runtime/train/resume.h"
#include "runtime/train/safety.h"
#include "runtime/train/sample.h"
#include "runtime/train/saver.h"
#include "runtime/train/train.h"

typedef struct shd_job_run {
    const shd_job *job;
    const shd_train_hooks *hooks;
    sherd_options options;
    bool has_samples; /* the data are samples of this shape, else tokens */
    shd_sample_shape samples;
    shd_dataset *training_data, *validation_data; /* validation: NULL without one */
    shd_feed *training, *validation;
    shd_evaluation_plan evaluation;
    shd_model *model;
    sherd_session *session;
    shd_pool *pool;       /* the session's */
    shd_sample *sample;   /* NULL: no texts are wanted */
    shd_journal *journal; /* rank 0 */
    shd_resume from;
    shd_resume named; /* what `from` was at the start, where checkpoint.resume named that */
    shd_saver saver;
    shd_safety safety;
    bool updated; /* some step of this run has updated something */
    shd_train_summary summary;
    bool cut_short;        /* the run ends after this step because rank 0 cannot write rows */
    double data_ms;        /* of the newest step: what it waited for data, */
    int32_t data_ready;    /* and the steps that lay read then */
    double row_end_ms;     /* when the last row was written, or the first step could begin */
    shd_metrics_row total; /* the times of all rows, summed */
    int64_t source_tokens[SHD_JOB_SOURCES], source_tokens_seen[SHD_JOB_SOURCES];
} shd_job_run;

/* Rank 0 logs and writes for all. */
bool shd_job_run_speaks(const shd_job_run *run);
/* Where it stands: behind the data of its newest step. */
shd_resume_place shd_job_run_place(const shd_job_run *run);

/* What a rollback must not pass: what the job names to go on from; NULL: it names nothing. */
const shd_resume *shd_job_run_oldest(const shd_job_run *run);

/* Puts the run where run->from says. */
void shd_job_run_take_place(shd_job_run *run);
/* Fills the session from run->from, which may become an older checkpoint by that, and puts the run there. Collective.
 * Fails: as shd_fill_session. */
sherd_status shd_job_run_fill(shd_job_run *run);
/* Makes run->training, and starts it at shd_job_run_place. Fails: as shd_job_create_feed and shd_feed_start. */
sherd_status shd_job_run_start_feed(shd_job_run *run);
/* What this rank logs of checkpoints it looks at. */
shd_resume_report shd_job_run_report(const shd_job_run *run);

#endif
