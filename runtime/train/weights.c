#include "runtime/train/weights.h"

#include "io/safetensors.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

struct shd_weights_file {
    shd_safetensors *file;
    shd_weights *weights;
};

static void describe(const void *user, int32_t index, shd_stored_tensor *out) {
    const shd_safetensors_entry *entry = shd_safetensors_at(user, index);
    *out = (shd_stored_tensor){.name = entry->name,
                               .dtype = shd_safetensors_dtype_text(entry->dtype),
                               .dim_count = entry->dim_count,
                               .shape = entry->shape};
}

static sherd_status read(const void *user, int32_t index, int64_t first, int64_t count, float *values) {
    return shd_safetensors_read(user, shd_safetensors_at(user, index), first, count, values);
}

static sherd_status init(shd_weights_file *file, const char *path, const shd_model *model) {
    /* A job that names a file that is not there is refused like one whose file is wrong. */
    sherd_status status = shd_safetensors_open(path, &file->file);
    if (status != SHERD_OK) return shd_fail_within(status == SHERD_IO ? SHERD_DATA : status, "model.init");
    const shd_weight_source source = {.label = path,
                                      .tensor_count = shd_safetensors_count(file->file),
                                      .describe = describe,
                                      .read = read,
                                      .user = file->file};
    return shd_weights_create(model, &source, &file->weights);
}

sherd_status shd_weights_file_open(const char *path, const shd_model *model, shd_weights_file **out) {
    shd_weights_file *file = shd_alloc(1, sizeof *file);
    if (!file) return shd_fail(SHERD_MEMORY, "%s: out of memory", path);
    sherd_status status = init(file, path, model);
    if (status != SHERD_OK) {
        shd_weights_file_close(file);
        return status;
    }
    *out = file;
    return SHERD_OK;
}

void shd_weights_file_close(shd_weights_file *file) {
    if (!file) return;
    shd_weights_destroy(file->weights);
    shd_safetensors_close(file->file);
    shd_free(file);
}

sherd_status shd_weights_file_fill(void *user, int32_t tensor, int64_t first, int64_t count, float *values) {
    const shd_weights_file *file = user;
    return shd_weights_fill(file->weights, tensor, first, count, values);
}
