#include "runtime/train/saver.h"

#include "io/events.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <stdio.h>

static const double MINUTE_MS = 60e3;

bool shd_saver_wishes(const shd_saver *saver) {
    double every_ms = saver->job->checkpoint.every_minutes * MINUTE_MS;
    return saver->speaks && every_ms > 0 && !saver->asked && shd_clock_ms() - saver->begun_ms >= every_ms;
}

void shd_saver_know_folder(shd_saver *saver) {
    shd_folder_id folder;
    if (saver->speaks && shd_folder_identify(saver->job->checkpoint.dir, &folder) == SHERD_OK) saver->folder = folder;
}

double shd_saver_take_wait(shd_saver *saver) {
    double wait_ms = saver->wait_ms;
    saver->wait_ms = 0;
    return wait_ms;
}

/* --- what has ended ----------------------------------------------------------------------------------------------- */

/* Tells the caller of the run when saves begin and end to be under way. */
static void mark(shd_saver *saver, bool saving) {
    if (saver->marked == saving) return;
    saver->marked = saving;
    if (saver->hooks->saving) saver->hooks->saving(saver->hooks->user, saving);
}

/* Where events are told: by the rank that speaks. */
static const char *event_dir(const shd_saver *saver) { return saver->speaks ? saver->job->log.dir : NULL; }

static void log_saved(const shd_saver *saver, const sherd_save_result *result) {
    double raw = (double)result->raw_bytes, stored = (double)result->stored_bytes;
    double unit = raw >= 1 << 20 ? 1 << 20 : 1 << 10;
    if (!saver->speaks) return;
    shd_log(SHERD_LOG_INFO, "saved %s/step-%08lld: %.1f of %.1f %s, in %.2f s", saver->job->checkpoint.dir,
            (long long)result->step, stored / unit, raw / unit, unit > 1 << 10 ? "MiB" : "KiB", result->seconds);
}

/* Says when checkpoint.dir is not the folder that it was: a save makes one that is missing. */
static void watch_folder(shd_saver *saver) {
    const shd_folder_id before = saver->folder;
    shd_saver_know_folder(saver);
    if (before.inode != 0 && (saver->folder.device != before.device || saver->folder.inode != before.inode))
        shd_log(
            SHERD_LOG_WARN,
            "%s is another folder than it was: somebody has removed or replaced it, with all checkpoints in it, and "
            "with the lock that keeps other jobs out",
            saver->job->checkpoint.dir);
}

static void note_saved(shd_saver *saver, const sherd_save_result *result) {
    watch_folder(saver);
    saver->failures_in_row = 0;
    saver->saved_step = result->step;
    saver->total.saved_count++;
    log_saved(saver, result);
    shd_event_tell(event_dir(saver), SHD_EVENT_SAVE, result->step, -1, "%lld of %lld bytes in %.2f s",
                   (long long)result->stored_bytes, (long long)result->raw_bytes, result->seconds);
    const shd_train_save save = {.step = result->step,
                                 .raw_bytes = result->raw_bytes,
                                 .stored_bytes = result->stored_bytes,
                                 .seconds = result->seconds};
    if (saver->hooks->saved) saver->hooks->saved(saver->hooks->user, &save);
}

/* Files that vanish while they are written are no bad data of the job's. */
static sherd_status failure_of(const sherd_save_result *result) {
    return result->status == SHERD_DATA ? SHERD_IO : result->status;
}

/* What ends the run, or OK. */
static sherd_status note_failed(shd_saver *saver, const sherd_save_result *result, bool last) {
    char why[200] = "";
    shd_job_on_error on_error = saver->job->checkpoint.on_error;
    saver->failures_in_row++;
    saver->total.failed_count++;
    snprintf(saver->cause, sizeof saver->cause, "%s", result->cause);
    shd_event_tell(event_dir(saver), SHD_EVENT_SAVE_FAILED, result->step, -1, "%s", result->cause);
    bool ends =
        on_error == SHD_ON_ERROR_FAIL || (on_error == SHD_ON_ERROR_STOP && saver->failures_in_row >= SHD_SAVE_FAILURES);
    if (ends && !last && on_error == SHD_ON_ERROR_STOP)
        snprintf(why, sizeof why, "; that was %d times in a row, and the run ends: checkpoint.on_error is stop",
                 saver->failures_in_row);
    else if (ends && !last)
        snprintf(why, sizeof why, "; the run ends: checkpoint.on_error is fail");
    if (ends || last)
        return shd_fail(failure_of(result), "step %lld could not be saved: %s%s", (long long)result->step,
                        result->cause, why);
    if (saver->speaks)
        shd_log(SHERD_LOG_WARN, "step %lld could not be saved: %s; training goes on, older checkpoints are untouched",
                (long long)result->step, result->cause);
    return SHERD_OK;
}

