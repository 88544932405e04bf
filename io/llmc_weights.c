#include "io/llmc_weights.h"

#include "io/file.h"
#include "io/keep.h"
#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "runtime/base/status.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { HEADER_WORDS = 256, HEADER_BYTES = 4 * HEADER_WORDS, MAGIC = 20240326, VERSION_FP32 = 3, VERSION_BF16 = 5 };

/* Bounds of a job's model, which keep every product below in 63 bits. */
enum { MAX_CONTEXT = 1 << 24, MAX_LAYERS = 4096, MAX_HEADS = 1 << 16, MAX_WIDTH = 1 << 20 };

struct shd_llmc_weights {
    shd_keep *keep;
    const char *path;
    int descriptor;
    shd_llmc_shape shape;
    int32_t count;
    shd_llmc_tensor *tensors;
};

/* Shapes are counted in widths; 0 ends one. Matrices of a layer are stored turned. */
typedef struct tensor_kind {
    const char *name; /* after "h.%d." where it is a layer's */
    int32_t rows, columns;
} tensor_kind;

/* In the file's order. */
static const tensor_kind layer_kinds[] = {
    {"ln_1.weight", 1, 0},        {"ln_1.bias", 1, 0},        {"attn.c_attn.weight", 1, 3}, {"attn.c_attn.bias", 3, 0},
    {"attn.c_proj.weight", 1, 1}, {"attn.c_proj.bias", 1, 0}, {"ln_2.weight", 1, 0},        {"ln_2.bias", 1, 0},
    {"mlp.c_fc.weight", 1, 4},    {"mlp.c_fc.bias", 4, 0},    {"mlp.c_proj.weight", 4, 1},  {"mlp.c_proj.bias", 1, 0},
};
enum { LAYER_KINDS = sizeof layer_kinds / sizeof *layer_kinds };

static uint32_t word_at(const unsigned char *header, int index) {
    uint32_t word;
    memcpy(&word, header + 4 * index, sizeof word);
    return le32toh(word);
}

bool shd_llmc_weights_recognize(const char *path) {
    unsigned char magic[4];
    int descriptor;
    int64_t bytes;
    if (shd_file_open(path, &descriptor, &bytes) != SHERD_OK) return false;
    bool read = bytes >= HEADER_BYTES && shd_file_read(descriptor, path, 0, magic, sizeof magic) == SHERD_OK;
    shd_file_close(descriptor);
    return read && word_at(magic, 0) == MAGIC;
}

/* --- the header --------------------------------------------------------------------------------------------------- */

static sherd_status take_size(const unsigned char *header, int index, const char *what, int64_t most, int64_t *out) {
    const uint32_t value = word_at(header, index);
    if (value < 1 || value > most)
        return shd_fail(SHERD_DATA, "its header says %s %" PRId32 ", which is not from 1 to %" PRId64, what,
                        (int32_t)value, most);
    *out = value;
    return SHERD_OK;
}

static sherd_status parse_header(const unsigned char *header, shd_llmc_shape *shape) {
    const uint32_t version = word_at(header, 1);
    if (word_at(header, 0) != MAGIC)
        return shd_fail(SHERD_DATA, "it does not begin with %d, as GPT-2 weights of llm.c do", MAGIC);
    if (version != VERSION_FP32 && version != VERSION_BF16)
        return shd_fail(SHERD_DATA, "it has version %" PRIu32 "; versions %d (float32) and %d (bfloat16) can be read",
                        version, VERSION_FP32, VERSION_BF16);
    shape->dtype = version == VERSION_BF16 ? SHERD_BF16 : SHERD_FP32;
    SHD_TRY(take_size(header, 2, "context", MAX_CONTEXT, &shape->context));
    SHD_TRY(take_size(header, 3, "vocabulary", INT32_MAX, &shape->vocab_size));
    SHD_TRY(take_size(header, 4, "layers", MAX_LAYERS, &shape->n_layer));
    SHD_TRY(take_size(header, 5, "heads", MAX_HEADS, &shape->n_head));
    SHD_TRY(take_size(header, 6, "width", MAX_WIDTH, &shape->d_model));
    SHD_TRY(take_size(header, 7, "padded vocabulary", INT32_MAX, &shape->padded_vocab_size));
    if (shape->padded_vocab_size < shape->vocab_size)
        return shd_fail(SHERD_DATA,
                        "its header says a padded vocabulary of %" PRId64 ", below the vocabulary's %" PRId64,
                        shape->padded_vocab_size, shape->vocab_size);
    return SHERD_OK;
}

