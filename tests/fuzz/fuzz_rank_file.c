/* The reader of one rank's file of a checkpoint. Input: see seal_rank_file; one that begins with a NUL byte is, behind
 * it, a whole file.
 *
 * A slice is read exactly when its checksum is that of its bytes, at once and in portions. */
#include "io/checkpoint_file1.h"
#include "runtime/base/dtype.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/seal.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { STEP = 3, RANK = 1 };

typedef struct portions {
    const char *expected;
    int64_t done;
} portions;

static sherd_status take_portion(void *user, const float *values, int64_t count) {
    portions *state = user;
    size_t bytes = (size_t)count * sizeof *values;
    fuzz_check(memcmp(values, state->expected + state->done * (int64_t)sizeof *values, bytes) == 0);
    state->done += count;
    return SHERD_OK;
}

static void check_slice(const shd_rank_file1 *file, int64_t index, const fuzz_text *content) {
    const shd_rank_slice *slice = &file->slices[index];
    fuzz_check(slice->first >= 0 && slice->count >= 0 && slice->offset_bytes >= 0);
    fuzz_check(slice->dtype == SHERD_FP32 || (slice->dtype == SHERD_INT8 && slice->first % SHD_CODE_BLOCK_COUNT == 0));
    fuzz_check(slice->count <= (int64_t)content->length);
    fuzz_check(shd_span_bytes(slice->dtype, slice->count) <= (int64_t)content->length - slice->offset_bytes);
    size_t bytes = (size_t)shd_span_bytes(slice->dtype, slice->count);
    const char *expected = content->bytes + slice->offset_bytes;
    bool whole = XXH3_64bits(expected, bytes) == slice->hash;
    void *values = malloc(bytes + 1);
    fuzz_check(values);
    portions state = {.expected = expected};
    bool streams = slice->dtype == SHERD_FP32;
    sherd_status at_once = shd_rank_file1_read(file, index, slice->dtype, values);
    sherd_status streamed = streams ? shd_rank_file1_stream(file, index, take_portion, &state) : at_once;
    if (whole) {
        fuzz_check(at_once == SHERD_OK && streamed == SHERD_OK);
        fuzz_check(memcmp(values, expected, bytes) == 0 && (!streams || state.done == slice->count));
        if (slice->count > 0) fuzz_note_accepted();
    } else {
        fuzz_check_refusal(at_once, SHERD_DATA);
        fuzz_check_refusal(streamed, SHERD_DATA);
    }
    free(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const char *path;
    if (!path) path = fuzz_path("rank-00001.bin");
    fuzz_text content = {0};
    uint64_t header_hash;
    if (bytes > 0 && data[0] == 0)
        fuzz_add(&content, data + 1, bytes - 1);
    else
        seal_rank_file(&content, data, bytes, &header_hash);
    fuzz_write(path, content.bytes, content.length);
    shd_rank_file1 *file = NULL;
    sherd_status status = shd_rank_file1_open(path, STEP, RANK, &file);
    if (status != SHERD_OK) fuzz_check_refusal(status, SHERD_DATA);
    for (int64_t i = 0; file && i < file->slice_count; i++) check_slice(file, i, &content);
    shd_rank_file1_close(file);
    fuzz_check_released();
    free(content.bytes);
    return 0;
}
