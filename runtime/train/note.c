#include "runtime/train/note.h"

#include "io/job.h"
#include "runtime/base/status.h"

#include <jansson.h>
#include <string.h>

/* Reads model.`key` of the resolved job; false where it is missing or no number. */
static bool read_integer(const json_t *model, const char *key, int64_t *out) {
    const json_t *value = json_object_get(model, key);
    *out = json_integer_value(value);
    return json_is_integer(value);
}

static bool read_model(const json_t *model, shd_model_config *out) {
    const char *family = json_string_value(json_object_get(model, "family"));
    const json_t *theta = json_object_get(model, "rope_theta"), *tied = json_object_get(model, "tied_embeddings");
    *out = (shd_model_config){.rope_theta = json_number_value(theta), .tied_embeddings = json_is_true(tied)};
    if (!family) return false;
    out->family = strcmp(family, shd_job_word("model.family", SHD_JOB_LLAMA)) ? SHD_MODEL_GPT2 : SHD_MODEL_LLAMA;
    return read_integer(model, "vocab_size", &out->vocab_size) && read_integer(model, "context", &out->context) &&
           read_integer(model, "d_model", &out->d_model) && read_integer(model, "n_layer", &out->n_layer) &&
           read_integer(model, "n_head", &out->n_head) && read_integer(model, "n_kv_head", &out->n_kv_head) &&
           read_integer(model, "d_ff", &out->d_ff) && json_is_number(theta) && json_is_boolean(tied);
}

sherd_status shd_note_model(const char *note, shd_model_config *out) {
    json_t *root = note ? json_loads(note, 0, NULL) : NULL;
    shd_model_config config;
    bool good = root && read_model(json_object_get(json_object_get(root, "job"), "model"), &config);
    json_decref(root);
    if (!good)
        return shd_fail(SHERD_DATA,
                        "the checkpoint does not say which model it holds: it was not saved by sherd train");
    *out = config;
    return SHERD_OK;
}
