#include "runtime/train/job_run.h"

#include "runtime/base/status.h"
#include "runtime/train/fill.h"
#include "runtime/train/job_data.h"

bool shd_job_run_speaks(const shd_job_run *run) { return run->options.rank == 0; }

shd_resume_place shd_job_run_place(const shd_job_run *run) {
    int64_t begun = run->summary.step - run->from.place.step;
    return (shd_resume_place){.step = run->summary.step,
                              .sequence = run->from.place.sequence + begun * run->job->train.global_batch,
                              .tokens_seen = run->summary.tokens_seen};
}

sherd_status shd_job_run_start_feed(shd_job_run *run) {
    SHD_TRY(shd_job_create_feed(run->job, run->training_data, &run->options, run->options.micro_steps, &run->training));
    return shd_feed_start(run->training, shd_job_run_place(run).sequence, run->job->train.steps - run->summary.step);
}

void shd_job_run_take_place(shd_job_run *run) {
    run->summary.step = run->from.place.step;
    run->summary.tokens_seen = run->from.place.tokens_seen;
}

shd_resume_report shd_job_run_report(const shd_job_run *run) {
    return shd_job_run_speaks(run) ? SHD_REPORT_ALL : SHD_REPORT_NOTHING;
}

const shd_resume *shd_job_run_oldest(const shd_job_run *run) { return run->named.named ? &run->named : NULL; }

sherd_status shd_job_run_fill(shd_job_run *run) {
    const shd_fill_config config = {.job = run->job,
                                    .dataset = run->training_data,
                                    .model = run->model,
                                    .session = run->session,
                                    .report = shd_job_run_report(run),
                                    .oldest = shd_job_run_oldest(run)};
    SHD_TRY(shd_fill_session(&config, &run->from));
    shd_job_run_take_place(run);
    return SHERD_OK;
}
