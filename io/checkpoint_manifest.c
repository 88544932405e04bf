/* The text is what jansson prints, closed by one more key:
 *
 *   …,
 *   "xxh3": "16 hexadecimal digits"
 * }
 *
 * whose value is the XXH3 of every byte before that comma. Reading compares the end byte by byte, so no byte is
 * unguarded. */
#include "io/checkpoint_manifest.h"

#include "io/checkpoint_pieces.h"
#include "io/file.h"
#include "io/json.h"
#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum { VERSION = 1, INDENT = 2, WORLD_SIZE_MAX = 1 << 20, SEAL_BYTES = 33, MANIFEST_BYTES_MAX = 1 << 30 };

static sherd_status fail_memory(void) { return shd_fail(SHERD_MEMORY, "out of memory for a checkpoint's manifest"); }

/* The end of a manifest whose text so far is `body`. */
static void make_seal(const char *body, int64_t body_bytes, char seal[SEAL_BYTES + 1]) {
    snprintf(seal, SEAL_BYTES + 1, ",\n  \"xxh3\": \"%016llx\"\n}\n",
             (unsigned long long)XXH3_64bits(body, (size_t)body_bytes));
}

/* Values of each state that tensor `index` has; NULL where that goes without saying. */
static json_t *describe_sizes(const shd_checkpoint_manifest *manifest, int32_t index) {
    if (!manifest->state_elements) return NULL;
    json_t *sizes = json_object();
    for (int32_t s = 0; s < manifest->state_count; s++) {
        int64_t elements = manifest->state_elements[(int64_t)index * manifest->state_count + s];
        if (elements > 0) json_object_set_new(sizes, manifest->state_names[s], json_integer(elements));
    }
    return sizes;
}

static json_t *describe_tensors(const shd_checkpoint_manifest *manifest) {
    json_t *list = json_array();
    for (int32_t i = 0; i < manifest->tensor_count; i++) {
        const sherd_tensor *tensor = &manifest->tensors[i];
        json_t *shape = json_array();
        for (int32_t d = 0; d < tensor->dim_count; d++) json_array_append_new(shape, json_integer(tensor->shape[d]));
        json_array_append_new(list, json_pack("{s:s, s:O, s:b, s:o*}", "name", tensor->name, "shape", shape, "frozen",
                                              tensor->frozen, "states", describe_sizes(manifest, i)));
        json_decref(shape);
    }
    return list;
}

static json_t *describe_files(int32_t world_size, const shd_manifest_file *files) {
    json_t *list = json_array();
    for (int32_t i = 0; i < world_size; i++)
        json_array_append_new(list,
                              json_pack("{s:o, s:I, s:o}", "name", json_sprintf("rank-%05d.bin", i), "bytes",
                                        (json_int_t)files[i].bytes, "xxh3", shd_json_from_hash(files[i].header_hash)));
    return list;
}

static json_t *describe_states(const shd_checkpoint_manifest *manifest) {
    json_t *list = json_array();
    for (int32_t i = 0; i < manifest->state_count; i++)
        json_array_append_new(list, json_string(manifest->state_names[i]));
    return list;
}

/* NULL where there is none. */
static json_t *describe_scale(const shd_checkpoint_scale *scale) {
    if (scale->scale == 0) return NULL;
    return json_pack("{s:f, s:i, s:i}", "scale", scale->scale, "good_steps", scale->good_steps, "hysteresis",
                     scale->hysteresis);
}

/* Takes `note`. Lists that lost an entry, or are not there, had a name that is not UTF-8 or no memory. */
static sherd_status describe(const shd_checkpoint_manifest *manifest, const shd_manifest_file *files, json_t *note,
                             json_t **out) {
    json_t *states = describe_states(manifest), *tensors = describe_tensors(manifest);
    json_t *list = describe_files(manifest->world_size, files);
    bool whole = (int64_t)json_array_size(states) == manifest->state_count &&
                 (int64_t)json_array_size(tensors) == manifest->tensor_count &&
                 (int64_t)json_array_size(list) == manifest->world_size;
    json_t *object =
        json_pack("{s:i, s:I, s:i, s:i, s:i, s:o, s:s, s:{s:s, s:I, s:s*, s:o}, s:o*, s:o, s:o, s:o}", "version",
                  VERSION, "step", (json_int_t)manifest->step, "world_size", manifest->world_size, "replicas",
                  manifest->replicas > 1 ? manifest->replicas : 1, "stage", manifest->stage, "layout",
                  shd_json_from_hash(manifest->layout_hash), "precision", shd_dtype_text(manifest->precision),
                  "optimizer", "name", manifest->optimizer, "updates", (json_int_t)manifest->update_count,
                  "state_dtype", shd_json_from_dtype(manifest->state_dtype), "states", states, "loss_scale",
                  describe_scale(&manifest->loss_scale), "tensors", tensors, "files", list, "note", note);
    if (!object || !whole) {
        json_decref(object);
        return shd_fail(SHERD_ARGUMENT,
                        "a checkpoint's manifest cannot be made: a name is not UTF-8, or memory is out");
    }
    *out = object;
    return SHERD_OK;
}

