#include "io/arrays.h"

#include "io/array_file.h"
#include "io/file_list.h"
#include "runtime/base/arith.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <math.h>
#include <string.h>

enum { OPEN_FILES = 64 };

/* Two arrays with as many rows. */
typedef struct pair {
    shd_array_file inputs, targets;
    int64_t first; /* its first row in the whole */
} pair;

struct shd_arrays {
    shd_sample_shape shape;
    shd_keep *keep; /* paths, pairs, open files */
    const char *key;
    pair *pairs;
    shd_source_summary summary;
    shd_open_files open;
};

static sherd_status out_of_memory(const char *key) { return shd_fail(SHERD_MEMORY, "%s: out of memory", key); }

/* --- shapes ------------------------------------------------------------------------------------------------------- */

static sherd_status check_inputs(const shd_arrays *arrays, const shd_array_file *inputs) {
    if (inputs->row_elements == arrays->shape.input_count) return SHERD_OK;
    char shape[SHD_ARRAY_SHAPE_BYTES];
    shd_array_shape_text(inputs, shape);
    return shd_fail(SHERD_DATA, "%s: inputs of shape %s are %lld numbers a row, and model.inputs is %lld",
                    inputs->file.path, shape, (long long)inputs->row_elements, (long long)arrays->shape.input_count);
}

static sherd_status check_targets(const shd_arrays *arrays, const shd_array_file *targets) {
    char shape[SHD_ARRAY_SHAPE_BYTES];
    shd_array_shape_text(targets, shape);
    if (arrays->shape.classes && !shd_array_type_is_integer(targets->type))
        return shd_fail(SHERD_DATA,
                        "%s: classes are whole numbers from 0 on, and these are %s; save them as int64, say",
                        targets->file.path, shd_array_type_text(targets->type));
    if (arrays->shape.classes && targets->row_elements != 1)
        return shd_fail(SHERD_DATA,
                        "%s: targets of shape %s; one class a row is needed (a row of numbers is for model.loss: mse)",
                        targets->file.path, shape);
    if (arrays->shape.classes || targets->row_elements == arrays->shape.output_count) return SHERD_OK;
    return shd_fail(SHERD_DATA, "%s: targets of shape %s are %lld numbers a row, and model.outputs is %lld",
                    targets->file.path, shape, (long long)targets->row_elements, (long long)arrays->shape.output_count);
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static sherd_status open_pair(shd_arrays *arrays, const char *inputs_path, const char *targets_path, pair *out) {
    SHD_TRY(shd_array_file_open(inputs_path, "inputs", &arrays->open, &out->inputs));
    if (out->inputs.npy && strcmp(inputs_path, targets_path) == 0)
        return shd_fail(SHERD_DATA, "%s: a .npy file holds one array; name two: {inputs: …, targets: …}", inputs_path);
    SHD_TRY(check_inputs(arrays, &out->inputs));
    SHD_TRY(shd_array_file_open(targets_path, "targets", &arrays->open, &out->targets));
    SHD_TRY(check_targets(arrays, &out->targets));
    if (out->inputs.row_count == out->targets.row_count) return SHERD_OK;
    return shd_fail(SHERD_DATA, "%s has %lld rows of inputs, but %s %lld rows of targets", inputs_path,
                    (long long)out->inputs.row_count, targets_path, (long long)out->targets.row_count);
}

static sherd_status open_pairs(shd_arrays *arrays, const char *const *inputs, const char *const *targets) {
    shd_source_summary *all = &arrays->summary;
    int32_t samples = shd_source_samples(all->file_count);
    for (int32_t i = 0; i < all->file_count; i++) {
        pair *here = &arrays->pairs[i];
        SHD_TRY(open_pair(arrays, inputs[i], targets[i], here));
        SHD_TRY(shd_array_file_fingerprint(&here->inputs, samples, &all->fingerprint));
        SHD_TRY(shd_array_file_fingerprint(&here->targets, samples, &all->fingerprint));
        here->first = all->sequence_count;
        if (!shd_add_checked(all->sequence_count, here->inputs.row_count, &all->sequence_count))
            return shd_fail(SHERD_DATA, "%s: too many rows in all its files", arrays->key);
    }
    all->token_count = all->sequence_count;
    if (all->sequence_count > 0) return SHERD_OK;
    return shd_fail(SHERD_DATA, "%s: empty: there is no row in its %d file%s", arrays->key, all->file_count,
                    all->file_count == 1 ? "" : "s");
}

static sherd_status init(shd_arrays *arrays, const shd_arrays_config *config) {
    const char *const *inputs, *const *targets;
    int32_t targets_count;
    arrays->keep = shd_keep_create();
    if (!arrays->keep) return out_of_memory(config->key);
    SHD_TRY(shd_file_list_expand(config->key, config->inputs, config->inputs_count, arrays->keep, &inputs,
                                 &arrays->summary.file_count));
    targets = inputs;
    targets_count = arrays->summary.file_count;
    if (config->targets)
        SHD_TRY(shd_file_list_expand(config->key, config->targets, config->targets_count, arrays->keep, &targets,
                                     &targets_count));
    if (targets_count != arrays->summary.file_count)
        return shd_fail(SHERD_DATA, "%s: %d files of inputs, but %d of targets; they are paired in order", config->key,
                        arrays->summary.file_count, targets_count);
    arrays->key = shd_keep_text(arrays->keep, config->key, strlen(config->key));
    arrays->pairs = shd_keep_take(arrays->keep, (size_t)targets_count * sizeof *arrays->pairs);
    arrays->open.limit = config->open_files > 0 ? config->open_files : OPEN_FILES;
    arrays->open.files = shd_keep_take(arrays->keep, (size_t)arrays->open.limit * sizeof *arrays->open.files);
    if (!arrays->key || !arrays->pairs || !arrays->open.files) return out_of_memory(config->key);
    return open_pairs(arrays, inputs, targets);
}

sherd_status shd_arrays_open(const shd_arrays_config *config, shd_arrays **out) {
    shd_arrays *arrays = shd_alloc(1, sizeof *arrays);
    if (!arrays) return out_of_memory(config->key);
    arrays->shape = config->shape;
    sherd_status status = init(arrays, config);
    if (status != SHERD_OK) {
        shd_arrays_close(arrays);
        return status;
    }
    *out = arrays;
    return SHERD_OK;
}

void shd_arrays_close(shd_arrays *arrays) {
    if (!arrays) return;
    shd_open_files_close(&arrays->open);
    shd_keep_destroy(arrays->keep);
    shd_free(arrays);
}

shd_source_summary shd_arrays_summarize(const shd_arrays *arrays) { return arrays->summary; }

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* The last pair that begins at or before row `index`: one without rows lies before the pair that begins there too. */
static pair *find_pair(const shd_arrays *arrays, int64_t index) {
    int32_t low = 0, high = arrays->summary.file_count;
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (arrays->pairs[middle].first <= index)
            low = middle;
        else
            high = middle;
    }
    return &arrays->pairs[low];
}

