/* Reading order: from the parts to the whole. Every object is asked for what it requires before it is read. */
#include "io/checkpoint_manifest_parse.h"

#include "io/checkpoint_file.h"
#include "io/checkpoint_manifest.h"
#include "io/json.h"
#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RANKS_MAX = 1 << 20 };

static sherd_status fail_memory(void) { return shd_fail(SHERD_MEMORY, "out of memory for a checkpoint's manifest"); }

static sherd_status keep_text(shd_keep *keep, const char *text, const char **out) {
    *out = shd_keep_text(keep, text, strlen(text));
    return *out ? SHERD_OK : fail_memory();
}

/* The object under a key that must be there, asked for what it requires. */
static sherd_status open_object(const json_t *object, const char *key, const json_t **out) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_object(value)) return shd_fail(SHERD_DATA, "\"%s\" must be an object", key);
    SHD_TRY(shd_json_requires(value));
    *out = value;
    return SHERD_OK;
}

static sherd_status parse_dtype(const json_t *object, const char *key, const sherd_dtype *known, int32_t count,
                                const char *texts, sherd_dtype *out) {
    const char *text = NULL;
    SHD_TRY(shd_json_text(object, key, &text));
    for (int32_t i = 0; i < count; i++)
        if (strcmp(text, shd_dtype_text(known[i])) == 0) {
            *out = known[i];
            return SHERD_OK;
        }
    return shd_fail(SHERD_DATA, "\"%s\" must be %s", key, texts);
}

static sherd_status parse_float_dtype(const json_t *object, const char *key, sherd_dtype *out) {
    static const sherd_dtype known[] = {SHERD_FP32, SHERD_BF16, SHERD_FP16};
    return parse_dtype(object, key, known, 3, "fp32, bf16 or fp16", out);
}

