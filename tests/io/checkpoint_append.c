#include "checkpoint_append.h"

#include "io/checkpoint_file.h"
#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <assert.h>
#include <string.h>

struct shd_appender {
    shd_keep *keep; /* names */
    shd_rank_file_maker maker;
    bool finished;
    shd_index index;
    int64_t capacity; /* of index.blocks */
    void *room;       /* the codec, then a block as stored */
    int64_t room_bytes;
    shd_block_codec *codec;
    char *stored;
};

static sherd_status prepare(shd_appender *appender, const char *folder, int64_t step, int32_t rank,
                            int32_t compression) {
    char path[SHD_PATH_BYTES];
    int64_t codec_bytes = shd_block_codec_bytes(compression);
    appender->room_bytes = codec_bytes + shd_block_stored_bytes_max(SHD_BLOCK_RAW_BYTES_MAX);
    appender->room = shd_map(appender->room_bytes);
    appender->keep = shd_keep_create();
    if (!appender->room || !appender->keep) return shd_fail(SHERD_MEMORY, "out of memory to write a checkpoint");
    appender->codec = shd_block_codec_init(appender->room, compression);
    appender->stored = (char *)appender->room + codec_bytes;
    SHD_TRY(shd_rank_file_path(path, folder, rank));
    return shd_rank_file_create(&appender->maker, path, step, rank);
}

sherd_status shd_appender_create(const char *folder, int64_t step, int32_t rank, int32_t compression,
                                 shd_appender **out) {
    shd_appender *appender = shd_alloc(1, sizeof *appender);
    if (!appender) return shd_fail(SHERD_MEMORY, "out of memory to write a checkpoint");
    appender->maker.descriptor = -1;
    sherd_status status = prepare(appender, folder, step, rank, compression);
    if (status != SHERD_OK) {
        shd_appender_destroy(appender);
        return status;
    }
    *out = appender;
    return SHERD_OK;
}

void shd_appender_destroy(shd_appender *appender) {
    if (!appender) return;
    if (appender->finished)
        shd_rank_file_maker_close(&appender->maker);
    else if (appender->maker.descriptor >= 0)
        shd_rank_file_discard(&appender->maker);
    shd_keep_destroy(appender->keep);
    if (appender->room) shd_unmap(appender->room, appender->room_bytes);
    shd_free(appender->index.blocks);
    shd_free(appender);
}

static sherd_status keep_block(shd_appender *appender, const shd_file_block *block) {
    shd_index *index = &appender->index;
    if (index->count == appender->capacity) {
        int64_t capacity = shd_max(64, 2 * appender->capacity);
        shd_file_block *grown = shd_realloc(index->blocks, (size_t)capacity * sizeof *grown);
        if (!grown) return shd_fail(SHERD_MEMORY, "out of memory for a checkpoint's index");
        index->blocks = grown;
        appender->capacity = capacity;
    }
    index->blocks[index->count++] = *block;
    return SHERD_OK;
}

sherd_status shd_appender_add(shd_appender *appender, const char *tensor, const char *state, int64_t first,
                              int64_t count, sherd_dtype dtype, const void *values) {
    assert(!appender->finished && (dtype != SHERD_INT8 || first % SHD_CODE_BLOCK_COUNT == 0));
    const char *tensor_copy = shd_keep_text(appender->keep, tensor, strlen(tensor));
    const char *state_copy = shd_keep_text(appender->keep, state, strlen(state));
    if (!tensor_copy || !state_copy) return shd_fail(SHERD_MEMORY, "out of memory for a checkpoint's index");
    for (int64_t done = 0; done < count;) {
        shd_file_block block = {
            .tensor = tensor_copy,
            .state = state_copy,
            .first = first + done,
            .offset_bytes = shd_index_end_bytes(&appender->index),
            .form = {.dtype = dtype, .count = shd_min(shd_block_count_max(dtype), count - done)},
        };
        const char *from = (const char *)values + shd_span_bytes(dtype, done);
        shd_block_encode(appender->codec, from, appender->stored, &block.form);
        SHD_TRY(shd_rank_file_put(&appender->maker, appender->stored, block.form.stored_bytes, block.offset_bytes));
        SHD_TRY(keep_block(appender, &block));
        done += block.form.count;
    }
    return SHERD_OK;
}

sherd_status shd_appender_finish(shd_appender *appender) {
    assert(!appender->finished);
    SHD_TRY(shd_rank_file_finish(&appender->maker, &appender->index));
    appender->finished = true;
    return SHERD_OK;
}
