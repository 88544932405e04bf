#include "runtime/train/weights.h"

#include "io/checkpoint_folder.h"
#include "io/llmc_weights.h"
#include "io/parameter_reader.h"
#include "io/safetensors.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct shd_weights_file {
    /* One of these holds the tensors. */
    shd_safetensors **parts; /* [part_count] */
    int32_t part_count, opened_count;
    shd_llmc_weights *llmc;
    shd_checkpoint *checkpoint;
    shd_parameter_reader *reader; /* of the checkpoint */
    const char *kind;
    shd_weights *weights;
};

/* --- safetensors files -------------------------------------------------------------------------------------------- */

/* Tensor `index` of all parts, counted through. */
static const shd_safetensors_entry *find_entry(const shd_weights_file *file, int32_t index,
                                               const shd_safetensors **in) {
    int32_t part = 0;
    while (index >= shd_safetensors_count(file->parts[part])) index -= shd_safetensors_count(file->parts[part++]);
    *in = file->parts[part];
    return shd_safetensors_at(*in, index);
}

static void describe_entry(const void *user, int32_t index, shd_stored_tensor *out) {
    const shd_safetensors *in;
    const shd_safetensors_entry *entry = find_entry(user, index, &in);
    *out = (shd_stored_tensor){.name = entry->name,
                               .dtype = shd_safetensors_dtype_text(entry->dtype),
                               .dim_count = entry->dim_count,
                               .shape = entry->shape};
}

static sherd_status read_entry(const void *user, int32_t index, int64_t first, int64_t count, float *values) {
    const shd_safetensors *in;
    const shd_safetensors_entry *entry = find_entry(user, index, &in);
    return shd_safetensors_read(in, entry, first, count, values);
}

static sherd_status open_parts(shd_weights_file *file, char *const *paths, size_t count, shd_weight_source *source) {
    file->kind = "safetensors";
    file->parts = shd_alloc(count, sizeof *file->parts);
    if (!file->parts) return shd_fail(SHERD_MEMORY, "no memory to open weights");
    file->part_count = (int32_t)count;
    for (size_t i = 0; i < count; i++) {
        SHD_TRY(shd_safetensors_open(paths[i], &file->parts[i]));
        file->opened_count++;
        source->tensor_count += shd_safetensors_count(file->parts[i]);
    }
    source->describe = describe_entry;
    source->read = read_entry;
    return SHERD_OK;
}

/* --- llm.c -------------------------------------------------------------------------------------------------------- */

static void describe_llmc(const void *user, int32_t index, shd_stored_tensor *out) {
    const shd_weights_file *file = user;
    const shd_llmc_tensor *tensor = shd_llmc_weights_at(file->llmc, index);
    const bool half = shd_llmc_weights_shape(file->llmc)->dtype == SHERD_BF16;
    *out = (shd_stored_tensor){
        .name = tensor->name, .dtype = half ? "BF16" : "F32", .dim_count = tensor->dim_count, .shape = tensor->shape};
}

static sherd_status read_llmc(const void *user, int32_t index, int64_t first, int64_t count, float *values) {
    const shd_weights_file *file = user;
    return shd_llmc_weights_read(file->llmc, shd_llmc_weights_at(file->llmc, index), first, count, values);
}

static sherd_status open_llmc(shd_weights_file *file, const char *path, shd_weight_source *source) {
    SHD_TRY(shd_llmc_weights_open(path, &file->llmc));
    file->kind = shd_llmc_weights_shape(file->llmc)->dtype == SHERD_BF16 ? "llm.c, bf16" : "llm.c, fp32";
    source->tensor_count = shd_llmc_weights_count(file->llmc);
    source->describe = describe_llmc;
    source->read = read_llmc;
    return SHERD_OK;
}

/* --- a checkpoint ------------------------------------------------------------------------------------------------- */

static void describe_parameter(const void *user, int32_t index, shd_stored_tensor *out) {
    const shd_weights_file *file = user;
    const sherd_tensor *tensor = &shd_checkpoint_content(file->checkpoint)->tensors[index];
    *out = (shd_stored_tensor){
        .name = tensor->name, .dtype = "F32", .dim_count = tensor->dim_count, .shape = tensor->shape};
}

static sherd_status read_parameter(const void *user, int32_t index, int64_t first, int64_t count, float *values) {
    const shd_weights_file *file = user;
    const char *name = shd_checkpoint_content(file->checkpoint)->tensors[index].name;
    return shd_parameter_reader_read(file->reader, name, first, count, values);
}

