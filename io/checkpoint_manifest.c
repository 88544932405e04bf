/* The text: one key a line, one tensor a line, one file a line, closed by one more key,
 *
 *   …,
 *   "xxh3": "16 hexadecimal digits"
 * }
 *
 * whose value is the XXH3 of every byte before that comma. Reading compares the end byte by byte, so no byte is
 * unguarded. checkpoint_manifest_parse.c reads what the seal closes. */
#include "io/checkpoint_manifest.h"

#include "io/checkpoint_file.h"
#include "io/checkpoint_manifest_parse.h"
#include "io/file.h"
#include "io/json.h"
#include "io/text.h"
#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

enum { SEAL_BYTES = 33 };

int64_t shd_element_count(const sherd_tensor *tensor) {
    int64_t count = 1;
    for (int32_t d = 0; d < tensor->dim_count; d++) count *= tensor->shape[d];
    return count;
}

bool shd_ranges_gap(const shd_checkpoint_range *ranges, int64_t count, int64_t element_count,
                    shd_checkpoint_range *gap) {
    int64_t covered = 0, end = element_count;
    for (int64_t i = 0; i < count; i++) {
        if (ranges[i].first > covered) {
            end = ranges[i].first;
            break;
        }
        covered = shd_max(covered, ranges[i].first + ranges[i].count);
    }
    if (covered >= end) return false;
    *gap = (shd_checkpoint_range){.first = covered, .count = end - covered};
    return true;
}

/* The end of a manifest whose text so far is `body`. */
static void make_seal(const char *body, int64_t body_bytes, char seal[SEAL_BYTES + 1]) {
    snprintf(seal, SEAL_BYTES + 1, ",\n  \"xxh3\": \"%016llx\"\n}\n",
             (unsigned long long)XXH3_64bits(body, (size_t)body_bytes));
}

/* --- printing ----------------------------------------------------------------------------------------------------- */

/* Adds `value`, which it takes, on one line; NULL has had a name that is not UTF-8, or no memory. */
static sherd_status add_json(shd_text *text, json_t *value) {
    if (!value)
        return shd_fail(SHERD_ARGUMENT,
                        "a checkpoint's manifest cannot be made: a name is not UTF-8, or memory is out");
    char *line = NULL;
    sherd_status status = shd_json_print(value, 0, &line);
    json_decref(value);
    if (status == SHERD_OK) shd_text_add(text, "%s", line);
    shd_free(line);
    return status;
}

static sherd_status add_key(shd_text *text, const char *key, json_t *value) {
    shd_text_add(text, "%s\n  \"%s\": ", text->length > 1 ? "," : "", key);
    return add_json(text, value);
}

/* Begins entry `index` of the list `key`, on a line of its own. */
static void add_entry(shd_text *text, int32_t index) { shd_text_add(text, "%s\n    ", index > 0 ? "," : ""); }

static json_t *describe_time(int64_t time_s) {
    time_t time = (time_t)time_s;
    struct tm utc;
    char text[32];
    if (!gmtime_r(&time, &utc) || strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0) return NULL;
    return json_string(text);
}

static json_t *describe_optimizer(const shd_checkpoint_manifest *manifest) {
    json_t *states = json_array();
    for (int32_t i = 0; i < manifest->state_count; i++)
        json_array_append_new(states, json_string(manifest->state_names[i]));
    bool whole = (int64_t)json_array_size(states) == manifest->state_count;
    json_t *about =
        json_pack("{s:s, s:I, s:s, s:o}", "name", manifest->optimizer, "updates", (json_int_t)manifest->update_count,
                  "state_dtype", shd_dtype_text(manifest->state_dtype), "states", states);
    if (whole) return about;
    json_decref(about);
    return NULL;
}

static json_t *describe_value(const shd_checkpoint_value *value) {
    json_t *ranges = json_array();
    for (int64_t i = 0; i < value->range_count; i++) {
        const shd_checkpoint_range *range = &value->ranges[i];
        json_array_append_new(ranges,
                              json_pack("[i, I, I]", range->rank, (json_int_t)range->first, (json_int_t)range->count));
    }
    return json_pack("{s:s, s:I, s:o}", "dtype", shd_dtype_text(value->dtype), "elements",
                     (json_int_t)value->element_count, "ranges", ranges);
}