static sherd_status print_manifest(const shd_checkpoint_manifest *manifest, const shd_manifest_file *files,
                                   char **out) {
    json_t *note = json_object(), *object = NULL;
    if (manifest->note) {
        json_decref(note);
        sherd_status status = shd_json_parse(manifest->note, (int64_t)strlen(manifest->note), &note);
        if (status != SHERD_OK) return shd_fail_within(status, "the note for the checkpoint");
    }
    SHD_TRY(describe(manifest, files, note, &object));
    sherd_status status = shd_json_print(object, INDENT, out);
    json_decref(object);
    return status;
}

sherd_status shd_manifest_write(const char *folder, const shd_checkpoint_manifest *manifest,
                                const shd_manifest_file *files) {
    char path[SHD_PATH_BYTES], seal[SEAL_BYTES + 1];
    SHD_TRY(shd_path_make(path, "%s/" SHD_MANIFEST_NAME, folder));
    char *text = NULL;
    SHD_TRY(print_manifest(manifest, files, &text));
    int64_t body_bytes = (int64_t)strlen(text) - 2; /* without "\n}" */
    make_seal(text, body_bytes, seal);
    int descriptor = -1;
    sherd_status status = shd_file_create(path, &descriptor);
    if (status == SHERD_OK) status = shd_file_write(descriptor, path, text, body_bytes);
    if (status == SHERD_OK) status = shd_file_write(descriptor, path, seal, SEAL_BYTES);
    if (status == SHERD_OK) status = shd_file_sync(descriptor, path);
    shd_file_close(descriptor);
    shd_free(text);
    return status;
}

static sherd_status keep_text(shd_keep *keep, const json_t *object, const char *key, const char **out) {
    const char *text = NULL;
    SHD_TRY(shd_json_text(object, key, &text));
    *out = shd_keep_text(keep, text, strlen(text));
    return *out ? SHERD_OK : fail_memory();
}

static sherd_status parse_tensor(shd_keep *keep, const json_t *about, sherd_tensor *tensor) {
    json_t *shape = NULL;
    SHD_TRY(keep_text(keep, about, "name", &tensor->name));
    SHD_TRY(shd_json_array(about, "shape", &shape));
    SHD_TRY(shd_json_bool(about, "frozen", &tensor->frozen));
    if (json_array_size(shape) > SHERD_MAX_DIMS)
        return shd_fail(SHERD_DATA, "tensor %s has more than %d dimensions", tensor->name, SHERD_MAX_DIMS);
    tensor->dim_count = (int32_t)json_array_size(shape);
    int64_t elements = 1;
    for (int32_t d = 0; d < tensor->dim_count; d++) {
        const json_t *dim = json_array_get(shape, (size_t)d);
        tensor->shape[d] = json_integer_value(dim);
        if (!json_is_integer(dim) || tensor->shape[d] < 0 || !shd_mul_checked(elements, tensor->shape[d], &elements))
            return shd_fail(SHERD_DATA, "the shape of tensor %s makes no sense", tensor->name);
    }
    if (elements > INT64_MAX / (int64_t)sizeof(double))
        return shd_fail(SHERD_DATA, "the shape of tensor %s makes no sense", tensor->name);
    return SHERD_OK;
}

/* What a tensor says of its states, into `elements` [state_count]; a tensor that says nothing has all of them. */
static sherd_status parse_sizes(const json_t *about, const shd_checkpoint_manifest *manifest,
                                const sherd_tensor *tensor, int64_t *elements) {
    const json_t *sizes = json_object_get(about, "states");
    for (int32_t s = 0; s < manifest->state_count; s++) {
        const json_t *size = json_object_get(sizes, manifest->state_names[s]);
        elements[s] = sizes ? json_integer_value(size) : tensor->frozen ? 0 : shd_element_count(tensor);
        if ((size && !json_is_integer(size)) || elements[s] < 0 || elements[s] > INT64_MAX / (int64_t)sizeof(double))
            return shd_fail(SHERD_DATA, "the size of %s of tensor %s makes no sense", manifest->state_names[s],
                            tensor->name);
    }
    if (sizes && !json_is_object(sizes))
        return shd_fail(SHERD_DATA, "\"states\" of tensor %s must be an object", tensor->name);
    return SHERD_OK;
}

