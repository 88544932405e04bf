#include "runtime/train/job_place.h"

#include "io/job_keys.h"
#include "runtime/base/status.h"
#include "runtime/session/setup.h"

#include <stdio.h>

/* What jobs may ask for and devices do not have. */
static sherd_status check_features(const shd_job *job) {
    bool whole = job->optimizer.name == SHERD_MUON || job->optimizer.name == SHERD_ADAFACTOR;
    if (whole)
        return shd_fail(SHERD_CONFIG,
                        "optimizer.name is %s, which runs on the CPU only; take another, or run.device: cpu",
                        shd_job_word("optimizer.name", (int32_t)job->optimizer.name));
    int64_t head_size = job->model.family == SHD_JOB_MLP ? 1 : job->model.d_model / job->model.n_head;
    if (head_size > SHD_DEVICE_HEAD_MAX)
        return shd_fail(SHERD_CONFIG,
                        "model.n_head is %lld, which makes heads of %lld numbers, and devices have room for %d; take "
                        "more heads, or run.device: cpu",
                        (long long)job->model.n_head, (long long)head_size, SHD_DEVICE_HEAD_MAX);
    if (job->train.sample_tokens > 0)
        return shd_fail(
            SHERD_CONFIG,
            "train.sample_tokens is %lld, and texts are written on the CPU only; take 0, or run.device: cpu",
            (long long)job->train.sample_tokens);
    if (job->shard.gather == SHERD_GATHER_SHARED)
        return shd_fail(SHERD_CONFIG,
                        "shard.gather is shared, but devices share no memory; take auto, or run.device: cpu");
    return SHERD_OK;
}

static sherd_status find_device(const shd_job *job) {
    const shd_device_ops *backend = shd_device_backend();
    int32_t count;
    if (!backend || !shd_ops_device())
        return shd_fail(SHERD_CONFIG,
                        "run.device is %s, but this program was built where its toolkit was missing; build it "
                        "where that is, or take run.device: cpu",
                        shd_job_word("run.device", (int32_t)job->run.device));
    sherd_status status = backend->count(&count);
    if (status == SHERD_OK) return check_features(job);
    char cause[512];
    snprintf(cause, sizeof cause, "%s", sherd_last_error());
    return shd_fail(status, "run.device is %s, but %s", shd_job_word("run.device", (int32_t)job->run.device), cause);
}

static bool wants_host_comm(const shd_job *job) {
    return job->run.comm == SHD_JOB_COMM_SELF || job->run.comm == SHD_JOB_COMM_SHM;
}

/* With `auto`. */
static void choose(const shd_job *job, shd_job_place *place) {
    int32_t count;
    const shd_device_ops *backend = shd_device_backend();
    if (!backend || !shd_ops_device() || backend->count(&count) != SHERD_OK) return;
    place->device = !(wants_host_comm(job) && job->run.ranks > 1) && check_features(job) == SHERD_OK;
    if (place->device) return;
    if (wants_host_comm(job) && job->run.ranks > 1)
        snprintf(place->passed_over, sizeof place->passed_over, "run.comm is %s",
                 shd_job_word("run.comm", (int32_t)job->run.comm));
    else
        snprintf(place->passed_over, sizeof place->passed_over, "%s", sherd_last_error());
}

sherd_status shd_job_find_place(const shd_job *job, shd_job_place *out) {
    shd_job_place place = {.ops = &shd_ops_cpu};
    if (job->run.device == SHD_JOB_DEVICE_GPU) {
        sherd_status status = find_device(job);
        if (status != SHERD_OK) return shd_job_fail_within(job, status);
        place.device = true;
    } else if (job->run.device == SHD_JOB_DEVICE_AUTO) {
        choose(job, &place);
    }
    if (place.device) place.ops = shd_ops_device();
    *out = place;
    return SHERD_OK;
}

/* --- a model's place ---------------------------------------------------------------------------------------------- */

static sherd_status wait(void *session, shd_event *event) {
    return shd_session_await(session, event, "the copy of a micro-batch");
}

sherd_status shd_job_place_model(shd_model *model, sherd_session *session) {
    shd_session_place found;
    if (!shd_session_device(session, &found)) return SHERD_OK;
    const shd_model_place place = {
        .device_ops = found.device_ops, .device = found.device, .stream = found.stream, .wait = wait, .user = session};
    return shd_model_move(model, &place);
}

void shd_job_end_session(shd_model *model, sherd_session *session) {
    if (model) {
        shd_session_rest(session);
        shd_model_leave(model);
    }
    sherd_session_destroy(session);
    shd_model_destroy(model);
}
