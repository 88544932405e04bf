/* The writer: header first, then tensor after tensor, so that its memory does not grow with the file. */
#include "io/file.h"
#include "io/folder.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct shd_safetensors_writer {
    char path[SHD_PATH_BYTES], partial[SHD_PATH_BYTES];
    sherd_dtype dtype;
    int descriptor;        /* -1 when finished */
    int64_t missing_count; /* elements announced and not yet written */
};

static sherd_status fail_memory(void) { return shd_fail(SHERD_MEMORY, "out of memory for a safetensors header"); }

static const char *dtype_text(sherd_dtype dtype) {
    return shd_safetensors_dtype_text(dtype == SHERD_BF16   ? SHD_SAFETENSORS_BF16
                                      : dtype == SHERD_FP16 ? SHD_SAFETENSORS_F16
                                                            : SHD_SAFETENSORS_F32);
}

/* Adds one tensor at `offset` bytes of the data; its elements go to *count. */
static sherd_status describe(json_t *header, sherd_dtype dtype, const shd_safetensors_spec *tensor, int64_t offset,
                             int64_t *count) {
    int64_t elements = 1, bytes = 0, end = 0;
    json_t *shape = json_array();
    bool fits = true;
    for (int32_t i = 0; i < tensor->dim_count; i++) {
        fits = fits && tensor->shape[i] >= 0 && shd_mul_checked(elements, tensor->shape[i], &elements);
        json_array_append_new(shape, json_integer(tensor->shape[i]));
    }
    fits = fits && shd_mul_checked(elements, shd_dtype_bytes(dtype), &bytes) && shd_add_checked(offset, bytes, &end);
    /* "O" takes a reference of its own where "o" steals ours, which on failure would leave nothing to release. */
    json_t *about = json_pack("{s:s, s:O, s:[I, I]}", "dtype", dtype_text(dtype), "shape", shape, "data_offsets",
                              (json_int_t)offset, (json_int_t)end);
    json_decref(shape);
    bool known = json_object_get(header, tensor->name) != NULL;
    if (!about || json_object_set_new(header, tensor->name, about) != 0 || known || !fits)
        return shd_fail(SHERD_ARGUMENT, "tensor %s cannot be written: %s", tensor->name,
                        known   ? "its name is taken"
                        : !fits ? "its shape makes no sense"
                                : "its name is not UTF-8");
    *count = elements;
    return SHERD_OK;
}

static sherd_status describe_all(json_t *header, sherd_dtype dtype, const shd_safetensors_spec *tensors,
                                 int32_t tensor_count, int64_t *count) {
    /* Readers in Python refuse a file that does not say which framework's layout it has. */
    json_object_set_new(header, "__metadata__", json_pack("{s:s}", "format", "pt"));
    int64_t total = 0;
    for (int32_t i = 0; i < tensor_count; i++) {
        int64_t elements = 0;
        SHD_TRY(describe(header, dtype, &tensors[i], total * shd_dtype_bytes(dtype), &elements));
        total += elements;
    }
    *count = total;
    return SHERD_OK;
}

/* Writes length and header, padded so that the data is aligned for any element. */
static sherd_status write_header(shd_safetensors_writer *writer, const json_t *header) {
    char *text;
    SHD_TRY(shd_json_print(header, 0, &text));
    int64_t bytes = (int64_t)strlen(text), padded = shd_round_up(bytes, 8);
    unsigned char prefix[8];
    for (int i = 0; i < 8; i++) prefix[i] = (unsigned char)((uint64_t)padded >> 8 * i);
    sherd_status status = shd_file_write(writer->descriptor, writer->partial, prefix, sizeof prefix);
    if (status == SHERD_OK) status = shd_file_write(writer->descriptor, writer->partial, text, bytes);
    if (status == SHERD_OK) status = shd_file_write(writer->descriptor, writer->partial, "        ", padded - bytes);
    shd_free(text);
    return status;
}

static sherd_status start(shd_safetensors_writer *writer, const char *path, const shd_safetensors_spec *tensors,
                          int32_t tensor_count) {
    SHD_TRY(shd_path_make(writer->path, "%s", path));
    SHD_TRY(shd_path_make(writer->partial, "%s.partial", path));
    json_t *header = json_object();
    if (!header) return fail_memory();
    sherd_status status = describe_all(header, writer->dtype, tensors, tensor_count, &writer->missing_count);
    if (status == SHERD_OK) status = shd_file_create(writer->partial, &writer->descriptor);
    if (status == SHERD_OK) status = write_header(writer, header);
    json_decref(header);
    return status;
}

/* A rename would put a file in the place of whatever has the name: of a device or a pipe, that is never what is meant. */
static sherd_status check_place(const char *path) {
    struct stat about;
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode))
        return shd_fail(SHERD_ARGUMENT, "cannot write %s: it is there and no regular file; name a new file", path);
    return SHERD_OK;
}

sherd_status shd_safetensors_writer_create(const char *path, sherd_dtype dtype, const shd_safetensors_spec *tensors,
                                           int32_t tensor_count, shd_safetensors_writer **out) {
    SHD_TRY(check_place(path));
    shd_safetensors_writer *writer = shd_alloc(1, sizeof *writer);
    if (!writer) return fail_memory();
    writer->dtype = dtype;
    writer->descriptor = -1;
    sherd_status status = start(writer, path, tensors, tensor_count);
    if (status != SHERD_OK) {
        shd_safetensors_writer_destroy(writer);
        return status;
    }
    *out = writer;
    return SHERD_OK;
}

static sherd_status write_rounded(const shd_safetensors_writer *writer, const float *values, int64_t count) {
    enum { PORTION = 8192 };
    uint16_t rounded[PORTION];
    for (int64_t done = 0; done < count; done += PORTION) {
        int64_t portion = shd_min(PORTION, count - done);
        shd_round(writer->dtype, portion, values + done, rounded);
        SHD_TRY(shd_file_write(writer->descriptor, writer->partial, rounded, portion * (int64_t)sizeof *rounded));
    }
    return SHERD_OK;
}

sherd_status shd_safetensors_writer_append(shd_safetensors_writer *writer, const float *values, int64_t count) {
    if (count > writer->missing_count)
        return shd_fail(SHERD_ARGUMENT, "%s: %lld elements more than announced", writer->path,
                        (long long)(count - writer->missing_count));
    SHD_TRY(writer->dtype == SHERD_FP32
                ? shd_file_write(writer->descriptor, writer->partial, values, count * (int64_t)sizeof(float))
                : write_rounded(writer, values, count));
    writer->missing_count -= count;
    return SHERD_OK;
}

sherd_status shd_safetensors_writer_finish(shd_safetensors_writer *writer) {
    if (writer->missing_count != 0)
        return shd_fail(SHERD_STATE, "%s: %lld elements have not been written", writer->path,
                        (long long)writer->missing_count);
    SHD_TRY(shd_file_sync(writer->descriptor, writer->partial));
    SHD_TRY(shd_path_rename(writer->partial, writer->path));
    shd_file_close(writer->descriptor);
    writer->descriptor = -1;
    char folder[SHD_PATH_BYTES];
    SHD_TRY(shd_path_folder(folder, writer->path));
    return shd_folder_sync(folder);
}

void shd_safetensors_writer_destroy(shd_safetensors_writer *writer) {
    if (!writer) return;
    if (writer->descriptor >= 0) {
        shd_file_close(writer->descriptor);
        unlink(writer->partial);
    }
    shd_free(writer);
}
