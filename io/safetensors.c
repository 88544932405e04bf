/* The reader; io/safetensors_write.c writes. A file is: the header's length as 8 bytes, little-endian; the header; the
 * data. */
#include "io/safetensors.h"

#include "io/file.h"
#include "io/json.h"
#include "io/keep.h"
#include "runtime/base/arith.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file's byte order is copied as it is");

enum { LENGTH_BYTES = 8, HEADER_BYTES_MAX = 100000000 }; /* the bound of the format's own reader */

struct shd_safetensors {
    shd_keep *keep;
    char *path;
    int descriptor;
    int64_t data_offset, data_bytes;
    int32_t count;
    shd_safetensors_entry *entries; /* in the order of their data */
};

static const struct {
    const char *text;
    int32_t bytes;
} dtypes[] = {
#define DTYPE(name, bits) {#name, (bits) / 8},
    SHD_SAFETENSORS_DTYPE_MAP(DTYPE)
#undef DTYPE
};

const char *shd_safetensors_dtype_text(shd_safetensors_dtype dtype) { return dtypes[dtype].text; }

static sherd_status fail_memory(void) { return shd_fail(SHERD_MEMORY, "out of memory for a safetensors header"); }

static int64_t entry_bytes(const shd_safetensors_entry *entry) {
    return entry->element_count * dtypes[entry->dtype].bytes;
}

static sherd_status parse_dtype(const json_t *about, shd_safetensors_dtype *out) {
    const char *text;
    SHD_TRY(shd_json_text(about, "dtype", &text));
    for (int i = 0; i < SHD_SAFETENSORS_DTYPES; i++)
        if (strcmp(text, dtypes[i].text) == 0) {
            *out = (shd_safetensors_dtype)i;
            return SHERD_OK;
        }
    return shd_fail(SHERD_DATA, "the dtype \"%s\" is unknown", text);
}

