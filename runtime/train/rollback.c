#include "runtime/train/rollback.h"

#include "io/file.h"
#include "runtime/base/clock.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/session/setup.h"

#include <stdio.h>

/* What a run goes back to: its newest checkpoint, or where it began. *out is the caller's. */
static sherd_status find_way_back(const shd_job_run *run, shd_resume *out) {
    char path[SHD_PATH_BYTES];
    int64_t step = run->saver.saved_step;
    if (step < 0 || step == run->from.place.step) return shd_resume_copy(&run->from, out);
    SHD_TRY(shd_path_make(path, "%s/step-%08lld", run->job->checkpoint.dir, (long long)step));
    return shd_resume_take(run->job, run->training_data, path, out);
}

/* Instead of the newest checkpoint, which is damaged, as sherd_last_error() tells: the next older one that is whole. */
static sherd_status find_older_way(const shd_job_run *run, shd_resume *out) {
    char path[SHD_PATH_BYTES];
    int64_t step = run->saver.saved_step;
    shd_resume_fini(out);
    SHD_TRY(shd_path_make(path, "%s/step-%08lld", run->job->checkpoint.dir, (long long)step));
    *out = (shd_resume){.path = shd_strdup(path), .place.step = step};
    if (!out->path) return shd_fail(SHERD_MEMORY, "no memory for a path");
    return shd_resume_find_older(run->job, run->training_data, shd_job_run_report(run), shd_job_run_oldest(run), out);
}

/* Loads it. A checkpoint that turns out to be damaged is left for an older one, and counts as none any more. */
static sherd_status load_way_back(shd_job_run *run) {
    shd_resume target = {0};
    sherd_status status = shd_session_agree(run->session, find_way_back(run, &target));
    if (status == SHERD_DATA) status = shd_session_agree(run->session, find_older_way(run, &target));
    if (status != SHERD_OK) {
        shd_resume_fini(&target);
        return status;
    }
    shd_resume_fini(&run->from);
    run->from = target;
    SHD_TRY(shd_job_run_fill(run));
    run->saver.saved_step = run->from.path && !run->from.weights_only ? run->from.place.step : -1;
    return SHERD_OK;
}

/* The step itself is to blame, but there is no way back from it. Returns `status`. */
static sherd_status tell_no_way(shd_job_run *run, const sherd_step_result *result, const shd_safety_place *place,
                                sherd_status status) {
    char cause[1000];
    if (sherd_status_is_fatal(status)) return status;
    snprintf(cause, sizeof cause, "%s", sherd_last_error());
    shd_safety_tell_failure(&run->safety, result, place);
    return shd_fail(status, "%s", cause);
}

sherd_status shd_job_run_roll_back(shd_job_run *run, const sherd_step_result *result, bool asked) {
    int64_t next_sequence = shd_job_run_place(run).sequence;
    shd_safety_place place = {.first_sequence = next_sequence - run->job->train.global_batch,
                              .saved_step = run->saver.saved_step};
    sherd_status status = load_way_back(run);
    if (status != SHERD_OK) return tell_no_way(run, result, &place, status);
    place.saved_step = run->saver.saved_step;
    SHD_TRY(shd_safety_go_back(&run->safety, result, &place, &run->from.safety));
    run->from.place.sequence = next_sequence;
    shd_session_set_lr_factor(run->session, run->safety.state.lr_factor);
    run->saver.asked |= asked;
    /* Rows that could not be written end the run here, and are what it tells of then: they stay. */
    if (run->cut_short) return SHERD_OK;
    SHD_TRY(shd_session_agree(run->session,
                              run->journal ? shd_journal_go_back(run->journal, run->summary.step) : SHERD_OK));
    shd_feed_destroy(run->training);
    run->training = NULL;
    SHD_TRY(shd_job_run_start_feed(run));
    run->row_end_ms = shd_clock_ms();
    return SHERD_OK;
}
