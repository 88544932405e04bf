/* The reader of one rank's file of a checkpoint. Input: see seal_rank_file; one that begins with a NUL byte is, behind
 * it, a whole file.
 *
 * A block is read only when its checksum is that of its bytes, and where it is stored as it is, always then. */
#include "io/checkpoint_file.h"
#include "runtime/base/dtype.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/seal.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { STEP = 3, RANK = 1 };

/* Room for any block as stored, and its codec. */
typedef struct block_room {
    shd_block_codec *codec;
    void *stored;
} block_room;

static block_room make_room(void) {
    char *memory = NULL;
    size_t codec_bytes = (size_t)shd_block_codec_bytes(0), stored_bytes = SHD_BLOCK_RAW_BYTES_MAX;
    fuzz_check(posix_memalign((void **)&memory, SHD_BLOCK_ALIGN_BYTES, codec_bytes + stored_bytes) == 0);
    return (block_room){.codec = shd_block_codec_init(memory, 0), .stored = memory + codec_bytes};
}

static void check_block(const shd_rank_file *file, int64_t index, const block_room *room, const fuzz_text *content) {
    const shd_file_block *block = &file->index.blocks[index];
    const shd_block_form *form = &block->form;
    fuzz_check(block->first >= 0 && form->count > 0 && form->count <= shd_block_count_max(form->dtype));
    fuzz_check(form->stored_bytes > 0 && form->stored_bytes <= SHD_BLOCK_RAW_BYTES_MAX);
    fuzz_check(block->offset_bytes >= SHD_FILE_HEAD_BYTES &&
               form->stored_bytes <= (int64_t)content->length - block->offset_bytes);
    const char *stored = content->bytes + block->offset_bytes;
    bool whole = XXH3_64bits(stored, (size_t)form->stored_bytes) == form->hash;
    size_t bytes = (size_t)shd_span_bytes(form->dtype, form->count);
    void *values = malloc(bytes);
    fuzz_check(values);
    sherd_status status = shd_rank_file_read(file, index, room->codec, room->stored, values);
    fuzz_check(whole || status != SHERD_OK);
    fuzz_check(!whole || form->transform != SHD_TRANSFORM_NONE || status == SHERD_OK);
    if (status != SHERD_OK) fuzz_check_refusal(status, SHERD_DATA);
    if (status == SHERD_OK && form->transform == SHD_TRANSFORM_NONE) fuzz_check(memcmp(values, stored, bytes) == 0);
    if (status == SHERD_OK) fuzz_note_accepted();
    free(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const char *path;
    static block_room room;
    if (!path) {
        path = fuzz_path("rank-00001.bin");
        room = make_room();
    }
    fuzz_text content = {0};
    uint64_t index_hash;
    if (bytes > 0 && data[0] == 0)
        fuzz_add(&content, data + 1, bytes - 1);
    else
        seal_rank_file(&content, data, bytes, RANK, &index_hash);
    fuzz_write(path, content.bytes, content.length);
    shd_rank_file *file = NULL;
    sherd_status status = shd_rank_file_open(path, STEP, RANK, &file);
    if (status != SHERD_OK) fuzz_check_refusal(status, status == SHERD_UNSUPPORTED ? status : SHERD_DATA);
    for (int64_t i = 0; file && i < file->index.count; i++) check_block(file, i, &room, &content);
    shd_rank_file_close(file);
    fuzz_check_released();
    free(content.bytes);
    return 0;
}
