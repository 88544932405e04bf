#include "runtime/train/rollback.h"

#include "io/file.h"
#include "runtime/base/clock.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/session/setup.h"

/* What a run goes back to: its newest checkpoint, or where it began. *out is the caller's. */
static sherd_status find_way_back(const shd_job_run *run, shd_resume *out) {
    char path[SHD_PATH_BYTES];
    int64_t step = run->saver.saved_step;
    if (step < 0 || step == run->from.place.step) {
        *out = run->from;
        if (!run->from.path) return SHERD_OK;
        out->path = shd_strdup(run->from.path);
        return out->path ? SHERD_OK : shd_fail(SHERD_MEMORY, "no memory for a path");
    }
    SHD_TRY(shd_path_make(path, "%s/step-%08lld", run->job->checkpoint.dir, (long long)step));
    return shd_resume_take(run->job, run->training_data, path, out);
}

static sherd_status reopen_journal(shd_job_run *run) {
    if (!run->journal) return SHERD_OK;
    shd_journal_close(run->journal);
    run->journal = NULL;
    return shd_journal_open(run->job, shd_session_plan(run->session), run->summary.step, &run->journal);
}

sherd_status shd_job_run_roll_back(shd_job_run *run, bool asked) {
    int64_t next_sequence = shd_job_run_place(run).sequence;
    shd_resume target;
    SHD_TRY(shd_session_agree(run->session, find_way_back(run, &target)));
    shd_resume_fini(&run->from);
    run->from = target;
    SHD_TRY(shd_job_run_fill(run));
    run->from.place.sequence = next_sequence;
    shd_safety_go_back(&run->safety, &run->from.safety);
    shd_session_set_lr_factor(run->session, run->safety.state.lr_factor);
    run->saver.asked |= asked;
    SHD_TRY(shd_session_agree(run->session, reopen_journal(run)));
    shd_feed_destroy(run->training);
    run->training = NULL;
    SHD_TRY(shd_job_run_start_feed(run));
    run->row_end_ms = shd_clock_ms();
    return SHERD_OK;
}
