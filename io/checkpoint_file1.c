#define XXH_STATIC_LINKING_ONLY /* the streaming state on the stack */
#include "io/checkpoint_file1.h"

#include "io/json.h"
#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file's byte order is copied as it is");

enum { VERSION = 1, MAGIC_BYTES = 8, PREFIX_BYTES = 24, DATA_ALIGN_BYTES = 64, PORTION_COUNT = 1 << 18 };
static const char magic[MAGIC_BYTES + 1] = "SHERDRNK";

sherd_status shd_rank_file1_path(char out[SHD_PATH_BYTES], const char *folder, int32_t rank) {
    return shd_path_make(out, "%s/rank-%05d.bin", folder, rank);
}

static void put_word(unsigned char out[8], uint64_t word) {
    for (int i = 0; i < 8; i++) out[i] = (unsigned char)(word >> 8 * i);
}

static uint64_t get_word(const unsigned char in[8]) {
    uint64_t word = 0;
    for (int i = 7; i >= 0; i--) word = word << 8 | in[i];
    return word;
}

/* Whether a file has other values than memory has. */
static bool is_widened(const shd_checkpoint_slice *slice) { return shd_stored_dtype(slice->dtype) != slice->dtype; }

/* Bytes of `count` of a slice's elements in the file. */
static int64_t count_bytes(const shd_checkpoint_slice *slice, int64_t count) {
    return shd_span_bytes(shd_stored_dtype(slice->dtype), count);
}

/* Values that are about to be written: as they are, or widened into `portion`. */
static const void *widen(const shd_checkpoint_slice *slice, int64_t first, int64_t count, float *portion) {
    const char *values = slice->values;
    if (!is_widened(slice)) return values + shd_span_bytes(slice->dtype, first);
    shd_widen(slice->dtype, count, values + first * shd_dtype_bytes(slice->dtype), portion);
    return portion;
}

/* What of a slice is taken at once. */
static int64_t portion_of(const shd_checkpoint_slice *slice, int64_t first) {
    return is_widened(slice) ? shd_min(PORTION_COUNT, slice->count - first) : slice->count;
}

static uint64_t hash_slice(const shd_checkpoint_slice *slice, float *portion) {
    XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    for (int64_t first = 0, count; first < slice->count; first += count) {
        count = portion_of(slice, first);
        XXH3_64bits_update(&hash, widen(slice, first, count, portion), (size_t)count_bytes(slice, count));
    }
    return XXH3_64bits_digest(&hash);
}

/* The slices as JSON; offsets count from the first value. */
static sherd_status describe_slices(const shd_checkpoint_slice *slices, int64_t count, float *portion, json_t **out) {
    json_t *list = json_array();
    int64_t offset = 0;
    if (!list) return shd_fail(SHERD_MEMORY, "out of memory for a checkpoint's header");
    for (int64_t i = 0; i < count; i++) {
        int64_t bytes = count_bytes(&slices[i], slices[i].count);
        json_t *hash = shd_json_from_hash(hash_slice(&slices[i], portion));
        json_t *slice = json_pack("{s:s, s:s, s:s*, s:I, s:I, s:I, s:O}", "tensor", slices[i].tensor, "state",
                                  slices[i].state, "dtype", shd_json_from_dtype(shd_stored_dtype(slices[i].dtype)),
                                  "first", (json_int_t)slices[i].first, "count", (json_int_t)slices[i].count, "offset",
                                  (json_int_t)offset, "xxh3", hash);
        json_decref(hash);
        if (json_array_append_new(list, slice) != 0) {
            json_decref(list);
            return shd_fail(SHERD_ARGUMENT, "%s of tensor %s cannot be stored: a name is not UTF-8, or memory is out",
                            slices[i].state, slices[i].tensor);
        }
        offset += bytes;
    }
    *out = list;
    return SHERD_OK;
}

/* The header as JSON. */
static sherd_status describe(int64_t step, int32_t rank, const shd_checkpoint_slice *slices, int64_t count,
                             float *portion, json_t **out) {
    json_t *list = NULL;
    SHD_TRY(describe_slices(slices, count, portion, &list));
    json_t *header =
        json_pack("{s:i, s:I, s:i, s:O}", "version", VERSION, "step", (json_int_t)step, "rank", rank, "slices", list);
    json_decref(list);
    if (!header) return shd_fail(SHERD_MEMORY, "out of memory for a checkpoint's header");
    *out = header;
    return SHERD_OK;
}

