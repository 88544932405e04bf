/* The job reader. Input: the text of a job file; after a NUL byte each, settings as after --set.
 *
 * A job that is accepted has absolute paths, can be explained, and comes back the same from its resolved form. */
#include "io/job.h"
#include "io/job_keys.h"
#include "runtime/base/memory.h"
#include "tests/fuzz/fuzz.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { SETTINGS_MAX = 8 };

static bool is_absolute(const char *path) { return path[0] == '/'; }

static void check_sources(const shd_job_sources *sources) {
    for (int32_t i = 0; i < sources->count; i++) {
        const shd_job_data_source *source = &sources->items[i];
        for (int32_t k = 0; k < source->path_count; k++) fuzz_check(is_absolute(source->paths[k]));
        for (int32_t k = 0; k < source->target_path_count; k++) fuzz_check(is_absolute(source->target_paths[k]));
    }
}

static void check_paths(const shd_job *job) {
    int32_t count;
    const shd_job_key *keys = shd_job_keys(&count);
    for (int32_t i = 0; i < count; i++) {
        const void *field = (const char *)job + keys[i].offset;
        const char *path = NULL;
        if (keys[i].kind == SHD_KIND_PATH || keys[i].kind == SHD_KIND_PATH_OR_NULL) path = *(const char *const *)field;
        if (keys[i].kind == SHD_KIND_WORD_OR_PATH) path = ((const shd_job_source *)field)->path;
        fuzz_check(path ? is_absolute(path) : keys[i].kind != SHD_KIND_PATH);
    }
    check_sources(&job->data.train);
    check_sources(&job->data.validation);
}

static void check_job(const shd_job *job) {
    char *first = NULL, *second = NULL, *explained = NULL;
    shd_job *again = NULL;
    fuzz_note_accepted();
    check_paths(job);
    fuzz_check(shd_job_explain(job, &explained) == SHERD_OK);
    fuzz_check(shd_job_resolved_json(job, &first) == SHERD_OK);
    fuzz_check(shd_job_from_json("note", first, &again) == SHERD_OK);
    fuzz_check(shd_job_resolved_json(again, &second) == SHERD_OK);
    fuzz_check(strcmp(first, second) == 0);
    shd_job_destroy(again);
    shd_free(explained);
    shd_free(first);
    shd_free(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const char *path;
    if (!path) path = fuzz_path("job.yaml");
    char *text = malloc(bytes + 1);
    fuzz_check(text);
    if (bytes > 0) memcpy(text, data, bytes);
    text[bytes] = 0;
    shd_job_setting settings[SETTINGS_MAX];
    int32_t count = 0;
    for (char *at = text + strlen(text) + 1; at <= text + bytes && count < SETTINGS_MAX; at += strlen(at) + 1)
        settings[count++] = (shd_job_setting){.text = at};

    fuzz_write(path, text, strlen(text));
    shd_job *job = NULL;
    sherd_status status = shd_job_load(path, settings, count, &job);
    if (status == SHERD_OK)
        check_job(job);
    else
        fuzz_check_refusal(status, SHERD_CONFIG);
    shd_job_destroy(job);
    fuzz_check_released();
    free(text);
    return 0;
}