static sherd_status parse_all_sizes(shd_keep *keep, const json_t *list, shd_checkpoint_manifest *manifest) {
    bool said = false;
    for (int32_t i = 0; i < manifest->tensor_count; i++)
        said |= json_object_get(json_array_get(list, (size_t)i), "states") != NULL;
    if (!said) return SHERD_OK;
    int64_t *elements =
        shd_keep_take(keep, sizeof *elements * (size_t)manifest->tensor_count * (size_t)manifest->state_count + 1);
    if (!elements) return fail_memory();
    manifest->state_elements = elements;
    for (int32_t i = 0; i < manifest->tensor_count; i++, elements += manifest->state_count)
        SHD_TRY(parse_sizes(json_array_get(list, (size_t)i), manifest, &manifest->tensors[i], elements));
    return SHERD_OK;
}

static sherd_status parse_tensors(shd_keep *keep, const json_t *object, shd_checkpoint_manifest *manifest) {
    json_t *list = NULL;
    SHD_TRY(shd_json_array(object, "tensors", &list));
    if (json_array_size(list) > INT32_MAX) return shd_fail(SHERD_DATA, "it has too many tensors");
    manifest->tensor_count = (int32_t)json_array_size(list);
    sherd_tensor *tensors = shd_keep_take(keep, sizeof *tensors * (size_t)manifest->tensor_count + 1);
    if (!tensors) return fail_memory();
    manifest->tensors = tensors;
    for (int32_t i = 0; i < manifest->tensor_count; i++)
        SHD_TRY(parse_tensor(keep, json_array_get(list, (size_t)i), &tensors[i]));
    return parse_all_sizes(keep, list, manifest);
}

static sherd_status parse_optimizer(shd_keep *keep, const json_t *object, shd_checkpoint_manifest *manifest) {
    const json_t *about = json_object_get(object, "optimizer");
    json_t *states = NULL;
    SHD_TRY(keep_text(keep, about, "name", &manifest->optimizer));
    SHD_TRY(shd_json_dtype(about, "state_dtype", &manifest->state_dtype));
    SHD_TRY(shd_json_array(about, "states", &states));
    if (json_array_size(states) > SHD_CHECKPOINT_STATES_MAX) return shd_fail(SHERD_DATA, "it has too many states");
    manifest->state_count = (int32_t)json_array_size(states);
    for (int32_t i = 0; i < manifest->state_count; i++) {
        const char *name = json_string_value(json_array_get(states, (size_t)i));
        if (!name) return shd_fail(SHERD_DATA, "\"states\" must be a list of texts");
        manifest->state_names[i] = shd_keep_text(keep, name, strlen(name));
        if (!manifest->state_names[i]) return fail_memory();
    }
    return SHERD_OK;
}

/* Manifests that say nothing of precision are older, and of fp32; nothing was ever skipped in them. */
static sherd_status parse_precision(const json_t *object, shd_checkpoint_manifest *manifest) {
    const json_t *optimizer = json_object_get(object, "optimizer");
    manifest->update_count = manifest->step;
    if (json_object_get(optimizer, "updates"))
        SHD_TRY(shd_json_int(optimizer, "updates", 0, manifest->step, &manifest->update_count));
    if (!json_object_get(object, "precision")) return SHERD_OK;
    const char *text = NULL;
    SHD_TRY(shd_json_text(object, "precision", &text));
    for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
        manifest->precision = dtype;
        if (strcmp(text, shd_dtype_text(dtype)) == 0) return SHERD_OK;
    }
    return shd_fail(SHERD_DATA, "\"precision\" must be fp32, bf16 or fp16");
}

static sherd_status parse_scale(const json_t *object, shd_checkpoint_scale *out) {
    const json_t *about = json_object_get(object, "loss_scale");
    if (!about) return SHERD_OK;
    int64_t good_steps = 0, hysteresis = 0;
    double scale = json_number_value(json_object_get(about, "scale"));
    if (!(scale > 0) || isinf(scale)) return shd_fail(SHERD_DATA, "\"scale\" must be a positive number");
    SHD_TRY(shd_json_int(about, "good_steps", 0, INT32_MAX, &good_steps));
    SHD_TRY(shd_json_int(about, "hysteresis", 1, INT32_MAX, &hysteresis));
    *out = (shd_checkpoint_scale){.scale = scale, .good_steps = (int32_t)good_steps, .hysteresis = (int32_t)hysteresis};
    return SHERD_OK;
}