/* The header's text, padded; *bytes is its length. */
static sherd_status print_header(int64_t step, int32_t rank, const shd_checkpoint_slice *slices, int64_t count,
                                 float *portion, char **out, int64_t *bytes) {
    json_t *header = NULL;
    char *text = NULL;
    SHD_TRY(describe(step, rank, slices, count, portion, &header));
    sherd_status status = shd_json_print(header, 0, &text);
    json_decref(header);
    SHD_TRY(status);
    int64_t length = (int64_t)strlen(text);
    int64_t padded = shd_round_up(PREFIX_BYTES + length, DATA_ALIGN_BYTES) - PREFIX_BYTES;
    char *grown = shd_realloc(text, (size_t)padded);
    if (!grown) {
        shd_free(text);
        return shd_fail(SHERD_MEMORY, "out of memory for a checkpoint's header");
    }
    memset(grown + length, ' ', (size_t)(padded - length));
    *out = grown;
    *bytes = padded;
    return SHERD_OK;
}

static sherd_status write_slice(int descriptor, const char *path, const shd_checkpoint_slice *slice, float *portion) {
    for (int64_t first = 0, count; first < slice->count; first += count) {
        count = portion_of(slice, first);
        const void *values = widen(slice, first, count, portion);
        SHD_TRY(shd_file_write(descriptor, path, values, count_bytes(slice, count)));
    }
    return SHERD_OK;
}

static sherd_status write_all(int descriptor, const char *path, const char *header, int64_t header_bytes,
                              const shd_checkpoint_slice *slices, int64_t count, float *portion) {
    unsigned char prefix[PREFIX_BYTES];
    memcpy(prefix, magic, MAGIC_BYTES);
    put_word(prefix + 8, (uint64_t)header_bytes);
    put_word(prefix + 16, XXH3_64bits(header, (size_t)header_bytes));
    SHD_TRY(shd_file_write(descriptor, path, prefix, PREFIX_BYTES));
    SHD_TRY(shd_file_write(descriptor, path, header, header_bytes));
    for (int64_t i = 0; i < count; i++) SHD_TRY(write_slice(descriptor, path, &slices[i], portion));
    return shd_file_sync(descriptor, path);
}

static sherd_status write_file(const char *path, int64_t step, int32_t rank, const shd_checkpoint_slice *slices,
                               int64_t count, float *portion) {
    char *header = NULL;
    int64_t header_bytes = 0;
    SHD_TRY(print_header(step, rank, slices, count, portion, &header, &header_bytes));
    int descriptor = -1;
    sherd_status status = shd_file_create(path, &descriptor);
    if (status == SHERD_OK) status = write_all(descriptor, path, header, header_bytes, slices, count, portion);
    shd_file_close(descriptor);
    shd_free(header);
    return status;
}

sherd_status shd_rank_file1_write(const char *path, int64_t step, int32_t rank, const shd_checkpoint_slice *slices,
                                  int64_t count) {
    bool widens = false;
    for (int64_t i = 0; i < count; i++) widens = widens || is_widened(&slices[i]);
    float *portion = widens ? shd_alloc(PORTION_COUNT, sizeof *portion) : NULL;
    if (widens && !portion) return shd_fail(SHERD_MEMORY, "out of memory to write a checkpoint");
    sherd_status status = write_file(path, step, rank, slices, count, portion);
    shd_free(portion);
    return status;
}

/* One slice of the header; `*offset` is where in the `data_bytes` of values it must begin, and where the next one
 * must. */