static sherd_status parse_state_dtype(const json_t *object, const char *key, sherd_dtype *out) {
    static const sherd_dtype known[] = {SHERD_FP32, SHERD_INT8};
    return parse_dtype(object, key, known, 2, "fp32 or int8", out);
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

/* [rank, first, count], behind `before` (NULL: the first one). */
static sherd_status parse_range(const json_t *about, const shd_checkpoint_value *value, int32_t world_size,
                                const shd_checkpoint_range *before, shd_checkpoint_range *range) {
    const json_t *rank = json_array_get(about, 0), *first = json_array_get(about, 1), *count = json_array_get(about, 2);
    int64_t end;
    if (json_array_size(about) != 3 || !json_is_integer(rank) || !json_is_integer(first) || !json_is_integer(count))
        return shd_fail(SHERD_DATA, "a range must be [rank, first, count]");
    *range = (shd_checkpoint_range){.first = json_integer_value(first), .count = json_integer_value(count)};
    if (json_integer_value(rank) < 0 || json_integer_value(rank) >= world_size)
        return shd_fail(SHERD_DATA, "there is no rank %lld", (long long)json_integer_value(rank));
    range->rank = (int32_t)json_integer_value(rank);
    if (range->first < 0 || range->count < 1 || !shd_add_checked(range->first, range->count, &end) ||
        end > value->element_count)
        return shd_fail(SHERD_DATA, "%lld elements from %lld on are not in its %lld", (long long)range->count,
                        (long long)range->first, (long long)value->element_count);
    if (value->dtype == SHERD_INT8 &&
        (range->first % SHD_CODE_BLOCK_COUNT != 0 || (end % SHD_CODE_BLOCK_COUNT != 0 && end != value->element_count)))
        return shd_fail(SHERD_DATA, "elements %lld to %lld are no whole blocks of codes", (long long)range->first,
                        (long long)end);
    if (before && (before->first > range->first || (before->first == range->first && before->rank >= range->rank)))
        return shd_fail(SHERD_DATA, "ranges are not in order");
    return SHERD_OK;
}

/* Ranges, all elements being in some. */
static sherd_status parse_ranges(const json_t *about, int32_t world_size, shd_keep *keep, shd_checkpoint_value *value) {
    json_t *list = NULL;
    shd_checkpoint_range gap;
    SHD_TRY(shd_json_array(about, "ranges", &list));
    value->range_count = (int64_t)json_array_size(list);
    shd_checkpoint_range *ranges = shd_keep_take(keep, sizeof *ranges * (size_t)value->range_count + 1);
    if (!ranges) return fail_memory();
    value->ranges = ranges;
    for (int64_t i = 0; i < value->range_count; i++)
        SHD_TRY(
            parse_range(json_array_get(list, (size_t)i), value, world_size, i > 0 ? &ranges[i - 1] : NULL, &ranges[i]));
    if (shd_ranges_gap(ranges, value->range_count, value->element_count, &gap))
        return shd_fail(SHERD_DATA, "elements %lld to %lld are in no file", (long long)gap.first,
                        (long long)(gap.first + gap.count));
    return SHERD_OK;
}

static sherd_status parse_shape(const json_t *about, sherd_tensor *tensor) {
    json_t *shape = NULL;
    int64_t elements = 1;
    SHD_TRY(shd_json_array(about, "shape", &shape));
    if (json_array_size(shape) > SHERD_MAX_DIMS)
        return shd_fail(SHERD_DATA, "it has more than %d dimensions", SHERD_MAX_DIMS);
    tensor->dim_count = (int32_t)json_array_size(shape);
    for (int32_t d = 0; d < tensor->dim_count; d++) {
        const json_t *dim = json_array_get(shape, (size_t)d);
        tensor->shape[d] = json_integer_value(dim);
        if (!json_is_integer(dim) || tensor->shape[d] < 0 || !shd_mul_checked(elements, tensor->shape[d], &elements))
            return shd_fail(SHERD_DATA, "its shape makes no sense");
    }
    if (elements > INT64_MAX / (int64_t)sizeof(double)) return shd_fail(SHERD_DATA, "its shape makes no sense");
    return SHERD_OK;
}

static sherd_status parse_parameter(const json_t *tensor, int64_t elements, int32_t world_size, shd_keep *keep,
                                    shd_checkpoint_value *value) {
    const json_t *about = NULL;
    SHD_TRY(open_object(tensor, "parameter", &about));
    SHD_TRY(parse_float_dtype(about, "dtype", &value->dtype));
    SHD_TRY(shd_json_int(about, "elements", elements, elements, &value->element_count));
    return parse_ranges(about, world_size, keep, value);
}

static sherd_status parse_state(const json_t *about, sherd_dtype dtype, int32_t world_size, shd_keep *keep,
                                shd_checkpoint_value *value) {
    if (!json_is_object(about)) return shd_fail(SHERD_DATA, "it must be an object");
    SHD_TRY(shd_json_requires(about));
    SHD_TRY(parse_state_dtype(about, "dtype", &value->dtype));
    if (value->dtype != dtype)
        return shd_fail(SHERD_DATA, "it is of %s, the optimizer's states of %s", shd_dtype_text(value->dtype),
                        shd_dtype_text(dtype));
    SHD_TRY(shd_json_int(about, "elements", 1, INT64_MAX / (int64_t)sizeof(double), &value->element_count));
    return parse_ranges(about, world_size, keep, value);
}

/* values[0] is the parameter. */
static sherd_status parse_values(const json_t *about, int64_t elements, const shd_checkpoint_manifest *manifest,
                                 shd_keep *keep, shd_checkpoint_value *values) {
    const json_t *states = NULL;
    size_t known = 0;
    sherd_status status = parse_parameter(about, elements, manifest->world_size, keep, &values[0]);
    if (status != SHERD_OK) return shd_fail_within(status, SHD_CHECKPOINT_PARAMETER);
    SHD_TRY(open_object(about, "states", &states));
    for (int32_t s = 0; s < manifest->state_count; s++) {
        const json_t *state = json_object_get(states, manifest->state_names[s]);
        values[1 + s].dtype = manifest->state_dtype;
        if (!state) continue;
        known++;
        status = parse_state(state, manifest->state_dtype, manifest->world_size, keep, &values[1 + s]);
        if (status != SHERD_OK) return shd_fail_within(status, "%s", manifest->state_names[s]);
    }
    if (known != json_object_size(states)) return shd_fail(SHERD_DATA, "it has a state that the optimizer has not");
    return SHERD_OK;
}

static sherd_status parse_tensor(const json_t *about, const shd_checkpoint_manifest *manifest, shd_keep *keep,
                                 sherd_tensor *tensor, shd_checkpoint_value *values) {
    const char *name = NULL;
    SHD_TRY(shd_json_requires(about));
    SHD_TRY(shd_json_text(about, "name", &name));
    SHD_TRY(keep_text(keep, name, &tensor->name));
    sherd_status status = parse_shape(about, tensor);
    if (status == SHERD_OK) status = shd_json_bool(about, "frozen", &tensor->frozen);
    if (status == SHERD_OK) status = parse_values(about, shd_element_count(tensor), manifest, keep, values);
    return status == SHERD_OK ? SHERD_OK : shd_fail_within(status, "tensor %s", name);
}

static int compare_names(const void *left, const void *right) {
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static sherd_status refuse_twins(const shd_checkpoint_manifest *manifest) {
    int32_t count = manifest->tensor_count, twin = 0;
    const char **names = shd_alloc((size_t)count, sizeof *names);
    if (!names) return fail_memory();
    for (int32_t i = 0; i < count; i++) names[i] = manifest->tensors[i].name;
    qsort(names, (size_t)count, sizeof *names, compare_names);
    for (int32_t i = 1; i < count && !twin; i++) twin = strcmp(names[i - 1], names[i]) == 0 ? i : 0;
    sherd_status status = twin ? shd_fail(SHERD_DATA, "it has two tensors called %s", names[twin]) : SHERD_OK;
    shd_free(names);
    return status;
}

/* The states' sizes once more, as those who save tell them. */
static sherd_status list_state_elements(shd_checkpoint_manifest *manifest, shd_keep *keep) {
    int64_t states = manifest->state_count;
    int64_t *elements = shd_keep_take(keep, sizeof *elements * (size_t)manifest->tensor_count * (size_t)states + 1);
    if (!elements) return fail_memory();
    manifest->state_elements = elements;
    for (int64_t t = 0; t < manifest->tensor_count; t++)
        for (int64_t s = 0; s < states; s++)
            elements[t * states + s] = manifest->values[t * (1 + states) + 1 + s].element_count;
    return SHERD_OK;
}

static sherd_status parse_tensors(const json_t *object, shd_keep *keep, shd_checkpoint_manifest *manifest) {
    json_t *list = NULL;
    SHD_TRY(shd_json_array(object, "tensors", &list));
    if (json_array_size(list) > INT32_MAX) return shd_fail(SHERD_DATA, "it has too many tensors");
    size_t count = json_array_size(list), values_count = count * (size_t)(1 + manifest->state_count);
    sherd_tensor *tensors = shd_keep_take(keep, sizeof *tensors * count + 1);
    shd_checkpoint_value *values = shd_keep_take(keep, sizeof *values * values_count + 1);
    if (!tensors || !values) return fail_memory();
    manifest->tensor_count = (int32_t)count;
    manifest->tensors = tensors;
    manifest->values = values;
    for (size_t i = 0; i < count; i++)
        SHD_TRY(parse_tensor(json_array_get(list, i), manifest, keep, &tensors[i],
                             &values[i * (size_t)(1 + manifest->state_count)]));
    SHD_TRY(refuse_twins(manifest));
    return list_state_elements(manifest, keep);
}

/* --- the rest ----------------------------------------------------------------------------------------------------- */

static sherd_status parse_time(const json_t *object, int64_t *out) {
    const char *text = NULL;
    struct tm utc = {0};
    char again[32];
    SHD_TRY(shd_json_text(object, "time", &text));
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    time_t time = end && !*end ? timegm(&utc) : 0;
    /* What comes back the same is a time that there is, and is written in the one way. */
    if (!end || *end || !gmtime_r(&time, &utc) || strftime(again, sizeof again, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0 ||
        strcmp(again, text) != 0)
        return shd_fail(SHERD_DATA, "\"time\" must be as 2026-01-31T12:00:00Z");
    *out = (int64_t)time;
    return SHERD_OK;
}

static sherd_status parse_mesh(const json_t *object, shd_checkpoint_manifest *manifest) {
    const json_t *mesh = NULL;
    int64_t ranks = 0, replicas = 0, stage = 0;
    SHD_TRY(open_object(object, "mesh", &mesh));
    SHD_TRY(shd_json_int(mesh, "ranks", 1, RANKS_MAX, &ranks));
    SHD_TRY(shd_json_int(mesh, "replicas", 1, RANKS_MAX, &replicas));
    SHD_TRY(shd_json_int(object, "stage", 0, 3, &stage));
    manifest->world_size = (int32_t)ranks;
    manifest->replicas = (int32_t)replicas;
    manifest->stage = (int32_t)stage;
    return SHERD_OK;
}

static sherd_status parse_state_names(const json_t *about, shd_keep *keep, shd_checkpoint_manifest *manifest) {
    json_t *states = NULL;
    SHD_TRY(shd_json_array(about, "states", &states));
    if (json_array_size(states) > SHD_CHECKPOINT_STATES_MAX) return shd_fail(SHERD_DATA, "it has too many states");
    manifest->state_count = (int32_t)json_array_size(states);
    for (int32_t i = 0; i < manifest->state_count; i++) {
        const char *name = json_string_value(json_array_get(states, (size_t)i));
        if (!name) return shd_fail(SHERD_DATA, "\"states\" must be a list of texts");
        bool twice = strcmp(name, SHD_CHECKPOINT_PARAMETER) == 0;
        for (int32_t before = 0; before < i; before++) twice |= strcmp(name, manifest->state_names[before]) == 0;
        if (twice) return shd_fail(SHERD_DATA, "no state can be called %s", name);
        SHD_TRY(keep_text(keep, name, &manifest->state_names[i]));
    }
    return SHERD_OK;
}

static sherd_status parse_optimizer(const json_t *object, shd_keep *keep, shd_checkpoint_manifest *manifest) {
    const json_t *about = NULL;
    const char *name = NULL;
    SHD_TRY(open_object(object, "optimizer", &about));
    SHD_TRY(shd_json_text(about, "name", &name));
    SHD_TRY(keep_text(keep, name, &manifest->optimizer));
    SHD_TRY(shd_json_int(about, "updates", 0, manifest->step, &manifest->update_count));
    SHD_TRY(parse_state_dtype(about, "state_dtype", &manifest->state_dtype));
    return parse_state_names(about, keep, manifest);
}

static sherd_status parse_scale(const json_t *object, shd_checkpoint_scale *out) {
    const json_t *about = NULL;
    int64_t good_steps = 0, hysteresis = 0;
    if (!json_object_get(object, "loss_scale")) return SHERD_OK;
    SHD_TRY(open_object(object, "loss_scale", &about));
    double scale = json_number_value(json_object_get(about, "scale"));
    if (!(scale > 0) || isinf(scale)) return shd_fail(SHERD_DATA, "\"scale\" must be a positive number");
    SHD_TRY(shd_json_int(about, "good_steps", 0, INT32_MAX, &good_steps));
    SHD_TRY(shd_json_int(about, "hysteresis", 1, INT32_MAX, &hysteresis));
    *out = (shd_checkpoint_scale){.scale = scale, .good_steps = (int32_t)good_steps, .hysteresis = (int32_t)hysteresis};
    return SHERD_OK;
}

static sherd_status parse_file(const json_t *about, int32_t rank, shd_checkpoint_file *file) {
    const char *name = NULL;
    char expected[32];
    snprintf(expected, sizeof expected, "rank-%05d.bin", rank);
    SHD_TRY(shd_json_requires(about));
    SHD_TRY(shd_json_text(about, "name", &name));
    if (strcmp(name, expected) != 0)
        return shd_fail(SHERD_DATA, "the file of rank %d is called %.100s, not %s", rank, name, expected);
    SHD_TRY(shd_json_int(about, "bytes", 0, INT64_MAX, &file->bytes));
    return shd_json_hash(about, "xxh3", &file->index_hash);
}

static sherd_status parse_files(const json_t *object, shd_keep *keep, shd_checkpoint_manifest *manifest) {
    json_t *list = NULL;
    const json_t *totals = NULL;
    int64_t sum = 0;
    SHD_TRY(shd_json_array(object, "files", &list));
    if ((int64_t)json_array_size(list) != manifest->world_size)
        return shd_fail(SHERD_DATA, "it has %zu files for %d ranks", json_array_size(list), manifest->world_size);
    shd_checkpoint_file *files = shd_keep_take(keep, sizeof *files * (size_t)manifest->world_size);
    if (!files) return fail_memory();
    manifest->files = files;
    for (int32_t i = 0; i < manifest->world_size; i++) {
        SHD_TRY(parse_file(json_array_get(list, (size_t)i), i, &files[i]));
        if (!shd_add_checked(sum, files[i].bytes, &sum)) return shd_fail(SHERD_DATA, "its files are too large");
    }
    SHD_TRY(open_object(object, "bytes", &totals));
    SHD_TRY(shd_json_int(totals, "raw", 0, INT64_MAX, &manifest->raw_bytes));
    return shd_json_int(totals, "stored", sum, sum, &manifest->stored_bytes);
}

static sherd_status parse_note(const json_t *object, shd_keep *keep, const char **out) {
    const json_t *note = json_object_get(object, "note");
    char *text = NULL;
    if (!json_is_object(note)) return shd_fail(SHERD_DATA, "\"note\" must be an object");
    SHD_TRY(shd_json_print(note, 0, &text));
    sherd_status status = keep_text(keep, text, out);
    shd_free(text);
    return status;
}

static sherd_status check_version(const json_t *object) {
    const json_t *version = json_object_get(object, "version");
    if (!json_is_integer(version)) return shd_fail(SHERD_DATA, "\"version\" must be an integer");
    if (json_integer_value(version) == SHD_CHECKPOINT_VERSION) return SHERD_OK;
    return shd_fail(SHERD_UNSUPPORTED, "it is of version %lld; this build reads version %d",
                    (long long)json_integer_value(version), SHD_CHECKPOINT_VERSION);
}

sherd_status shd_manifest_take(const json_t *object, shd_keep *keep, shd_checkpoint_manifest *out) {
    shd_checkpoint_manifest manifest = {0};
    SHD_TRY(check_version(object));
    SHD_TRY(shd_json_requires(object));
    SHD_TRY(shd_json_int(object, "step", 0, INT64_MAX, &manifest.step));
    SHD_TRY(parse_time(object, &manifest.time_s));
    SHD_TRY(parse_mesh(object, &manifest));
    SHD_TRY(parse_float_dtype(object, "precision", &manifest.precision));
    SHD_TRY(parse_optimizer(object, keep, &manifest));
    SHD_TRY(parse_scale(object, &manifest.loss_scale));
    SHD_TRY(parse_tensors(object, keep, &manifest));
    SHD_TRY(parse_files(object, keep, &manifest));
    SHD_TRY(parse_note(object, keep, &manifest.note));
    *out = manifest;
    return SHERD_OK;
}
