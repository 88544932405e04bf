#include "io/checkpoint_build.h"

#include "io/checkpoint_block.h"
#include "io/checkpoint_file.h"
#include "io/checkpoint_folder.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

struct shd_build {
    shd_build_config config; /* parent is a copy */
    char partial[SHD_PATH_BYTES], path[SHD_PATH_BYTES];
    uint64_t id;
    int folder; /* holds the partial folder's lock; -1: there is none */
    char *memory;
    int64_t memory_bytes;
    void *values, *stored; /* in memory */
    shd_block_codec *codec;
    shd_rank_file_maker *makers; /* [file_count]; their locks are held to the end */
    int32_t begun_count, finished_count;
    int64_t end_bytes; /* of the file in the making */
    shd_index index;   /* likewise */
    int64_t index_capacity;
};

static sherd_status take_memory(shd_build *build) {
    const int64_t stored_bytes = shd_block_stored_bytes_max(SHD_BLOCK_RAW_BYTES_MAX);
    build->config.parent = shd_strdup(build->config.parent);
    build->memory_bytes = SHD_BLOCK_RAW_BYTES_MAX + stored_bytes + shd_block_codec_bytes(build->config.compression);
    build->memory = shd_map(build->memory_bytes);
    build->makers = shd_alloc((size_t)build->config.file_count, sizeof *build->makers);
    if (!build->memory || !build->makers || !build->config.parent)
        return shd_fail(SHERD_MEMORY, "no memory to make a checkpoint");
    build->values = build->memory;
    build->stored = build->memory + SHD_BLOCK_RAW_BYTES_MAX;
    build->codec =
        shd_block_codec_init(build->memory + SHD_BLOCK_RAW_BYTES_MAX + stored_bytes, build->config.compression);
    return SHERD_OK;
}

static sherd_status begin(shd_build *build) {
    struct stat about;
    SHD_TRY(take_memory(build));
    const shd_build_config *config = &build->config;
    SHD_TRY(shd_checkpoint_step_path(build->path, config->parent, config->step));
    if (lstat(build->path, &about) == 0)
        return shd_fail(SHERD_ARGUMENT, "%s is there already; name another folder", build->path);
    if (getrandom(&build->id, sizeof build->id, 0) != (ssize_t)sizeof build->id)
        return shd_fail(SHERD_IO, "the system gives no random number: %s", strerror(errno));
    SHD_TRY(shd_checkpoint_partial_path(build->partial, config->parent, config->step, build->id));
    return shd_checkpoint_partial_enter(build->partial, &build->folder);
}

sherd_status shd_build_create(const shd_build_config *config, shd_build **out) {
    shd_build *build = shd_alloc(1, sizeof *build);
    if (!build) return shd_fail(SHERD_MEMORY, "no memory to make a checkpoint");
    build->config = *config;
    build->folder = -1;
    sherd_status status = begin(build);
    if (status != SHERD_OK) {
        shd_build_destroy(build);
        return status;
    }
    *out = build;
    return SHERD_OK;
}

void shd_build_destroy(shd_build *build) {
    if (!build) return;
    for (int32_t i = 0; i < build->begun_count; i++) shd_rank_file_maker_close(&build->makers[i]);
    if (build->folder >= 0) {
        shd_file_close(build->folder); /* its own lock would be in the way */
        shd_checkpoint_discard(build->config.parent, build->config.step, build->id);
    }
    shd_unmap(build->memory, build->memory_bytes);
    shd_free(build->makers);
    shd_free(build->index.blocks);
    shd_free((char *)build->config.parent);
    shd_free(build);
}

void *shd_build_values(shd_build *build) { return build->values; }
const char *shd_build_path(const shd_build *build) { return build->path; }

sherd_status shd_build_begin_file(shd_build *build) {
    const int32_t rank = build->begun_count;
    char path[SHD_PATH_BYTES];
    assert(rank == build->finished_count && rank < build->config.file_count);
    build->index.count = 0;
    build->end_bytes = SHD_FILE_HEAD_BYTES;
    SHD_TRY(shd_rank_file_path(path, build->partial, rank));
    SHD_TRY(shd_rank_file_create(&build->makers[rank], path, build->config.step, rank));
    build->begun_count++;
    return SHERD_OK;
}

/* Room for one block more in the index. */
static sherd_status reserve(shd_build *build) {
    if (build->index.count < build->index_capacity) return SHERD_OK;
    const int64_t capacity = build->index_capacity ? 2 * build->index_capacity : 64;
    shd_file_block *blocks = shd_realloc(build->index.blocks, (size_t)capacity * sizeof *blocks);
    if (!blocks) return shd_fail(SHERD_MEMORY, "no memory for the index of %lld blocks", (long long)capacity);
    build->index.blocks = blocks;
    build->index_capacity = capacity;
    return SHERD_OK;
}

sherd_status shd_build_add(shd_build *build, const shd_checkpoint_slice *slice) {
    assert(slice->values == build->values && slice->count <= shd_block_count_max(slice->dtype));
    if (slice->count == 0) return SHERD_OK;
    SHD_TRY(reserve(build));
    shd_file_block block = {.tensor = slice->tensor,
                            .state = slice->state,
                            .first = slice->first,
                            .offset_bytes = build->end_bytes,
                            .form = {.dtype = slice->dtype, .count = slice->count}};
    shd_block_encode(build->codec, build->values, build->stored, &block.form);
    SHD_TRY(shd_rank_file_put(&build->makers[build->begun_count - 1], build->stored, block.form.stored_bytes,
                              build->end_bytes));
    build->end_bytes += block.form.stored_bytes;
    build->index.blocks[build->index.count++] = block;
    return SHERD_OK;
}

sherd_status shd_build_finish_file(shd_build *build) {
    SHD_TRY(shd_rank_file_finish(&build->makers[build->begun_count - 1], &build->index));
    build->finished_count++;
    return SHERD_OK;
}

sherd_status shd_build_commit(shd_build *build, const shd_checkpoint_manifest *manifest) {
    assert(manifest->step == build->config.step && manifest->world_size == build->config.file_count);
    SHD_TRY(shd_checkpoint_commit(build->config.parent, build->id, manifest));
    shd_file_close(build->folder);
    build->folder = -1;
    return SHERD_OK;
}