static sherd_status open_checkpoint(shd_weights_file *file, const char *path, shd_weight_source *source) {
    SHD_TRY(shd_checkpoint_open(path, &file->checkpoint));
    SHD_TRY(shd_parameter_reader_create(file->checkpoint, &file->reader));
    file->kind = "checkpoint";
    source->tensor_count = shd_checkpoint_content(file->checkpoint)->tensor_count;
    source->describe = describe_parameter;
    source->read = read_parameter;
    return SHERD_OK;
}

/* --- which it is -------------------------------------------------------------------------------------------------- */

enum { PATTERN_BYTES = 8400 };

/* A pattern in a folder whose own name means itself, whatever is in it. */
static void make_pattern(const char *folder, const char *pattern, char out[PATTERN_BYTES]) {
    size_t used = 0;
    for (const char *at = folder; *at && used + 2 < PATTERN_BYTES; at++) {
        if (strchr("*?[]\\", *at)) out[used++] = '\\';
        out[used++] = *at;
    }
    snprintf(out + used, PATTERN_BYTES - used, "/%s", pattern);
}

/* The safetensors files that make up a model in `folder`. Fails: DATA when there are none. */
static sherd_status open_folder(shd_weights_file *file, const char *folder, shd_weight_source *source) {
    static const char *const patterns[] = {"model.safetensors", "model-[0-9]*-of-[0-9]*.safetensors"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        char pattern[PATTERN_BYTES];
        glob_t found = {0};
        make_pattern(folder, patterns[i], pattern);
        int failed = glob(pattern, 0, NULL, &found);
        sherd_status status = failed == GLOB_NOSPACE ? shd_fail(SHERD_MEMORY, "no memory to look into %s", folder)
                              : failed               ? SHERD_OK
                                                     : open_parts(file, found.gl_pathv, found.gl_pathc, source);
        globfree(&found);
        if (!failed || status != SHERD_OK) return status;
    }
    return shd_fail(SHERD_DATA,
                    "%s: there is neither a complete checkpoint in it nor model.safetensors, whole or in parts "
                    "(model-00001-of-00002.safetensors, …)",
                    folder);
}

static sherd_status open_source(shd_weights_file *file, const char *path, shd_weight_source *source) {
    struct stat about;
    if (stat(path, &about) != 0) return shd_fail(SHERD_DATA, "cannot open %s: %s", path, strerror(errno));
    if (!S_ISDIR(about.st_mode))
        return shd_llmc_weights_recognize(path) ? open_llmc(file, path, source)
                                                : open_parts(file, (char *[]){(char *)path}, 1, source);
    char *found = NULL;
    SHD_TRY(shd_checkpoint_find(path, &found));
    if (!found) return open_folder(file, path, source);
    sherd_status status = open_checkpoint(file, found, source);
    shd_free(found);
    return status;
}

static sherd_status open_with(const char *key, const char *path, const shd_model *model, shd_weights_file **out) {
    shd_weights_file *file = shd_alloc(1, sizeof *file);
    if (!file) return shd_fail(SHERD_MEMORY, "%s: out of memory", path);
    shd_weight_source source = {.label = path, .user = file};
    sherd_status status = open_source(file, path, &source);
    /* Who names a file that is not there is refused like one whose file is wrong. */
    if (status == SHERD_IO) status = SHERD_DATA;
    if (status != SHERD_OK && key) status = shd_fail_within(status, "%s", key);
    if (status == SHERD_OK) status = shd_weights_create(model, &source, &file->weights);
    if (status != SHERD_OK) {
        shd_weights_file_close(file);
        return status;
    }
    *out = file;
    return SHERD_OK;
}

sherd_status shd_weights_open(const char *path, const shd_model *model, shd_weights_file **out) {
    return open_with(NULL, path, model, out);
}

sherd_status shd_weights_file_open(const char *path, const shd_model *model, shd_weights_file **out) {
    return open_with("model.init", path, model, out);
}

void shd_weights_file_close(shd_weights_file *file) {
    if (!file) return;
    shd_weights_destroy(file->weights);
    for (int32_t i = 0; i < file->opened_count; i++) shd_safetensors_close(file->parts[i]);
    shd_free(file->parts);
    shd_llmc_weights_close(file->llmc);
    shd_parameter_reader_destroy(file->reader);
    shd_checkpoint_close(file->checkpoint);
    shd_free(file);
}

const char *shd_weights_file_kind(const shd_weights_file *file) { return file->kind; }

sherd_status shd_weights_file_fill(void *user, int32_t tensor, int64_t first, int64_t count, float *values) {
    const shd_weights_file *file = user;
    return shd_weights_fill(file->weights, tensor, first, count, values);
}
