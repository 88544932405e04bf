#include "io/checkpoint_export.h"

#include "io/checkpoint_manifest.h"
#include "io/checkpoint_pick.h"
#include "io/file.h"
#include "io/folder.h"
#include "io/hugging_face.h"
#include "io/parameter_reader.h"
#include "io/safetensors.h"
#include "runtime/base/dtype.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One tensor on its way. */
typedef struct transfer {
    const shd_export *form;
    const char *tensor;
    shd_safetensors_writer *writer;
    int64_t done_bytes, all_bytes;
} transfer;

/* The least number that rounds to infinity in fp16, which ends at 65504. */
static const float FP16_LIMIT = 65520;

static sherd_status check_range(const transfer *state, const float *values, int64_t count) {
    if (state->form->dtype != SHERD_FP16) return SHERD_OK;
    for (int64_t i = 0; i < count; i++)
        if (fabsf(values[i]) >= FP16_LIMIT && !isinf(values[i]))
            return shd_fail(SHERD_DATA, "%s has the value %.9g, which fp16 does not reach; take bf16 or fp32",
                            state->tensor, (double)values[i]);
    return SHERD_OK;
}

static sherd_status append(void *user, const float *values, int64_t count) {
    transfer *state = user;
    SHD_TRY(check_range(state, values, count));
    SHD_TRY(shd_safetensors_writer_append(state->writer, values, count));
    state->done_bytes += count * shd_dtype_bytes(state->form->dtype);
    SHD_TRY(shd_advance_tell(state->form->advance, state->done_bytes, state->all_bytes));
    return SHERD_OK;
}

/* What the file calls the tensors: [tensor_count] texts one after the other, in memory that the caller releases. */
static sherd_status make_names(const shd_export *form, const shd_checkpoint_manifest *manifest, char **out) {
    char *names = shd_alloc((size_t)manifest->tensor_count, SHD_HUGGING_FACE_NAME_BYTES);
    if (!names) return shd_fail(SHERD_MEMORY, "out of memory for an export");
    for (int32_t i = 0; i < manifest->tensor_count; i++) {
        sherd_status status = shd_hugging_face_name(form->transformers->model.family, manifest->tensors[i].name,
                                                    names + (size_t)i * SHD_HUGGING_FACE_NAME_BYTES);
        if (status == SHERD_OK) continue;
        shd_free(names);
        return status;
    }
    *out = names;
    return SHERD_OK;
}

static sherd_status start_file(const shd_export *form, const shd_checkpoint_manifest *manifest, const char *to,
                               shd_safetensors_writer **out) {
    char *names = NULL;
    shd_safetensors_spec *specs = shd_alloc((size_t)manifest->tensor_count, sizeof *specs);
    if (!specs) return shd_fail(SHERD_MEMORY, "out of memory for an export");
    sherd_status status = form->transformers ? make_names(form, manifest, &names) : SHERD_OK;
    for (int32_t i = 0; status == SHERD_OK && i < manifest->tensor_count; i++) {
        const sherd_tensor *tensor = &manifest->tensors[i];
        specs[i] = (shd_safetensors_spec){names ? names + (size_t)i * SHD_HUGGING_FACE_NAME_BYTES : tensor->name,
                                          tensor->dim_count, tensor->shape};
    }
    if (status == SHERD_OK) status = shd_safetensors_writer_create(to, form->dtype, specs, manifest->tensor_count, out);
    shd_free(specs);
    shd_free(names);
    return status;
}

static sherd_status write_tensors(const shd_export *form, const shd_checkpoint_manifest *manifest,
                                  const shd_parameter_reader *reader, const char *to) {
    transfer state = {.form = form};
    SHD_TRY(start_file(form, manifest, to, &state.writer));
    sherd_status status = SHERD_OK;
    for (int32_t i = 0; i < manifest->tensor_count; i++)
        state.all_bytes += shd_element_count(&manifest->tensors[i]) * shd_dtype_bytes(form->dtype);
    for (int32_t i = 0; status == SHERD_OK && i < manifest->tensor_count; i++) {
        state.tensor = manifest->tensors[i].name;
        status = shd_parameter_reader_stream(reader, state.tensor, append, &state);
    }
    if (status == SHERD_OK) status = shd_safetensors_writer_finish(state.writer);
    shd_safetensors_writer_destroy(state.writer);
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

static sherd_status write_file(const shd_checkpoint *checkpoint, const shd_export *form, const char *to) {
    shd_parameter_reader *reader;
    SHD_TRY(check_target(shd_checkpoint_path(checkpoint), to));
    SHD_TRY(shd_parameter_reader_create(checkpoint, &reader));
    sherd_status status = write_tensors(form, shd_checkpoint_content(checkpoint), reader, to);
    shd_parameter_reader_destroy(reader);
    return status;
}

/* Puts a small file in place at once. */
static sherd_status write_text(const char *folder, const char *name, const char *text) {
    char path[SHD_PATH_BYTES], partial[SHD_PATH_BYTES];
    int descriptor;
    SHD_TRY(shd_path_make(path, "%s/%s", folder, name));
    SHD_TRY(shd_path_make(partial, "%s.partial", path));
    SHD_TRY(shd_file_create(partial, &descriptor));
    sherd_status status = shd_file_write(descriptor, partial, text, (int64_t)strlen(text));
    if (status == SHERD_OK) status = shd_file_write(descriptor, partial, "\n", 1);
    if (status == SHERD_OK) status = shd_file_sync(descriptor, partial);
    shd_file_close(descriptor);
    if (status == SHERD_OK) status = shd_path_rename(partial, path);
    if (status != SHERD_OK) unlink(partial);
    SHD_TRY(status);
    return shd_folder_sync(folder);
}

static sherd_status write_folder(const shd_checkpoint *checkpoint, const shd_export *form) {
    char path[SHD_PATH_BYTES], *config;
    struct stat about;
    if (!shd_hugging_face_has(form->transformers->model.family))
        return shd_fail(SHERD_ARGUMENT, "transformers has no model of the family %s: export it as safetensors",
                        shd_job_word("model.family", (int32_t)form->transformers->model.family));
    if (stat(form->to, &about) == 0 && !S_ISDIR(about.st_mode))
        return shd_fail(SHERD_ARGUMENT, "cannot export to %s: it is a file; name a folder", form->to);
    SHD_TRY(shd_path_make(path, "%s/model.safetensors", form->to));
    SHD_TRY(shd_folder_make(form->to));
    SHD_TRY(write_file(checkpoint, form, path));
    SHD_TRY(shd_hugging_face_config(form->transformers, form->dtype, &config));
    sherd_status status = write_text(form->to, "config.json", config);
    shd_free(config);
    return status;
}

sherd_status shd_checkpoint_export_as(const shd_checkpoint *checkpoint, const shd_export *form) {
    return form->transformers ? write_folder(checkpoint, form) : write_file(checkpoint, form, form->to);
}

sherd_status shd_checkpoint_export(const char *path, const char *to) {
    shd_checkpoint *checkpoint;
    SHD_TRY(shd_checkpoint_pick(path, &checkpoint));
    sherd_status status = shd_checkpoint_export_as(checkpoint, &(shd_export){.to = to});
    shd_checkpoint_close(checkpoint);
    return status;
}
