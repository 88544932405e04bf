/* The codec of a checkpoint's blocks. Input: a byte of choices, two of the number of values (little-endian), and the rest.
 *
 * Choices: bits 0-1 the dtype, bit 2 PLANES, bit 3 a checksum that is wrong, bit 4 that the rest are not what is stored
 * but values to encode. What is stored gets its zeros and its checksum here, so that damage reaches the planes.
 *
 * What decodes does so to the same bits whatever was there before, and comes back after another encoding. */
#include "io/checkpoint_block.h"
#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "tests/fuzz/fuzz.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { HEAD_BYTES = 3, PLANES = 4, WRONG_HASH = 8, VALUES = 16 };

static shd_block_codec *codec(void) {
    static shd_block_codec *made;
    if (!made) {
        void *memory = aligned_alloc(SHD_BLOCK_ALIGN_BYTES, (size_t)shd_block_codec_bytes(1)); /* lives for ever */
        fuzz_check(memory);
        made = shd_block_codec_init(memory, 1);
    }
    return made;
}

/* Memory of exactly `bytes`, all of one value. */
static void *take(int64_t bytes, int value) {
    void *memory = bytes > 0 && bytes % SHD_BLOCK_ALIGN_BYTES == 0 ? aligned_alloc(SHD_BLOCK_ALIGN_BYTES, (size_t)bytes)
                                                                   : malloc((size_t)bytes + (bytes == 0));
    fuzz_check(memory);
    return memset(memory, value, (size_t)bytes);
}

static void encode_and_back(shd_block_form form, const void *values) {
    int64_t bytes = shd_span_bytes(form.dtype, form.count);
    void *stored = take(shd_block_stored_bytes_max(bytes), 0xa5), *back = take(bytes, 0x5a);
    shd_block_encode(codec(), values, stored, &form);
    fuzz_check(form.stored_bytes <= shd_block_stored_bytes_max(bytes) && form.payload_bytes <= bytes);
    fuzz_check(shd_block_decode(codec(), stored, &form, back) == SHERD_OK);
    fuzz_check(memcmp(back, values, (size_t)bytes) == 0);
    fuzz_note_accepted();
    free(stored), free(back);
}

static void decode(shd_block_form form, bool wrong, const uint8_t *payload, int64_t payload_bytes) {
    int64_t bytes = shd_span_bytes(form.dtype, form.count);
    form.payload_bytes = payload_bytes;
    form.stored_bytes = shd_round_up(payload_bytes, SHD_BLOCK_ALIGN_BYTES);
    void *stored = take(form.stored_bytes, 0), *values = take(bytes, 0x11), *again = take(bytes, 0xee);
    if (payload_bytes > 0) memcpy(stored, payload, (size_t)payload_bytes);
    form.hash = XXH3_64bits(stored, (size_t)form.stored_bytes) ^ wrong;
    sherd_status status = shd_block_decode(codec(), stored, &form, values);
    fuzz_check(shd_block_decode(codec(), stored, &form, again) == status);
    if (status == SHERD_OK) {
        fuzz_check(!wrong && memcmp(values, again, (size_t)bytes) == 0);
        fuzz_note_accepted();
        encode_and_back(form, values);
    } else
        fuzz_check_refusal(status, SHERD_DATA);
    free(stored), free(values), free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes < HEAD_BYTES) return 0;
    shd_block_form form = {.dtype = (sherd_dtype)(data[0] & 3),
                           .count = data[1] | data[2] << 8,
                           .transform = data[0] & PLANES ? SHD_TRANSFORM_PLANES : SHD_TRANSFORM_NONE};
    const uint8_t *rest = data + HEAD_BYTES;
    int64_t rest_bytes = (int64_t)bytes - HEAD_BYTES;
    if (data[0] & VALUES) {
        while (shd_span_bytes(form.dtype, form.count) > rest_bytes) form.count /= 2;
        encode_and_back(form, rest);
    } else
        decode(form, data[0] & WRONG_HASH, rest, rest_bytes);
    return 0;
}
