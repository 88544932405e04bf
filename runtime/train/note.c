#include "runtime/train/note.h"

#include "io/json.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/train/job_setup.h"

/* Sets a key that the job has. */
static bool set(json_t *job, const char *section, const char *key, json_t *value) {
    return json_object_set_new(json_object_get(job, section), key, value) == 0;
}

static int64_t get(const json_t *job, const char *section, const char *key) {
    return json_integer_value(json_object_get(json_object_get(job, section), key));
}

static bool change_ranks(json_t *job, int32_t ranks) {
    const int64_t step = get(job, "train", "micro_batch") * ranks, replicas = get(job, "shard", "replicas");
    bool good = set(job, "run", "ranks", json_integer(ranks));
    if (step > 0 && get(job, "train", "global_batch") % step)
        good = good && set(job, "train", "global_batch", json_integer(step));
    if (replicas > 1 && ranks % replicas) good = good && set(job, "shard", "replicas", json_integer(1));
    return good;
}

static bool change_data(json_t *job, const char *tokens) {
    return set(job, "data", "train", json_string(tokens)) && set(job, "data", "validation", json_null()) &&
           set(job, "data", "format", json_string("u32")) && set(job, "train", "evaluate_every", json_integer(0)) &&
           set(job, "train", "sample_tokens", json_integer(0));
}

bool shd_note_has_job(const char *note) {
    json_t *root = note ? json_loads(note, 0, NULL) : NULL;
    bool has = json_is_object(json_object_get(root, "job"));
    json_decref(root);
    return has;
}

static bool change(json_t *job, const shd_note_changes *changes) {
    bool good = changes->ranks == 0 || change_ranks(job, changes->ranks);
    if (changes->replicas > 0) good = good && set(job, "shard", "replicas", json_integer(changes->replicas));
    if (changes->tokens) good = good && change_data(job, changes->tokens);
    for (int i = 0; good && changes->dir && i < 3; i++)
        good = set(job, (const char *[]){"run", "log", "checkpoint"}[i], "dir", json_string(changes->dir));
    return good;
}

/* The job inside a note, changed, as a text. */
static sherd_status read_text(const char *note, const shd_note_changes *changes, char **out) {
    json_t *root = note ? json_loads(note, 0, NULL) : NULL, *stored = json_object_get(root, "job");
    sherd_status status = SHERD_OK;
    if (!json_is_object(stored))
        status =
            shd_fail(SHERD_DATA, "the checkpoint does not say which model it holds: it was not saved by sherd train");
    else if (changes && !change(stored, changes))
        status = shd_fail(SHERD_DATA, "the checkpoint's job lacks keys that every job has");
    if (status == SHERD_OK) status = shd_json_print(stored, 0, out);
    json_decref(root);
    return status;
}

sherd_status shd_note_job(const char *note, const shd_note_changes *changes, shd_job **out) {
    char *text;
    SHD_TRY(read_text(note, changes, &text));
    sherd_status status = shd_job_from_json("the checkpoint's job", text, out);
    shd_free(text);
    /* Damage or another version of sherd, unless the user has changed it. */
    return status == SHERD_CONFIG && !changes ? shd_fail(SHERD_DATA, "%s", sherd_last_error()) : status;
}

sherd_status shd_note_model(const char *note, shd_model_config *out) {
    shd_job *job;
    SHD_TRY(shd_note_job(note, NULL, &job));
    *out = shd_job_model_config(job);
    out->frozen = NULL;
    out->frozen_count = 0;
    out->micro_batch = 0;
    out->threads = 0;
    shd_job_destroy(job);
    return SHERD_OK;
}