static sherd_status read_class(const shd_arrays *arrays, shd_array_file *targets, int64_t row, int32_t *out,
                               int64_t *counted) {
    int64_t label;
    SHD_TRY(shd_array_file_read_integers(targets, row, 1, &label));
    /* A label can be INT64_MIN too: it is what NumPy makes of a NaN. */
    bool ignored = label == arrays->shape.ignored_label && label != INT64_MIN;
    if (!ignored && (label < 0 || label >= arrays->shape.output_count))
        return shd_fail(SHERD_DATA,
                        "%s: the class of row %lld is %lld; with model.outputs %lld they are 0 to %lld, and "
                        "data.ignored_label may name one that counts for nothing",
                        targets->file.path, (long long)row, (long long)label, (long long)arrays->shape.output_count,
                        (long long)arrays->shape.output_count - 1);
    *out = ignored ? -1 : (int32_t)label;
    *counted = !ignored;
    return SHERD_OK;
}

static sherd_status check_limit(const shd_arrays *arrays, const shd_array_file *file, int64_t row,
                                const float *inputs) {
    for (int64_t i = 0; arrays->shape.input_limit > 0 && i < arrays->shape.input_count; i++)
        if (fabs((double)inputs[i]) >= arrays->shape.input_limit)
            return shd_fail(SHERD_DATA,
                            "%s: element %lld of row %lld is %g with data.input_scale, and fp16 ends at 65504; lower "
                            "data.input_scale, or take train.precision: bf16",
                            file->file.path, (long long)i, (long long)row, (double)inputs[i]);
    return SHERD_OK;
}

sherd_status shd_arrays_read(shd_arrays *arrays, int64_t index, float *inputs, int32_t *class_out, float *numbers,
                             int64_t *counted) {
    const shd_sample_shape *shape = &arrays->shape;
    pair *from = find_pair(arrays, index);
    int64_t row = index - from->first;
    SHD_TRY(
        shd_array_file_read(&from->inputs, row * shape->input_count, shape->input_count, shape->input_scale, inputs));
    SHD_TRY(check_limit(arrays, &from->inputs, row, inputs));
    if (shape->classes) return read_class(arrays, &from->targets, row, class_out, counted);
    SHD_TRY(shd_array_file_read(&from->targets, row * shape->output_count, shape->output_count, 1, numbers));
    *counted = shape->output_count;
    return SHERD_OK;
}

shd_source_place shd_arrays_locate(const shd_arrays *arrays, int64_t index) {
    const pair *from = find_pair(arrays, index);
    return (shd_source_place){.file = from->inputs.file.path, .index = index - from->first, .token = -1};
}

/* Reads every `stride`-th sample, `count` of them, and the last. */
static sherd_status read_some(shd_arrays *arrays, int64_t count, int64_t stride) {
    const shd_sample_shape *shape = &arrays->shape;
    int64_t last = arrays->summary.sequence_count - 1, counted;
    float *room = shd_alloc((size_t)(shape->input_count + shape->output_count), sizeof *room);
    if (!room) return out_of_memory(arrays->key);
    sherd_status status = SHERD_OK;
    int32_t label;
    for (int64_t i = 0; i <= count && status == SHERD_OK; i++) {
        int64_t index = i == count ? last : stride * i;
        status = shd_arrays_read(arrays, index, room, &label, room + shape->input_count, &counted);
    }
    shd_free(room);
    return status;
}

sherd_status shd_arrays_sample(shd_arrays *arrays) {
    enum { SAMPLES = 64 };
    int64_t last = arrays->summary.sequence_count - 1, samples = shd_min(SAMPLES, last + 1);
    return read_some(arrays, samples - 1, last / samples);
}

sherd_status shd_arrays_scan(shd_arrays *arrays) { return read_some(arrays, arrays->summary.sequence_count - 1, 1); }
