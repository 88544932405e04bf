#include "io/array_file.h"

#include "io/npy.h"
#include "io/safetensors.h"
#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "runtime/base/status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file's byte order is copied as it is");

/* --- types -------------------------------------------------------------------------------------------------------- */

static const char *const names[SHD_ARRAY_TYPES] = {
    [SHD_ARRAY_BOOL] = "bool",   [SHD_ARRAY_U8] = "uint8",      [SHD_ARRAY_I8] = "int8",
    [SHD_ARRAY_U16] = "uint16",  [SHD_ARRAY_I16] = "int16",     [SHD_ARRAY_U32] = "uint32",
    [SHD_ARRAY_I32] = "int32",   [SHD_ARRAY_U64] = "uint64",    [SHD_ARRAY_I64] = "int64",
    [SHD_ARRAY_F16] = "float16", [SHD_ARRAY_BF16] = "bfloat16", [SHD_ARRAY_F32] = "float32",
    [SHD_ARRAY_F64] = "float64",
};

const char *shd_array_type_text(shd_array_type type) { return names[type]; }

int64_t shd_array_type_bytes(shd_array_type type) {
    static const int64_t bytes[SHD_ARRAY_TYPES] = {
#define BYTES(name, bits, npy, safetensors) [SHD_ARRAY_##name] = sizeof(bits),
        SHD_ARRAY_TYPE_MAP(BYTES)
#undef BYTES
    };
    return bytes[type];
}

bool shd_array_type_is_integer(shd_array_type type) { return type < SHD_ARRAY_F16; }