/* --- where tensors lie -------------------------------------------------------------------------------------------- */

/* Puts the next tensor at *end, which moves on by `stored_count` elements. */
static shd_llmc_tensor *place(shd_llmc_weights *file, int64_t rows, int64_t columns, int64_t stored_count,
                              int64_t *end) {
    shd_llmc_tensor *tensor = &file->tensors[file->count++];
    tensor->dim_count = columns > 0 ? 2 : 1;
    tensor->shape[0] = rows;
    tensor->shape[1] = columns;
    tensor->element_count = columns > 0 ? rows * columns : rows;
    tensor->offset_bytes = *end;
    *end += stored_count * shd_dtype_bytes(file->shape.dtype);
    return tensor;
}

static void place_named(shd_llmc_weights *file, const char *name, int64_t rows, int64_t columns, int64_t stored_count,
                        int64_t *end) {
    shd_llmc_tensor *tensor = place(file, rows, columns, stored_count, end);
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
}

/* The end of the last one. */
static int64_t place_all(shd_llmc_weights *file) {
    const shd_llmc_shape *shape = &file->shape;
    const int64_t width = shape->d_model;
    int64_t end = HEADER_BYTES;
    place_named(file, "wte.weight", shape->vocab_size, width, shape->padded_vocab_size * width, &end);
    place_named(file, "wpe.weight", shape->context, width, shape->context * width, &end);
    for (int32_t k = 0; k < LAYER_KINDS; k++)
        for (int32_t layer = 0; layer < shape->n_layer; layer++) {
            const int64_t rows = layer_kinds[k].rows * width, columns = layer_kinds[k].columns * width;
            shd_llmc_tensor *tensor = place(file, rows, columns, columns > 0 ? rows * columns : rows, &end);
            tensor->turned = columns > 0;
            snprintf(tensor->name, sizeof tensor->name, "h.%" PRId32 ".%s", layer, layer_kinds[k].name);
        }
    place_named(file, "ln_f.weight", width, 0, width, &end);
    place_named(file, "ln_f.bias", width, 0, width, &end);
    return end;
}

static sherd_status read_header(shd_llmc_weights *file, int64_t bytes) {
    unsigned char header[HEADER_BYTES];
    if (bytes < HEADER_BYTES)
        return shd_fail(SHERD_DATA, "it has %" PRId64 " bytes, and its header alone %d", bytes, HEADER_BYTES);
    SHD_TRY(shd_file_read(file->descriptor, file->path, 0, header, sizeof header));
    SHD_TRY(parse_header(header, &file->shape));
    const size_t count = 4 + LAYER_KINDS * (size_t)file->shape.n_layer;
    file->tensors = shd_keep_take(file->keep, count * sizeof *file->tensors);
    if (!file->tensors) return shd_fail(SHERD_MEMORY, "no memory for its %zu tensors", count);
    const int64_t expected = place_all(file);
    if (bytes == expected) return SHERD_OK;
    return shd_fail(SHERD_DATA, "it has %" PRId64 " bytes; a model as its header says takes %" PRId64, bytes, expected);
}