static json_t *describe_tensor(const shd_checkpoint_manifest *manifest, int32_t index) {
    const sherd_tensor *tensor = &manifest->tensors[index];
    const shd_checkpoint_value *values = &manifest->values[(int64_t)index * (1 + manifest->state_count)];
    json_t *shape = json_array(), *states = json_object();
    for (int32_t d = 0; d < tensor->dim_count; d++) json_array_append_new(shape, json_integer(tensor->shape[d]));
    for (int32_t s = 0; s < manifest->state_count; s++)
        if (values[1 + s].element_count > 0)
            json_object_set_new(states, manifest->state_names[s], describe_value(&values[1 + s]));
    return json_pack("{s:s, s:o, s:b, s:o, s:o}", "name", tensor->name, "shape", shape, "frozen", tensor->frozen,
                     "parameter", describe_value(&values[0]), "states", states);
}

static sherd_status add_tensors(shd_text *text, const shd_checkpoint_manifest *manifest) {
    shd_text_add(text, ",\n  \"tensors\": [");
    for (int32_t i = 0; i < manifest->tensor_count; i++) {
        add_entry(text, i);
        SHD_TRY(add_json(text, describe_tensor(manifest, i)));
    }
    shd_text_add(text, "%s]", manifest->tensor_count > 0 ? "\n  " : "");
    return SHERD_OK;
}

static sherd_status add_files(shd_text *text, const shd_checkpoint_manifest *manifest) {
    shd_text_add(text, ",\n  \"files\": [");
    for (int32_t i = 0; i < manifest->world_size; i++) {
        const shd_checkpoint_file *file = &manifest->files[i];
        add_entry(text, i);
        SHD_TRY(add_json(text, json_pack("{s:o, s:I, s:o}", "name", json_sprintf("rank-%05d.bin", i), "bytes",
                                         (json_int_t)file->bytes, "xxh3", shd_json_from_hash(file->index_hash))));
    }
    shd_text_add(text, "\n  ]");
    return SHERD_OK;
}

static sherd_status add_note(shd_text *text, const char *note) {
    json_t *object = NULL;
    char *lines = NULL;
    sherd_status status = shd_json_parse(note ? note : "{}", note ? (int64_t)strlen(note) : 2, &object);
    if (status != SHERD_OK) return shd_fail_within(status, "the note for the checkpoint");
    status = shd_json_print(object, 2, &lines);
    json_decref(object);
    SHD_TRY(status);
    shd_text_add(text, ",\n  \"note\": ");
    /* A line end is never inside a JSON text, so that lines can be moved. */
    for (char *line = lines, *end; line; line = end) {
        end = strchr(line, '\n');
        if (end) *end++ = 0;
        shd_text_add(text, "%s%s", line, end ? "\n  " : "");
    }
    shd_free(lines);
    return SHERD_OK;
}

/* All but the seal. */
static sherd_status add_body(shd_text *text, const shd_checkpoint_manifest *manifest) {
    const shd_checkpoint_scale *scale = &manifest->loss_scale;
    shd_text_add(text, "{");
    SHD_TRY(add_key(text, "version", json_integer(SHD_CHECKPOINT_VERSION)));
    SHD_TRY(add_key(text, "step", json_integer(manifest->step)));
    SHD_TRY(add_key(text, "time", describe_time(manifest->time_s)));
    SHD_TRY(add_key(text, "mesh",
                    json_pack("{s:i, s:i}", "ranks", manifest->world_size, "replicas",
                              manifest->replicas > 1 ? manifest->replicas : 1)));
    SHD_TRY(add_key(text, "stage", json_integer(manifest->stage)));
    SHD_TRY(add_key(text, "precision", json_string(shd_dtype_text(manifest->precision))));
    SHD_TRY(add_key(text, "optimizer", describe_optimizer(manifest)));
    if (scale->scale != 0)
        SHD_TRY(add_key(text, "loss_scale",
                        json_pack("{s:f, s:i, s:i}", "scale", scale->scale, "good_steps", scale->good_steps,
                                  "hysteresis", scale->hysteresis)));
    SHD_TRY(add_key(
        text, "bytes",
        json_pack("{s:I, s:I}", "raw", (json_int_t)manifest->raw_bytes, "stored", (json_int_t)manifest->stored_bytes)));
    SHD_TRY(add_tensors(text, manifest));
    SHD_TRY(add_files(text, manifest));
    return add_note(text, manifest->note);
}

