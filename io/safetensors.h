/* Safetensors files: named tensors behind a JSON header (github.com/huggingface/safetensors, format section).
 *
 * The reader trusts nothing: after a successful open every tensor has a known dtype, a shape whose product fits its
 * bytes, and a place inside the file, and the tensors cover the data without overlap or hole, as the format demands.
 * Data is read, not mapped, so that a file that shrinks or a disk that fails is an error and not a signal, and pages of
 * the file are not charged to the rank. */
#ifndef SHD_IO_SAFETENSORS_H
#define SHD_IO_SAFETENSORS_H

#include <sherd/dtype.h>
#include <sherd/status.h>
#include <stdint.h>

/* X(NAME, bits of an element): every dtype of the format. */
#define SHD_SAFETENSORS_DTYPE_MAP(X)                                                                                   \
    X(BOOL, 8)                                                                                                         \
    X(U8, 8)                                                                                                           \
    X(I8, 8)                                                                                                           \
    X(F8_E5M2, 8)                                                                                                      \
    X(F8_E4M3, 8)                                                                                                      \
    X(F8_E8M0, 8)                                                                                                      \
    X(I16, 16)                                                                                                         \
    X(U16, 16)                                                                                                         \
    X(F16, 16)                                                                                                         \
    X(BF16, 16)                                                                                                        \
    X(I32, 32)                                                                                                         \
    X(U32, 32)                                                                                                         \
    X(F32, 32)                                                                                                         \
    X(I64, 64)                                                                                                         \
    X(U64, 64)                                                                                                         \
    X(F64, 64)                                                                                                         \
    X(C64, 64)
typedef enum shd_safetensors_dtype {
#define SHD_SAFETENSORS_DTYPE_ENUM(name, bits) SHD_SAFETENSORS_##name,
    SHD_SAFETENSORS_DTYPE_MAP(SHD_SAFETENSORS_DTYPE_ENUM)
#undef SHD_SAFETENSORS_DTYPE_ENUM
        SHD_SAFETENSORS_DTYPES
} shd_safetensors_dtype;

/* The format's word for it: "F32". */
const char *shd_safetensors_dtype_text(shd_safetensors_dtype dtype);

typedef struct shd_safetensors shd_safetensors;

/* One tensor, as the header describes it. Borrowed from the file. */
typedef struct shd_safetensors_entry {
    const char *name; /* UTF-8 */
    shd_safetensors_dtype dtype;
    int32_t dim_count;
    const int64_t *shape;  /* [dim_count], row-major */
    int64_t element_count; /* 1 for a scalar */
    int64_t offset_bytes;  /* in the file */
} shd_safetensors_entry;

/* Opens `path` and checks its header. Owns: the caller closes *out.
 * Fails: IO (cannot be read), DATA (what is wrong, with file and tensor), MEMORY. */
sherd_status shd_safetensors_open(const char *path, shd_safetensors **out);
/* Accepts NULL. */
void shd_safetensors_close(shd_safetensors *file);

/* Tensors are numbered in the order of their data. */
int32_t shd_safetensors_count(const shd_safetensors *file);
const shd_safetensors_entry *shd_safetensors_at(const shd_safetensors *file, int32_t index);

/* Reads elements [first, first + count) of `entry`, row-major, widened to float32 without loss.
 * Fails: DATA (a dtype other than F32, F16, BF16; a file that has become shorter), IO. On failure `out` is undefined.
 * Threads: any. */
sherd_status shd_safetensors_read(const shd_safetensors *file, const shd_safetensors_entry *entry, int64_t first,
                                  int64_t count, float *out);

/* What a writer is told beforehand: the tensors, in the order in which their data will come. */
typedef struct shd_safetensors_spec {
    const char *name;
    int32_t dim_count;
    const int64_t *shape; /* [dim_count] */
} shd_safetensors_spec;

typedef struct shd_safetensors_writer shd_safetensors_writer;

/* Starts a file that will replace `path` when it is finished, and writes its header. Until then it is called
 * `path`.partial. `dtype`, FP32, BF16 or FP16, is that of all its tensors.
 * Owns: `tensors` is borrowed during the call. Destroy *out with shd_safetensors_writer_destroy. Fails: ARGUMENT
 * (also when `path` is there and no regular file), IO, MEMORY. */
sherd_status shd_safetensors_writer_create(const char *path, sherd_dtype dtype, const shd_safetensors_spec *tensors,
                                           int32_t tensor_count, shd_safetensors_writer **out);
/* Writes the next `count` elements, rounded to the file's dtype: tensor after tensor, in any portions. Fails: IO;
 * ARGUMENT when there are more than announced. */
sherd_status shd_safetensors_writer_append(shd_safetensors_writer *writer, const float *values, int64_t count);
/* Makes the file durable and puts it in place. Fails: IO; STATE when elements are missing. On failure `path` is as
 * before. */
sherd_status shd_safetensors_writer_finish(shd_safetensors_writer *writer);
/* Accepts NULL. Removes what has not been finished. */
void shd_safetensors_writer_destroy(shd_safetensors_writer *writer);

#endif
