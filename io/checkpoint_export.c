#include "io/checkpoint.h"
#include "io/parameter_reader.h"
#include "io/safetensors.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <sys/stat.h>

static sherd_status append(void *user, const float *values, int64_t count) {
    return shd_safetensors_writer_append(user, values, count);
}

static sherd_status start_file(const shd_checkpoint_manifest *manifest, const char *to, shd_safetensors_writer **out) {
    shd_safetensors_spec *specs = shd_alloc((size_t)manifest->tensor_count, sizeof *specs);
    if (!specs) return shd_fail(SHERD_MEMORY, "out of memory for an export");
    for (int32_t i = 0; i < manifest->tensor_count; i++) {
        const sherd_tensor *tensor = &manifest->tensors[i];
        specs[i] = (shd_safetensors_spec){tensor->name, tensor->dim_count, tensor->shape};
    }
    sherd_status status = shd_safetensors_writer_create(to, specs, manifest->tensor_count, out);
    shd_free(specs);
    return status;
}

static sherd_status write_file(const shd_checkpoint_manifest *manifest, const shd_parameter_reader *reader,
                               const char *to) {
    shd_safetensors_writer *writer;
    SHD_TRY(start_file(manifest, to, &writer));
    sherd_status status = SHERD_OK;
    for (int32_t i = 0; status == SHERD_OK && i < manifest->tensor_count; i++)
        status = shd_parameter_reader_stream(reader, manifest->tensors[i].name, append, writer);
    if (status == SHERD_OK) status = shd_safetensors_writer_finish(writer);
    shd_safetensors_writer_destroy(writer);
    return status;
}

/* Refuses targets that would damage what is exported. */
static sherd_status check_target(const char *checkpoint_path, const char *to) {
    char folder[SHD_PATH_BYTES];
    struct stat about, source;
    if (stat(to, &about) == 0 && S_ISDIR(about.st_mode))
        return shd_fail(SHERD_ARGUMENT, "cannot export to %s: it is a folder; name a file", to);
    SHD_TRY(shd_path_folder(folder, to));
    if (stat(folder, &about) == 0 && stat(checkpoint_path, &source) == 0 && about.st_dev == source.st_dev &&
        about.st_ino == source.st_ino)
        return shd_fail(SHERD_ARGUMENT, "cannot export to %s: it lies in the checkpoint itself", to);
    return SHERD_OK;
}

static sherd_status export_open(const shd_checkpoint *checkpoint, const char *to) {
    shd_parameter_reader *reader;
    SHD_TRY(check_target(shd_checkpoint_path(checkpoint), to));
    SHD_TRY(shd_parameter_reader_create(checkpoint, &reader));
    sherd_status status = write_file(shd_checkpoint_content(checkpoint), reader, to);
    shd_parameter_reader_destroy(reader);
    return status;
}

sherd_status shd_checkpoint_export(const char *path, const char *to) {
    char *found = NULL;
    SHD_TRY(shd_checkpoint_find(path, &found));
    if (!found) return shd_fail(SHERD_DATA, "there is no complete checkpoint at %s", path);
    shd_checkpoint *checkpoint = NULL;
    sherd_status status = shd_checkpoint_open(found, &checkpoint);
    shd_free(found);
    if (status == SHERD_OK) status = export_open(checkpoint, to);
    shd_checkpoint_close(checkpoint);
    return status;
}