static sherd_status parse_slice(shd_keep *keep, const json_t *about, int64_t data_bytes, int64_t *offset,
                                shd_rank_slice *slice) {
    const char *tensor = NULL, *state = NULL;
    int64_t bytes;
    SHD_TRY(shd_json_text(about, "tensor", &tensor));
    SHD_TRY(shd_json_text(about, "state", &state));
    SHD_TRY(shd_json_int(about, "first", 0, INT64_MAX, &slice->first));
    SHD_TRY(shd_json_int(about, "count", 0, INT64_MAX - slice->first, &slice->count));
    SHD_TRY(shd_json_int(about, "offset", *offset, *offset, &slice->offset_bytes));
    SHD_TRY(shd_json_hash(about, "xxh3", &slice->hash));
    SHD_TRY(shd_json_dtype(about, "dtype", &slice->dtype));
    if (slice->dtype == SHERD_INT8 && slice->first % SHD_CODE_BLOCK_COUNT != 0)
        return shd_fail(SHERD_DATA, "it would begin within a block, at element %lld", (long long)slice->first);
    slice->tensor = shd_keep_text(keep, tensor, strlen(tensor));
    slice->state = shd_keep_text(keep, state, strlen(state));
    if (!slice->tensor || !slice->state) return shd_fail(SHERD_MEMORY, "out of memory for a checkpoint's header");
    bytes = slice->count > data_bytes ? INT64_MAX : shd_span_bytes(slice->dtype, slice->count);
    if (bytes > data_bytes - *offset)
        return shd_fail(SHERD_DATA, "it would have %lld elements from byte %lld of the values on, which are %lld bytes",
                        (long long)slice->count, (long long)*offset, (long long)data_bytes);
    *offset += bytes;
    return SHERD_OK;
}

static sherd_status parse_header(shd_rank_file1 *file, const json_t *header, int64_t data_offset) {
    int64_t version = 0, rank = 0;
    json_t *list = NULL;
    SHD_TRY(shd_json_int(header, "version", VERSION, VERSION, &version));
    SHD_TRY(shd_json_int(header, "step", file->step, file->step, &file->step));
    SHD_TRY(shd_json_int(header, "rank", file->rank, file->rank, &rank));
    SHD_TRY(shd_json_array(header, "slices", &list));
    file->slice_count = (int64_t)json_array_size(list);
    file->slices = shd_keep_take(file->keep, sizeof *file->slices * (size_t)file->slice_count + 1);
    if (!file->slices) return shd_fail(SHERD_MEMORY, "out of memory for a checkpoint's header");
    int64_t offset = 0, data_bytes = file->bytes - data_offset;
    for (int64_t i = 0; i < file->slice_count; i++) {
        sherd_status status =
            parse_slice(file->keep, json_array_get(list, (size_t)i), data_bytes, &offset, &file->slices[i]);
        if (status != SHERD_OK) return shd_fail_within(status, "slice %lld", (long long)i);
        file->slices[i].offset_bytes += data_offset;
    }
    if (offset != data_bytes)
        return shd_fail(SHERD_DATA, "it holds %lld bytes of values, its header announces %lld", (long long)data_bytes,
                        (long long)offset);
    return SHERD_OK;
}

static sherd_status read_header(shd_rank_file1 *file, int descriptor) {
    unsigned char prefix[PREFIX_BYTES];
    if (file->bytes < PREFIX_BYTES)
        return shd_fail(SHERD_DATA, "it is damaged: only %lld bytes are there", (long long)file->bytes);
    SHD_TRY(shd_file_read(descriptor, file->path, 0, prefix, PREFIX_BYTES));
    uint64_t header_bytes = get_word(prefix + 8);
    file->header_hash = get_word(prefix + 16);
    if (memcmp(prefix, magic, MAGIC_BYTES) != 0) return shd_fail(SHERD_DATA, "it is no rank file of a checkpoint");
    if (header_bytes > (uint64_t)(file->bytes - PREFIX_BYTES))
        return shd_fail(SHERD_DATA, "it is damaged: its header would have %llu bytes, the file has %lld",
                        (unsigned long long)header_bytes, (long long)file->bytes);
    char *text = shd_alloc((size_t)header_bytes, 1);
    if (!text) return shd_fail(SHERD_MEMORY, "out of memory for a checkpoint's header");
    json_t *header = NULL;
    sherd_status status = shd_file_read(descriptor, file->path, PREFIX_BYTES, text, (int64_t)header_bytes);
    if (status == SHERD_OK && XXH3_64bits(text, (size_t)header_bytes) != file->header_hash)
        status = shd_fail(SHERD_DATA, "it is damaged: the checksum of its header does not match");
    if (status == SHERD_OK) status = shd_json_parse(text, (int64_t)header_bytes, &header);
    if (status == SHERD_OK) status = parse_header(file, header, PREFIX_BYTES + (int64_t)header_bytes);
    json_decref(header);
    shd_free(text);
    return status;
}

