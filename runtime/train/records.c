#include "runtime/train/records.h"

#include "io/events.h"
#include "runtime/base/log.h"
#include "runtime/train/provenance.h"
#include "runtime/train/tracing.h"

static bool writes(const shd_records *records) { return records->options->rank == 0; }

static void tell_start(const shd_records *records, int64_t step) {
    const shd_job *job = records->job;
    const char *path = records->from->path;
    int32_t ranks = records->options->world_size;
    bool resumes = path && !records->from->weights_only;
    shd_event_tell(job->log.dir, resumes ? SHD_EVENT_RESUME : SHD_EVENT_START, step, -1,
                   "%s: %lld steps, %d rank%s, stage %d%s%s", job->top.name, (long long)job->train.steps, ranks,
                   ranks == 1 ? "" : "s", records->options->stage, path ? ", from " : "", path ? path : "");
}

void shd_records_start(const shd_records *records, int64_t step) {
    const shd_provenance about = {.job = records->job,
                                  .plan = shd_session_plan(records->session),
                                  .threads = records->options->threads,
                                  .recorder = shd_session_recorder(records->session),
                                  .first_step = step,
                                  .resumed_from = records->from->path};
    if (!writes(records)) return;
    if (shd_provenance_write(&about) != SHERD_OK) shd_log(SHERD_LOG_WARN, "no provenance.json: %s", sherd_last_error());
    tell_start(records, step);
}

void shd_records_step(const shd_records *records, int64_t step) {
    int32_t cut = 0;
    if (!writes(records) || !shd_tracing_wants(records->job, step)) return;
    if (shd_tracing_write(shd_session_recorder(records->session), records->job->log.dir, step, &cut) != SHERD_OK)
        shd_log(SHERD_LOG_WARN, "no trace of step %lld: %s", (long long)step, sherd_last_error());
    else if (cut > 0)
        shd_log(SHERD_LOG_WARN,
                "the trace of step %lld lacks its beginning on %d rank%s: a recorder has room for %d instructions",
                (long long)step, cut, cut == 1 ? "" : "s", SHD_RECORDER_EVENTS);
}

void shd_records_end(const shd_records *records, const shd_train_summary *summary) {
    const char *dir = records->job->log.dir;
    bool idle = summary->step == summary->first_step && !summary->stopped; /* there was nothing to do */
    if (!writes(records) || idle) return;
    if (summary->stopped)
        shd_event_tell(dir, SHD_EVENT_STOP, summary->step, -1, "told to stop; %lld of %lld steps are done",
                       (long long)summary->step, (long long)records->job->train.steps);
    else
        shd_event_tell(dir, SHD_EVENT_END, summary->step, -1, "loss %.6g", summary->loss);
}