static sherd_status parse_files(shd_keep *keep, const json_t *object, int32_t world_size, shd_manifest_file **out) {
    json_t *list = NULL;
    SHD_TRY(shd_json_array(object, "files", &list));
    if ((int64_t)json_array_size(list) != world_size)
        return shd_fail(SHERD_DATA, "it has %zu files for %d ranks", json_array_size(list), world_size);
    shd_manifest_file *files = shd_keep_take(keep, sizeof *files * (size_t)world_size);
    if (!files) return fail_memory();
    for (int32_t i = 0; i < world_size; i++) {
        const json_t *about = json_array_get(list, (size_t)i);
        const char *name = NULL;
        char expected[32];
        snprintf(expected, sizeof expected, "rank-%05d.bin", i);
        SHD_TRY(shd_json_text(about, "name", &name));
        if (strcmp(name, expected) != 0)
            return shd_fail(SHERD_DATA, "the file of rank %d is called %s, not %s", i, name, expected);
        SHD_TRY(shd_json_int(about, "bytes", 0, INT64_MAX, &files[i].bytes));
        SHD_TRY(shd_json_hash(about, "xxh3", &files[i].header_hash));
    }
    *out = files;
    return SHERD_OK;
}

static sherd_status parse_note(shd_keep *keep, const json_t *object, const char **out) {
    const json_t *note = json_object_get(object, "note");
    if (!json_is_object(note)) return shd_fail(SHERD_DATA, "\"note\" must be an object");
    char *text = NULL;
    SHD_TRY(shd_json_print(note, 0, &text));
    *out = shd_keep_text(keep, text, strlen(text));
    shd_free(text);
    return *out ? SHERD_OK : fail_memory();
}

static sherd_status parse_manifest(shd_keep *keep, const json_t *object, shd_checkpoint_manifest *manifest,
                                   shd_manifest_file **files) {
    int64_t version = 0, world_size = 0, replicas = 1, stage = 0;
    SHD_TRY(shd_json_int(object, "version", VERSION, VERSION, &version));
    SHD_TRY(shd_json_int(object, "step", 0, INT64_MAX, &manifest->step));
    SHD_TRY(shd_json_int(object, "world_size", 1, WORLD_SIZE_MAX, &world_size));
    if (json_object_get(object, "replicas")) /* older ones have none */
        SHD_TRY(shd_json_int(object, "replicas", 1, WORLD_SIZE_MAX, &replicas));
    SHD_TRY(shd_json_int(object, "stage", 0, 3, &stage));
    SHD_TRY(shd_json_hash(object, "layout", &manifest->layout_hash));
    manifest->world_size = (int32_t)world_size;
    manifest->replicas = (int32_t)replicas;
    manifest->stage = (int32_t)stage;
    SHD_TRY(parse_precision(object, manifest));
    SHD_TRY(parse_scale(object, &manifest->loss_scale));
    SHD_TRY(parse_optimizer(keep, object, manifest));
    SHD_TRY(parse_tensors(keep, object, manifest));
    SHD_TRY(parse_note(keep, object, &manifest->note));
    return parse_files(keep, object, manifest->world_size, files);
}

/* Checks the seal, then reads what it closes. */
static sherd_status read_text(const char *text, int64_t bytes, shd_keep *keep, shd_checkpoint_manifest *manifest,
                              shd_manifest_file **files) {
    char seal[SEAL_BYTES + 1];
    if (bytes < SEAL_BYTES) return shd_fail(SHERD_DATA, "it is damaged: only %lld bytes are there", (long long)bytes);
    make_seal(text, bytes - SEAL_BYTES, seal);
    if (memcmp(text + bytes - SEAL_BYTES, seal, SEAL_BYTES) != 0)
        return shd_fail(SHERD_DATA, "it is damaged, or was changed by hand: its checksum does not match");
    json_t *object = NULL;
    SHD_TRY(shd_json_parse(text, bytes, &object));
    sherd_status status = parse_manifest(keep, object, manifest, files);
    json_decref(object);
    return status;
}

sherd_status shd_manifest_read(const char *folder, shd_keep *keep, shd_checkpoint_manifest *manifest,
                               shd_manifest_file **files) {
    char path[SHD_PATH_BYTES];
    SHD_TRY(shd_path_make(path, "%s/" SHD_MANIFEST_NAME, folder));
    int descriptor;
    int64_t bytes;
    SHD_TRY(shd_file_open(path, &descriptor, &bytes));
    sherd_status status = SHERD_OK;
    char *text = NULL;
    if (bytes > MANIFEST_BYTES_MAX)
        status = shd_fail(SHERD_DATA, "%lld bytes are too many", (long long)bytes);
    else if (!(text = shd_alloc((size_t)bytes, 1)))
        status = fail_memory();
    if (status == SHERD_OK) status = shd_file_read(descriptor, path, 0, text, bytes);
    shd_file_close(descriptor);
    *manifest = (shd_checkpoint_manifest){0};
    if (status == SHERD_OK) status = read_text(text, bytes, keep, manifest, files);
    shd_free(text);
    return status == SHERD_OK ? SHERD_OK : shd_fail_within(status, "%s", path);
}