/* `last`: the save that has ended is the run's last. */
static sherd_status collect(shd_saver *saver, bool last) {
    sherd_save_result result;
    sherd_session_save_result(saver->session, &result);
    mark(saver, sherd_session_save_pending(saver->session));
    if (result.count == saver->seen_count) return SHERD_OK;
    saver->seen_count = result.count;
    if (result.status != SHERD_OK) return note_failed(saver, &result, last);
    note_saved(saver, &result);
    return SHERD_OK;
}

/* Ends the save that is under way, if one is. */
static sherd_status finish(shd_saver *saver, bool last) {
    if (sherd_session_save_pending(saver->session)) {
        double start_ms = shd_clock_ms();
        sherd_status status = sherd_session_save_wait(saver->session);
        saver->wait_ms += shd_clock_ms() - start_ms;
        if (status != SHERD_OK && sherd_session_save_pending(saver->session)) return status;
    }
    return collect(saver, last);
}

/* --- beginning ---------------------------------------------------------------------------------------------------- */

static sherd_status begin(shd_saver *saver, int64_t step, bool last) {
    double start_ms = shd_clock_ms();
    char *note;
    SHD_TRY(saver->note(saver->user, &note));
    mark(saver, true);
    sherd_status status = sherd_session_save_begin(saver->session, saver->job->checkpoint.dir, note);
    shd_free(note);
    SHD_TRY(status);
    saver->begun_step = step;
    saver->begun_ms = shd_clock_ms();
    saver->asked = false;
    saver->wait_ms += saver->begun_ms - start_ms;
    return collect(saver, last);
}

static bool is_due_by_steps(const shd_saver *saver, int64_t step) {
    int64_t every = saver->job->checkpoint.every;
    return every > 0 && step % every == 0;
}

/* Whether there is nothing to begin, because the save before is still being written. One that somebody has asked for is
 * put off; one that is due by steps is left out. */
static bool skips(const shd_saver *saver, int64_t step) {
    if (!sherd_session_save_pending(saver->session) || saver->job->checkpoint.if_busy == SHD_IF_BUSY_WAIT) return false;
    if (saver->speaks && is_due_by_steps(saver, step))
        shd_log(SHERD_LOG_WARN, "step %lld is not saved: step %lld still is being written (checkpoint.if_busy: skip)",
                (long long)step, (long long)saver->begun_step);
    return true;
}

/* The state of the run's last step is saved, or being saved, or must be: once more, if that has failed. What became of a
 * save before it is no reason to lose it. */
static sherd_status save_last(shd_saver *saver, int64_t step) {
    sherd_status before = finish(saver, false);
    if (sherd_status_is_fatal(before)) return before;
    if (before != SHERD_OK && saver->speaks) shd_log(SHERD_LOG_WARN, "%s", sherd_last_error());
    if (saver->saved_step == step) return SHERD_OK;
    SHD_TRY(begin(saver, step, true));
    return finish(saver, true);
}

sherd_status shd_saver_boundary(shd_saver *saver, int64_t step, bool asked, bool last) {
    saver->asked |= asked;
    if (last) return save_last(saver, step);
    SHD_TRY(collect(saver, false));
    if (!saver->asked && !is_due_by_steps(saver, step)) return SHERD_OK;
    if (skips(saver, step)) return SHERD_OK;
    SHD_TRY(finish(saver, false));
    return begin(saver, step, false);
}

sherd_status shd_saver_settle(shd_saver *saver) { return finish(saver, false); }

/* --- the end ------------------------------------------------------------------------------------------------------ */

void shd_saver_rescue(shd_saver *saver, int64_t step) {
    if (save_last(saver, step) != SHERD_OK && saver->speaks) shd_log(SHERD_LOG_WARN, "%s", sherd_last_error());
}

sherd_status shd_saver_verdict(const shd_saver *saver) {
    const shd_train_saves *total = &saver->total;
    if (total->failed_count == 0) return SHERD_OK;
    return shd_fail(
        SHERD_IO, "%lld of %lld checkpoints could not be saved; the last step's is complete; the last failure: %s",
        (long long)total->failed_count, (long long)(total->failed_count + total->saved_count), saver->cause);
}
