#include "runtime/train/note.h"

#include "io/job.h"
#include "io/json.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/train/job_setup.h"

/* The job inside a note. */
static sherd_status read_job(const char *note, shd_job **out) {
    json_t *root = note ? json_loads(note, 0, NULL) : NULL;
    const json_t *stored = json_object_get(root, "job");
    char *text = NULL;
    sherd_status status =
        json_is_object(stored)
            ? shd_json_print(stored, 0, &text)
            : shd_fail(SHERD_DATA, "the checkpoint does not say which model it holds: it was not saved by sherd train");
    json_decref(root);
    SHD_TRY(status);
    status = shd_job_from_json("the checkpoint's job", text, out);
    shd_free(text);
    /* Damage or another version of sherd, not the user's job file. */
    return status == SHERD_CONFIG ? shd_fail(SHERD_DATA, "%s", sherd_last_error()) : status;
}

sherd_status shd_note_model(const char *note, shd_model_config *out) {
    shd_job *job;
    SHD_TRY(read_job(note, &job));
    *out = shd_job_model_config(job);
    out->frozen = NULL;
    out->frozen_count = 0;
    out->micro_batch = 0;
    out->threads = 0;
    shd_job_destroy(job);
    return SHERD_OK;
}