bool shd_array_bytes(shd_array_type type, int32_t dim_count, const int64_t *shape, int64_t *out) {
    int64_t bytes = shd_array_type_bytes(type);
    bool empty = false;
    for (int32_t d = 0; d < dim_count; d++) {
        empty |= shape[d] == 0;
        if (!shd_mul_checked(bytes, shd_max(shape[d], 1), &bytes)) return false;
    }
    *out = empty ? 0 : bytes;
    return true;
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static sherd_status open_npy(shd_array_file *file) {
    shd_npy_header header;
    SHD_TRY(shd_npy_read_header(&file->file, &header));
    file->npy = true;
    file->type = header.type;
    file->dim_count = header.dim_count;
    memcpy(file->shape, header.shape, sizeof file->shape);
    file->first_byte = header.first_byte;
    return SHERD_OK;
}

static sherd_status find_type(const char *path, const shd_safetensors_entry *entry, shd_array_type *out) {
    static const char *const codes[SHD_ARRAY_TYPES] = {
#define CODE(name, bits, npy, safetensors) [SHD_ARRAY_##name] = safetensors,
        SHD_ARRAY_TYPE_MAP(CODE)
#undef CODE
    };
    const char *text = shd_safetensors_dtype_text(entry->dtype);
    for (int i = 0; i < SHD_ARRAY_TYPES; i++)
        if (strcmp(text, codes[i]) == 0) {
            *out = (shd_array_type)i;
            return SHERD_OK;
        }
    return shd_fail(SHERD_DATA, "%s: the numbers of tensor '%s' are %s; save them as F32, say", path, entry->name,
                    text);
}

static sherd_status take_tensor(shd_array_file *file, const shd_safetensors_entry *entry) {
    if (entry->dim_count > SHD_ARRAY_DIMS)
        return shd_fail(SHERD_DATA, "%s: tensor '%s' has more than %d dimensions; reshape it", file->file.path,
                        entry->name, SHD_ARRAY_DIMS);
    SHD_TRY(find_type(file->file.path, entry, &file->type));
    int64_t bytes;
    if (!shd_array_bytes(file->type, entry->dim_count, entry->shape, &bytes))
        return shd_fail(SHERD_DATA, "%s: the shape of tensor '%s' is too large to be true", file->file.path,
                        entry->name);
    file->dim_count = entry->dim_count;
    memcpy(file->shape, entry->shape, sizeof *entry->shape * (size_t)entry->dim_count);
    file->first_byte = entry->offset_bytes;
    return SHERD_OK;
}

static sherd_status no_tensor(const char *path, const char *tensor, const shd_safetensors *opened) {
    char there[200] = "";
    size_t used = 0;
    int32_t count = shd_safetensors_count(opened);
    for (int32_t i = 0; i < count && used < sizeof there - 40; i++)
        used += (size_t)snprintf(there + used, sizeof there - used, "%s%.32s", i ? ", " : "",
                                 i < 4 ? shd_safetensors_at(opened, i)->name : "…");
    return shd_fail(SHERD_DATA, "%s: it has no tensor '%s'; it has %s", path, tensor, count ? there : "none");
}

static sherd_status open_safetensors(shd_array_file *file, const char *tensor) {
    shd_safetensors *opened;
    SHD_TRY(shd_safetensors_open(file->file.path, &opened));
    int32_t index = 0, count = shd_safetensors_count(opened);
    while (index < count && strcmp(shd_safetensors_at(opened, index)->name, tensor) != 0) index++;
    sherd_status status = index < count ? take_tensor(file, shd_safetensors_at(opened, index))
                                        : no_tensor(file->file.path, tensor, opened);
    shd_safetensors_close(opened);
    return status;
}

enum { START_BYTES = 9 };

/* A safetensors file has a JSON object behind 8 bytes. */
static bool is_safetensors(const unsigned char start[START_BYTES]) { return start[8] == '{'; }

static sherd_status read_layout(shd_array_file *file, const char *tensor) {
    unsigned char start[START_BYTES] = {0};
    SHD_TRY(shd_data_file_read(&file->file, 0, shd_min((int64_t)sizeof start, file->file.bytes), start));
    if (shd_npy_is(start))
        SHD_TRY(open_npy(file));
    else if (is_safetensors(start))
        SHD_TRY(open_safetensors(file, tensor));
    else if (start[0] == 'P' && start[1] == 'K')
        return shd_fail(SHERD_DATA, "%s: a zip archive, as .npz files are; unpack it and name the .npy files",
                        file->file.path);
    else
        return shd_fail(SHERD_DATA, "%s: neither a .npy nor a safetensors file", file->file.path);
    if (file->dim_count == 0)
        return shd_fail(SHERD_DATA, "%s: a single number; an array of rows is needed", file->file.path);
    file->row_count = file->shape[0];
    file->row_elements = 1;
    for (int32_t d = 1; d < file->dim_count; d++) file->row_elements *= file->shape[d];
    return SHERD_OK;
}

sherd_status shd_array_file_open(const char *path, const char *tensor, shd_open_files *group, shd_array_file *out) {
    *out = (shd_array_file){.type = SHD_ARRAY_U8};
    sherd_status status = shd_data_file_open(path, "data file", group, &out->file);
    if (status == SHERD_OK) status = read_layout(out, tensor);
    if (status != SHERD_OK) shd_array_file_close(out);
    return status;
}

bool shd_array_file_is(const char *path) {
    unsigned char start[START_BYTES] = {0};
    shd_data_file file;
    if (shd_data_file_open(path, "data file", NULL, &file) != SHERD_OK) return false;
    sherd_status status = shd_data_file_read(&file, 0, shd_min(START_BYTES, file.bytes), start);
    shd_data_file_close(&file);
    return status == SHERD_OK && (shd_npy_is(start) || is_safetensors(start));
}

void shd_array_file_close(shd_array_file *file) { shd_data_file_close(&file->file); }

void shd_array_shape_text(const shd_array_file *file, char out[SHD_ARRAY_SHAPE_BYTES]) {
    size_t used = (size_t)snprintf(out, SHD_ARRAY_SHAPE_BYTES, "[");
    for (int32_t d = 0; d < file->dim_count; d++)
        used += (size_t)snprintf(out + used, SHD_ARRAY_SHAPE_BYTES - used, "%s%lld", d ? ", " : "",
                                 (long long)file->shape[d]);
    snprintf(out + used, SHD_ARRAY_SHAPE_BYTES - used, "]");
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

enum { PORTION_BYTES = 16384 };

/* Element `index` of raw bytes as a number: exact but for whole numbers beyond 53 bits, which are rounded. What is not
 * false is true, 1, as in NumPy. */
static double element(shd_array_type type, const unsigned char *raw, int64_t index) {
    switch (type) {
#define CASE(name, bits, npy, safetensors)                                                                             \
    case SHD_ARRAY_##name: {                                                                                           \
        bits value;                                                                                                    \
        memcpy(&value, raw + (size_t)index * sizeof value, sizeof value);                                              \
        if (SHD_ARRAY_##name == SHD_ARRAY_F16) return (double)shd_fp16_widen((uint16_t)value);                         \
        if (SHD_ARRAY_##name == SHD_ARRAY_BF16) return (double)shd_bf16_widen((uint16_t)value);                        \
        if (SHD_ARRAY_##name == SHD_ARRAY_BOOL) return value != 0;                                                     \
        return (double)value;                                                                                          \
    }
        SHD_ARRAY_TYPE_MAP(CASE)
#undef CASE
    case SHD_ARRAY_TYPES: break;
    }
    return 0;
}

/* Reads as many of `count` elements as fit into one portion; returns them in *taken. */
static sherd_status read_portion(shd_array_file *file, int64_t first, int64_t count, unsigned char raw[PORTION_BYTES],
                                 int64_t *taken) {
    int64_t bytes = shd_array_type_bytes(file->type);
    *taken = shd_min(count, PORTION_BYTES / bytes);
    return shd_data_file_read(&file->file, file->first_byte + first * bytes, *taken * bytes, raw);
}

static sherd_status not_finite(const shd_array_file *file, int64_t index, double value) {
    int64_t row = index / shd_max(file->row_elements, 1);
    return shd_fail(SHERD_DATA, "%s: element %lld of row %lld is %g, which is no finite number in single precision",
                    file->file.path, (long long)(index - row * file->row_elements), (long long)row, value);
}

sherd_status shd_array_file_read(shd_array_file *file, int64_t first, int64_t count, double scale, float *out) {
    unsigned char raw[PORTION_BYTES];
    for (int64_t done = 0, taken; done < count; done += taken) {
        SHD_TRY(read_portion(file, first + done, count - done, raw, &taken));
        for (int64_t i = 0; i < taken; i++) {
            double value = element(file->type, raw, i) * scale;
            out[done + i] = (float)value;
            if (!isfinite(out[done + i])) return not_finite(file, first + done + i, value);
        }
    }
    return SHERD_OK;
}

sherd_status shd_array_file_read_integers(shd_array_file *file, int64_t first, int64_t count, int64_t *out) {
    unsigned char raw[PORTION_BYTES];
    for (int64_t done = 0, taken; done < count; done += taken) {
        SHD_TRY(read_portion(file, first + done, count - done, raw, &taken));
        for (int64_t i = 0; i < taken; i++) {
            if (shd_array_type_bytes(file->type) < 8) {
                out[done + i] = (int64_t)element(file->type, raw, i);
                continue;
            }
            memcpy(&out[done + i], raw + 8 * i, sizeof *out);
            if (file->type == SHD_ARRAY_U64 && out[done + i] < 0)
                return shd_fail(SHERD_DATA, "%s: element %lld is %llu, beyond 64 bits with a sign", file->file.path,
                                (long long)(first + done + i), (unsigned long long)out[done + i]);
        }
    }
    return SHERD_OK;
}

sherd_status shd_array_file_read_doubles(shd_array_file *file, int64_t first, int64_t count, double *out) {
    unsigned char raw[PORTION_BYTES];
    for (int64_t done = 0, taken; done < count; done += taken) {
        SHD_TRY(read_portion(file, first + done, count - done, raw, &taken));
        for (int64_t i = 0; i < taken; i++) out[done + i] = element(file->type, raw, i);
    }
    return SHERD_OK;
}

sherd_status shd_array_file_scan(shd_array_file *file, shd_array_scan *out) {
    unsigned char raw[PORTION_BYTES];
    int64_t count = file->row_count * file->row_elements;
    shd_array_scan scan = {.lowest = INFINITY, .highest = -INFINITY};
    for (int64_t done = 0, taken; done < count; done += taken) {
        SHD_TRY(read_portion(file, done, count - done, raw, &taken));
        for (int64_t i = 0; i < taken; i++) {
            double value = element(file->type, raw, i);
            scan.not_finite_count += !isfinite(value);
            if (!isfinite(value)) continue;
            scan.lowest = fmin(scan.lowest, value);
            scan.highest = fmax(scan.highest, value);
        }
    }
    if (scan.not_finite_count == count) scan.lowest = scan.highest = 0;
    *out = scan;
    return SHERD_OK;
}

sherd_status shd_array_file_fingerprint(shd_array_file *file, int32_t samples, uint64_t *hash) {
    int64_t head[3 + SHD_ARRAY_DIMS] = {file->npy, file->type, file->dim_count};
    memcpy(head + 3, file->shape, sizeof *file->shape * (size_t)file->dim_count);
    return shd_data_file_fingerprint(&file->file, head, 3 + file->dim_count, samples, hash);
}