/* A writer must not make what its reader refuses: a name that is there twice, say. */
static sherd_status check_text(const char *text) {
    shd_keep *keep = shd_keep_create();
    shd_checkpoint_manifest again;
    if (!keep) return shd_fail(SHERD_MEMORY, "out of memory for a checkpoint's manifest");
    sherd_status status = shd_manifest_parse(text, (int64_t)strlen(text), keep, &again);
    shd_keep_destroy(keep);
    if (status != SHERD_DATA) return status;
    return shd_fail_within(SHERD_ARGUMENT, "a checkpoint's manifest cannot be made");
}

sherd_status shd_manifest_print(const shd_checkpoint_manifest *manifest, char **out) {
    shd_text text = {0};
    char seal[SEAL_BYTES + 1], *whole = NULL;
    sherd_status status = add_body(&text, manifest);
    if (status == SHERD_OK && !text.failed) {
        make_seal(text.bytes, (int64_t)text.length, seal);
        shd_text_add(&text, "%s", seal);
    }
    if (status != SHERD_OK) {
        shd_free(text.bytes);
        return status;
    }
    SHD_TRY(shd_text_finish(&text, &whole));
    status = check_text(whole);
    if (status == SHERD_OK)
        *out = whole;
    else
        shd_free(whole);
    return status;
}

sherd_status shd_manifest_write(const char *folder, const shd_checkpoint_manifest *manifest) {
    char path[SHD_PATH_BYTES], *text = NULL;
    int descriptor = -1;
    SHD_TRY(shd_path_make(path, "%s/" SHD_MANIFEST_NAME, folder));
    SHD_TRY(shd_manifest_print(manifest, &text));
    sherd_status status = shd_file_create(path, &descriptor);
    if (status == SHERD_OK) status = shd_file_write(descriptor, path, text, (int64_t)strlen(text));
    if (status == SHERD_OK) status = shd_file_sync(descriptor, path);
    shd_file_close(descriptor);
    shd_free(text);
    return status;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

sherd_status shd_manifest_parse(const char *text, int64_t bytes, shd_keep *keep, shd_checkpoint_manifest *out) {
    char seal[SEAL_BYTES + 1];
    json_t *object = NULL;
    if (bytes < SEAL_BYTES) return shd_fail(SHERD_DATA, "it is damaged: only %lld bytes are there", (long long)bytes);
    make_seal(text, bytes - SEAL_BYTES, seal);
    if (memcmp(text + bytes - SEAL_BYTES, seal, SEAL_BYTES) != 0)
        return shd_fail(SHERD_DATA, "it is damaged, or was changed by hand: its checksum does not match");
    SHD_TRY(shd_json_parse(text, bytes, &object));
    sherd_status status = shd_manifest_take(object, keep, out);
    json_decref(object);
    return status;
}

static sherd_status read_open(int descriptor, const char *path, int64_t bytes, shd_keep *keep,
                              shd_checkpoint_manifest *out) {
    if (bytes > SHD_MANIFEST_BYTES_MAX) return shd_fail(SHERD_DATA, "%lld bytes are too many", (long long)bytes);
    char *text = shd_alloc((size_t)bytes, 1);
    if (!text) return shd_fail(SHERD_MEMORY, "out of memory for a checkpoint's manifest");
    sherd_status status = shd_file_read(descriptor, path, 0, text, bytes);
    if (status == SHERD_OK) {
        status = shd_manifest_parse(text, bytes, keep, out);
        if (status != SHERD_OK) shd_fail_within(status, "%s", path);
    }
    shd_free(text);
    return status;
}

sherd_status shd_manifest_read(const char *folder, shd_keep *keep, shd_checkpoint_manifest *out) {
    char path[SHD_PATH_BYTES];
    int descriptor;
    int64_t bytes;
    SHD_TRY(shd_path_make(path, "%s/" SHD_MANIFEST_NAME, folder));
    SHD_TRY(shd_file_open(path, &descriptor, &bytes));
    sherd_status status = read_open(descriptor, path, bytes, keep, out);
    shd_file_close(descriptor);
    return status;
}