sherd_status shd_llmc_weights_open(const char *path, shd_llmc_weights **out) {
    int descriptor;
    int64_t bytes;
    SHD_TRY(shd_file_open(path, &descriptor, &bytes));
    shd_keep *keep = shd_keep_create();
    shd_llmc_weights *file = keep ? shd_keep_take(keep, sizeof *file) : NULL;
    const char *path_copy = keep ? shd_keep_text(keep, path, strlen(path)) : NULL;
    if (!file || !path_copy) {
        shd_keep_destroy(keep);
        shd_file_close(descriptor);
        return shd_fail(SHERD_MEMORY, "%s: no memory to open it", path);
    }
    *file = (shd_llmc_weights){.keep = keep, .path = path_copy, .descriptor = descriptor};
    sherd_status status = read_header(file, bytes);
    if (status != SHERD_OK) {
        shd_llmc_weights_close(file);
        return shd_fail_within(status, "%s", path);
    }
    *out = file;
    return SHERD_OK;
}

void shd_llmc_weights_close(shd_llmc_weights *file) {
    if (!file) return;
    shd_file_close(file->descriptor);
    shd_keep_destroy(file->keep);
}

const shd_llmc_shape *shd_llmc_weights_shape(const shd_llmc_weights *file) { return &file->shape; }
int32_t shd_llmc_weights_count(const shd_llmc_weights *file) { return file->count; }
const shd_llmc_tensor *shd_llmc_weights_at(const shd_llmc_weights *file, int32_t index) {
    return &file->tensors[index];
}

/* --- values ------------------------------------------------------------------------------------------------------- */

/* `count` stored elements from element `at` of the file's data on, put `stride` elements apart. */
static sherd_status read_stored(const shd_llmc_weights *file, int64_t offset_bytes, int64_t count, int64_t stride,
                                float *out) {
    enum { PORTION = 4096 };
    union {
        uint16_t halves[PORTION];
        float floats[PORTION];
    } stored;
    float widened[PORTION];
    const sherd_dtype dtype = file->shape.dtype;
    for (int64_t done = 0; done < count; done += PORTION) {
        const int64_t portion = shd_min(PORTION, count - done), bytes = shd_dtype_bytes(dtype);
        SHD_TRY(shd_file_read(file->descriptor, file->path, offset_bytes + done * bytes, &stored, portion * bytes));
        shd_widen(dtype, portion, &stored, widened);
        for (int64_t i = 0; i < portion; i++) out[(done + i) * stride] = widened[i];
    }
    return SHERD_OK;
}

/* Column by column: what lies in one of them, from some row to another, is stored without gaps. */
static sherd_status read_turned(const shd_llmc_weights *file, const shd_llmc_tensor *tensor, int64_t first,
                                int64_t count, float *out) {
    const int64_t rows = tensor->shape[0], columns = tensor->shape[1], end = first + count;
    for (int64_t column = 0; column < columns; column++) {
        const int64_t low = column >= first ? 0 : shd_div_ceil(first - column, columns);
        const int64_t high = end > column ? shd_div_ceil(end - column, columns) : 0;
        if (low >= high) continue;
        const int64_t at = tensor->offset_bytes + (column * rows + low) * shd_dtype_bytes(file->shape.dtype);
        SHD_TRY(read_stored(file, at, high - low, columns, out + (low * columns + column - first)));
    }
    return SHERD_OK;
}

sherd_status shd_llmc_weights_read(const shd_llmc_weights *file, const shd_llmc_tensor *tensor, int64_t first,
                                   int64_t count, float *out) {
    if (first < 0 || count < 0 || first > tensor->element_count - count)
        return shd_fail(SHERD_ARGUMENT,
                        "%s: tensor %s has %" PRId64 " elements; %" PRId64 " from %" PRId64 " on were asked for",
                        file->path, tensor->name, tensor->element_count, count, first);
    if (tensor->turned) return read_turned(file, tensor, first, count, out);
    const int64_t at = tensor->offset_bytes + first * shd_dtype_bytes(file->shape.dtype);
    return read_stored(file, at, count, 1, out);
}
