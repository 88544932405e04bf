#include "runtime/train/fill.h"

#include "runtime/base/hash.h"
#include "runtime/base/status.h"
#include "runtime/session/setup.h"
#include "runtime/train/weights.h"

#include <stdio.h>

static sherd_status fill_afresh(const shd_fill_config *config) {
    const shd_job *job = config->job;
    if (!job->model.init.path) {
        shd_model_random random = {.model = config->model, .seed = (uint64_t)job->train.seed};
        return sherd_session_fill(config->session, shd_model_fill_random, &random);
    }
    shd_weights_file *file;
    SHD_TRY(shd_weights_file_open(job->model.init.path, config->model, &file));
    sherd_status status = sherd_session_fill(config->session, shd_weights_file_fill, file);
    shd_weights_file_close(file);
    return status;
}

/* What the checkpoint has of parameters; what is not to be loaded is as in a fresh run. */
static sherd_status load_weights(const shd_fill_config *config, const shd_resume *from) {
    const sherd_load load = shd_resume_load(config->job, from);
    if (load.skip_pattern_count > 0) SHD_TRY(fill_afresh(config));
    return sherd_session_load_with(config->session, from->path, &load, NULL);
}

/* All ranks have looked for themselves, and must have found the same. */
static sherd_status compare_choice(const shd_fill_config *config, const shd_resume *from) {
    const char *path = from->path ? from->path : "";
    return shd_session_compare(config->session, "a checkpoint to go on from", shd_hash_text(0, path));
}

/* A file that cannot be read may be as good as any, so only a person may pass over it. */
static sherd_status advise(const shd_resume *from, sherd_status status) {
    char cause[1000];
    if (status != SHERD_IO || !shd_resume_has_older(from)) return status;
    snprintf(cause, sizeof cause, "%s", sherd_last_error());
    return shd_fail(status, "%s; where it stays so, checkpoint.resume: PATH goes on from an older one", cause);
}

/* Damage shows while values are read, on all ranks alike; then they go on from an older checkpoint together. */
static sherd_status load_whole(const shd_fill_config *config, shd_resume *from) {
    for (;;) {
        sherd_status status = sherd_session_load(config->session, from->path, NULL);
        if (status != SHERD_DATA || !shd_resume_has_older(from)) return advise(from, status);
        SHD_TRY(shd_resume_find_older(config->job, config->dataset, config->report, config->oldest, from));
        SHD_TRY(compare_choice(config, from));
    }
}

sherd_status shd_fill_session(const shd_fill_config *config, shd_resume *from) {
    SHD_TRY(compare_choice(config, from));
    if (!from->path) return fill_afresh(config);
    return from->weights_only ? load_weights(config, from) : load_whole(config, from);
}