static sherd_status parse_shape(shd_keep *keep, const json_t *about, shd_safetensors_entry *entry) {
    json_t *dims;
    SHD_TRY(shd_json_array(about, "shape", &dims));
    entry->dim_count = (int32_t)json_array_size(dims);
    int64_t *shape = shd_keep_take(keep, sizeof *shape * (size_t)entry->dim_count + 1);
    if (!shape) return fail_memory();
    entry->shape = shape;
    entry->element_count = 1;
    for (int32_t i = 0; i < entry->dim_count; i++) {
        const json_t *dim = json_array_get(dims, (size_t)i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return shd_fail(SHERD_DATA, "dimension %d of the shape must be an integer, 0 or more", i);
        shape[i] = json_integer_value(dim);
        if (!shd_mul_checked(entry->element_count, shape[i], &entry->element_count))
            return shd_fail(SHERD_DATA, "the shape has more than 2^63 elements");
    }
    return SHERD_OK;
}

/* Offsets in the data; the end must fit the shape, and lie in the file. */
static sherd_status parse_offsets(const json_t *about, int64_t data_bytes, shd_safetensors_entry *entry) {
    json_t *pair;
    SHD_TRY(shd_json_array(about, "data_offsets", &pair));
    const json_t *first = json_array_get(pair, 0), *last = json_array_get(pair, 1);
    if (json_array_size(pair) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return shd_fail(SHERD_DATA, "\"data_offsets\" must be two integers");
    int64_t begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || end < begin)
        return shd_fail(SHERD_DATA, "the data_offsets %lld, %lld are no range", (long long)begin, (long long)end);
    if (end > data_bytes)
        return shd_fail(SHERD_DATA, "its data ends at byte %lld, but the file holds %lld bytes of data", (long long)end,
                        (long long)data_bytes);
    int64_t wanted;
    if (!shd_mul_checked(entry->element_count, dtypes[entry->dtype].bytes, &wanted) || wanted != end - begin)
        return shd_fail(SHERD_DATA, "%lld elements of %s do not fill the %lld bytes of its data_offsets",
                        (long long)entry->element_count, dtypes[entry->dtype].text, (long long)(end - begin));
    entry->offset_bytes = begin;
    return SHERD_OK;
}

static sherd_status parse_entry(shd_safetensors *file, const char *name, const json_t *about,
                                shd_safetensors_entry *entry) {
    if (!json_is_object(about) || json_object_size(about) != 3)
        return shd_fail(SHERD_DATA, "it must be described by dtype, shape and data_offsets");
    entry->name = shd_keep_text(file->keep, name, strlen(name));
    if (!entry->name) return fail_memory();
    SHD_TRY(parse_dtype(about, &entry->dtype));
    SHD_TRY(parse_shape(file->keep, about, entry));
    return parse_offsets(about, file->data_bytes, entry);
}

static sherd_status check_metadata(const json_t *metadata) {
    if (!json_is_object(metadata)) return shd_fail(SHERD_DATA, "\"__metadata__\" must be an object");
    const char *key;
    const json_t *value;
    json_object_foreach((json_t *)metadata, key, value) {
        if (!json_is_string(value)) return shd_fail(SHERD_DATA, "\"__metadata__\": \"%s\" must be a text", key);
    }
    return SHERD_OK;
}

static int compare_places(const void *left, const void *right) {
    const shd_safetensors_entry *a = left, *b = right;
    if (a->offset_bytes != b->offset_bytes) return a->offset_bytes < b->offset_bytes ? -1 : 1;
    /* Tensors without elements lie before what begins at the same place. */
    if ((a->element_count == 0) != (b->element_count == 0)) return a->element_count == 0 ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Sorts the tensors by place, checks that they cover the data, and makes their offsets relative to the file. */
static sherd_status lay_out(shd_safetensors *file) {
    qsort(file->entries, (size_t)file->count, sizeof *file->entries, compare_places);
    int64_t covered = 0;
    for (int32_t i = 0; i < file->count; i++) {
        shd_safetensors_entry *entry = &file->entries[i];
        if (entry->offset_bytes != covered)
            return shd_fail(SHERD_DATA,
                            "tensor %s: its data begins at byte %lld, but what lies before it%s%s ends at %lld",
                            entry->name, (long long)entry->offset_bytes, i ? ", tensor " : "", i ? entry[-1].name : "",
                            (long long)covered);
        covered += entry_bytes(entry);
        entry->offset_bytes += file->data_offset;
    }
    if (covered != file->data_bytes)
        return shd_fail(SHERD_DATA, "the last %lld bytes belong to no tensor", (long long)(file->data_bytes - covered));
    return SHERD_OK;
}

static sherd_status parse_header(shd_safetensors *file, const json_t *header) {
    size_t most = json_object_size(header);
    if (most > INT32_MAX) return shd_fail(SHERD_DATA, "it has too many tensors");
    file->entries = shd_keep_take(file->keep, sizeof *file->entries * most + 1);
    if (!file->entries) return fail_memory();
    const char *name;
    const json_t *about;
    json_object_foreach((json_t *)header, name, about) {
        if (strcmp(name, "__metadata__") == 0) {
            SHD_TRY(check_metadata(about));
            continue;
        }
        sherd_status status = parse_entry(file, name, about, &file->entries[file->count]);
        if (status != SHERD_OK) return shd_fail_within(status, "tensor %s", name);
        file->count++;
    }
    return lay_out(file);
}

static sherd_status check_length(const unsigned char prefix[LENGTH_BYTES], int64_t file_bytes, int64_t *out) {
    uint64_t length = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) length = length << 8 | prefix[i];
    if (length > HEADER_BYTES_MAX || (int64_t)length > file_bytes - LENGTH_BYTES)
        return shd_fail(SHERD_DATA, "no safetensors file: its header would have %llu bytes, the file has %lld",
                        (unsigned long long)length, (long long)file_bytes);
    *out = (int64_t)length;
    return SHERD_OK;
}

static sherd_status read_header(shd_safetensors *file, int64_t file_bytes) {
    if (file_bytes < LENGTH_BYTES)
        return shd_fail(SHERD_DATA, "no safetensors file: it has only %lld bytes", (long long)file_bytes);
    unsigned char prefix[LENGTH_BYTES];
    SHD_TRY(shd_file_read(file->descriptor, file->path, 0, prefix, LENGTH_BYTES));
    int64_t header_bytes = 0;
    SHD_TRY(check_length(prefix, file_bytes, &header_bytes));
    file->data_offset = LENGTH_BYTES + header_bytes;
    file->data_bytes = file_bytes - file->data_offset;
    char *text = shd_alloc((size_t)header_bytes, 1);
    if (!text) return fail_memory();
    sherd_status status = shd_file_read(file->descriptor, file->path, LENGTH_BYTES, text, header_bytes);
    json_t *header = NULL;
    if (status == SHERD_OK && (header_bytes == 0 || text[0] != '{'))
        status = shd_fail(SHERD_DATA, "no safetensors file: its header does not begin with {");
    if (status == SHERD_OK) status = shd_json_parse(text, header_bytes, &header);
    if (status == SHERD_OK) status = parse_header(file, header);
    json_decref(header);
    shd_free(text);
    return status;
}

sherd_status shd_safetensors_open(const char *path, shd_safetensors **out) {
    int descriptor;
    int64_t file_bytes;
    SHD_TRY(shd_file_open(path, &descriptor, &file_bytes));
    shd_keep *keep = shd_keep_create();
    shd_safetensors *file = keep ? shd_keep_take(keep, sizeof *file) : NULL;
    char *path_copy = keep ? shd_keep_text(keep, path, strlen(path)) : NULL;
    if (!file || !path_copy) {
        shd_keep_destroy(keep);
        shd_file_close(descriptor);
        return fail_memory();
    }
    *file = (shd_safetensors){.keep = keep, .path = path_copy, .descriptor = descriptor};
    sherd_status status = read_header(file, file_bytes);
    if (status != SHERD_OK) {
        shd_safetensors_close(file);
        return shd_fail_within(status, "%s", path);
    }
    *out = file;
    return SHERD_OK;
}

void shd_safetensors_close(shd_safetensors *file) {
    if (!file) return;
    shd_file_close(file->descriptor);
    shd_keep_destroy(file->keep);
}

int32_t shd_safetensors_count(const shd_safetensors *file) { return file->count; }
const shd_safetensors_entry *shd_safetensors_at(const shd_safetensors *file, int32_t index) {
    return &file->entries[index];
}

static float float_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float widen_f16(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 0x1F, mantissa = half & 0x3FF;
    if (exponent == 0) { /* zero and subnormals: a multiple of 2^-24 */
        float magnitude = (float)mantissa * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    if (exponent == 0x1F) return float_from_bits(sign | 0x7F800000 | mantissa << 13);
    return float_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

static float widen_bf16(uint16_t half) { return float_from_bits((uint32_t)half << 16); }

static sherd_status read_halves(const shd_safetensors *file, int64_t offset, int64_t count, float (*widen)(uint16_t),
                                float *out) {
    enum { PORTION = 4096 };
    uint16_t halves[PORTION];
    for (int64_t done = 0; done < count; done += PORTION) {
        int64_t portion = shd_min(PORTION, count - done);
        SHD_TRY(shd_file_read(file->descriptor, file->path, offset + 2 * done, halves, 2 * portion));
        for (int64_t i = 0; i < portion; i++) out[done + i] = widen(halves[i]);
    }
    return SHERD_OK;
}

sherd_status shd_safetensors_read(const shd_safetensors *file, const shd_safetensors_entry *entry, int64_t first,
                                  int64_t count, float *out) {
    int64_t end;
    if (first < 0 || count < 0 || !shd_add_checked(first, count, &end) || end > entry->element_count)
        return shd_fail(SHERD_ARGUMENT, "%s: tensor %s has %lld elements; %lld from %lld on were asked for", file->path,
                        entry->name, (long long)entry->element_count, (long long)count, (long long)first);
    int64_t offset = entry->offset_bytes + first * dtypes[entry->dtype].bytes;
    switch (entry->dtype) {
    case SHD_SAFETENSORS_F32: return shd_file_read(file->descriptor, file->path, offset, out, 4 * count);
    case SHD_SAFETENSORS_F16: return read_halves(file, offset, count, widen_f16, out);
    case SHD_SAFETENSORS_BF16: return read_halves(file, offset, count, widen_bf16, out);
    default:
        return shd_fail(SHERD_DATA, "%s: tensor %s is %s; weights are read from F32, F16 and BF16", file->path,
                        entry->name, dtypes[entry->dtype].text);
    }
}