sherd_status shd_rank_file1_open(const char *path, int64_t step, int32_t rank, shd_rank_file1 **out) {
    int descriptor;
    int64_t bytes;
    SHD_TRY(shd_file_open(path, &descriptor, &bytes));
    shd_keep *keep = shd_keep_create();
    shd_rank_file1 *file = keep ? shd_keep_take(keep, sizeof *file) : NULL;
    if (!file) {
        shd_keep_destroy(keep);
        shd_file_close(descriptor);
        return shd_fail(SHERD_MEMORY, "out of memory for a checkpoint's header");
    }
    *file = (shd_rank_file1){.keep = keep, .rank = rank, .step = step, .bytes = bytes};
    sherd_status status = shd_path_make(file->path, "%s", path);
    if (status == SHERD_OK) status = read_header(file, descriptor);
    shd_file_close(descriptor);
    if (status != SHERD_OK) {
        shd_rank_file1_close(file);
        return shd_fail_within(status, "%s", path);
    }
    *out = file;
    return SHERD_OK;
}

void shd_rank_file1_close(shd_rank_file1 *file) {
    if (file) shd_keep_destroy(file->keep);
}

static sherd_status check_slice(const shd_rank_file1 *file, int64_t index, uint64_t hash) {
    const shd_rank_slice *slice = &file->slices[index];
    if (hash == slice->hash) return SHERD_OK;
    return shd_fail(SHERD_DATA, "%s is damaged: the checksum of %s of tensor %s, elements %lld to %lld, does not match",
                    file->path, slice->state, slice->tensor, (long long)slice->first,
                    (long long)(slice->first + slice->count));
}

/* Where the next portion goes, rounded. */
typedef struct rounded_values {
    char *values;
    sherd_dtype dtype;
} rounded_values;

static sherd_status take_rounded(void *user, const float *values, int64_t count) {
    rounded_values *to = user;
    shd_round(to->dtype, count, values, to->values);
    to->values += count * shd_dtype_bytes(to->dtype);
    return SHERD_OK;
}

sherd_status shd_rank_file1_read(const shd_rank_file1 *file, int64_t index, sherd_dtype dtype, void *values) {
    if (shd_stored_dtype(dtype) != dtype) {
        rounded_values to = {.values = values, .dtype = dtype};
        return shd_rank_file1_stream(file, index, take_rounded, &to);
    }
    const shd_rank_slice *slice = &file->slices[index];
    int64_t file_bytes, bytes = shd_span_bytes(slice->dtype, slice->count);
    int descriptor;
    SHD_TRY(shd_file_open(file->path, &descriptor, &file_bytes));
    sherd_status status = shd_file_read(descriptor, file->path, slice->offset_bytes, values, bytes);
    shd_file_close(descriptor);
    SHD_TRY(status);
    return check_slice(file, index, XXH3_64bits(values, (size_t)bytes));
}

static sherd_status stream_open(const shd_rank_file1 *file, int64_t index, int descriptor, float *portion,
                                shd_rank_file1_sink sink, void *user) {
    const shd_rank_slice *slice = &file->slices[index];
    assert(slice->dtype == SHERD_FP32);
    XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    for (int64_t done = 0; done < slice->count; done += PORTION_COUNT) {
        int64_t count = shd_min(PORTION_COUNT, slice->count - done), bytes = count * (int64_t)sizeof(float);
        int64_t offset = slice->offset_bytes + done * (int64_t)sizeof(float);
        SHD_TRY(shd_file_read(descriptor, file->path, offset, portion, bytes));
        XXH3_64bits_update(&hash, portion, (size_t)bytes);
        SHD_TRY(sink(user, portion, count));
    }
    return check_slice(file, index, XXH3_64bits_digest(&hash));
}

sherd_status shd_rank_file1_stream(const shd_rank_file1 *file, int64_t index, shd_rank_file1_sink sink, void *user) {
    int64_t file_bytes;
    int descriptor;
    float *portion = shd_alloc(PORTION_COUNT, sizeof *portion);
    if (!portion) return shd_fail(SHERD_MEMORY, "out of memory to read a checkpoint");
    sherd_status status = shd_file_open(file->path, &descriptor, &file_bytes);
    if (status == SHERD_OK) {
        status = stream_open(file, index, descriptor, portion, sink, user);
        shd_file_close(descriptor);
    }
    shd_free(portion);
    return status;
}
