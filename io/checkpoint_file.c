#define XXH_STATIC_LINKING_ONLY /* the streaming state on the stack */
#include "io/checkpoint_file.h"

#include "runtime/base/arith.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file's byte order is copied as it is");

enum { MAGIC_BYTES = 8, TAIL_BYTES = 32, ALIGN_BYTES = SHD_BLOCK_ALIGN_BYTES };
static const char magic[MAGIC_BYTES + 1] = "SHERDCKP", old_magic[MAGIC_BYTES + 1] = "SHERDRNK",
                                      end_magic[MAGIC_BYTES + 1] = "SHERDEND";

typedef struct file_head {
    char magic[MAGIC_BYTES];
    uint32_t version, rank;
    uint64_t step;
} file_head;
_Static_assert(sizeof(file_head) == 24, "as in the file");

typedef struct file_tail {
    uint64_t index_bytes, zero, hash;
    char magic[MAGIC_BYTES];
} file_tail;
_Static_assert(sizeof(file_tail) == TAIL_BYTES, "as in the file");

/* What surrounds the blocks, in memory: the head, then all behind the blocks. */
typedef struct file_frame {
    void *memory;
    char *head;
    char *foot;         /* the index, zeros, the tail */
    int64_t foot_bytes; /* a multiple of ALIGN_BYTES */
} file_frame;

static sherd_status make_frame(int64_t index_bytes, file_frame *out) {
    int64_t foot_bytes = shd_round_up(index_bytes + TAIL_BYTES, ALIGN_BYTES);
    char *memory = shd_alloc((size_t)(ALIGN_BYTES + SHD_FILE_HEAD_BYTES + foot_bytes), 1);
    if (!memory) return shd_fail(SHERD_MEMORY, "out of memory for a checkpoint's index");
    char *head = memory + (ALIGN_BYTES - (uintptr_t)memory % ALIGN_BYTES) % ALIGN_BYTES;
    *out = (file_frame){.memory = memory, .head = head, .foot = head + SHD_FILE_HEAD_BYTES, .foot_bytes = foot_bytes};
    return SHERD_OK;
}

static file_tail *tail_of(const file_frame *frame) {
    return (file_tail *)(void *)(frame->foot + frame->foot_bytes - TAIL_BYTES);
}

/* All but the blocks, the hash itself and the mark behind it. */
static uint64_t hash_frame(const file_frame *frame) {
    XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    XXH3_64bits_update(&hash, frame->head, SHD_FILE_HEAD_BYTES);
    XXH3_64bits_update(&hash, frame->foot, (size_t)frame->foot_bytes - TAIL_BYTES + offsetof(file_tail, hash));
    return XXH3_64bits_digest(&hash);
}

sherd_status shd_rank_file_path(char out[SHD_PATH_BYTES], const char *folder, int32_t rank) {
    return shd_path_make(out, "%s/rank-%05d.bin", folder, rank);
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

sherd_status shd_rank_file_create(shd_rank_file_maker *maker, const char *path, int64_t step, int32_t rank) {
    shd_rank_file_maker made = {.rank = rank, .step = step};
    SHD_TRY(shd_path_make(made.path, "%s", path));
    SHD_TRY(shd_file_create_direct(path, &made.descriptor));
    /* Where locks do not work, nobody can tell the file from a dead job's by one, and nobody removes it. */
    while (flock(made.descriptor, LOCK_SH) != 0 && errno == EINTR) continue;
    *maker = made;
    return SHERD_OK;
}

sherd_status shd_rank_file_put(const shd_rank_file_maker *maker, const void *stored, int64_t bytes,
                               int64_t offset_bytes) {
    assert(bytes % ALIGN_BYTES == 0 && offset_bytes % ALIGN_BYTES == 0 && (uintptr_t)stored % ALIGN_BYTES == 0);
    return shd_file_write_at(maker->descriptor, maker->path, offset_bytes, stored, bytes);
}

static sherd_status fill_frame(const shd_rank_file_maker *maker, const char *text, file_frame *out) {
    int64_t length = (int64_t)strlen(text);
    SHD_TRY(make_frame(length, out));
    file_head head = {.version = SHD_CHECKPOINT_VERSION, .rank = (uint32_t)maker->rank, .step = (uint64_t)maker->step};
    memcpy(head.magic, magic, MAGIC_BYTES);
    memcpy(out->head, &head, sizeof head);
    memcpy(out->foot, text, (size_t)length);
    file_tail *tail = tail_of(out);
    tail->index_bytes = (uint64_t)length;
    tail->hash = hash_frame(out);
    memcpy(tail->magic, end_magic, MAGIC_BYTES);
    return SHERD_OK;
}

static sherd_status write_frame(const shd_rank_file_maker *maker, const file_frame *frame, int64_t end_bytes) {
    SHD_TRY(shd_rank_file_put(maker, frame->foot, frame->foot_bytes, end_bytes));
    SHD_TRY(shd_rank_file_put(maker, frame->head, SHD_FILE_HEAD_BYTES, 0));
    SHD_TRY(shd_file_sync(maker->descriptor, maker->path));
    if (shd_file_is_at(maker->descriptor, maker->path)) return SHERD_OK;
    return shd_fail(SHERD_IO, "%s was removed or replaced while it was being written", maker->path);
}

sherd_status shd_rank_file_finish(shd_rank_file_maker *maker, const shd_index *index) {
    char *text = NULL;
    file_frame frame = {0};
    int64_t end_bytes = shd_index_end_bytes(index);
    SHD_TRY(shd_index_print(index, &text));
    sherd_status status = fill_frame(maker, text, &frame);
    shd_free(text);
    if (status == SHERD_OK) status = write_frame(maker, &frame, end_bytes);
    if (status == SHERD_OK) {
        maker->index_hash = tail_of(&frame)->hash;
        maker->bytes = end_bytes + frame.foot_bytes;
    }
    shd_free(frame.memory);
    return status;
}

void shd_rank_file_maker_close(shd_rank_file_maker *maker) {
    shd_file_close(maker->descriptor);
    maker->descriptor = -1;
}

void shd_rank_file_discard(shd_rank_file_maker *maker) {
    if (shd_file_is_at(maker->descriptor, maker->path)) unlink(maker->path);
    shd_rank_file_maker_close(maker);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static sherd_status check_head(const file_frame *frame) {
    file_head head;
    memcpy(&head, frame->head, sizeof head);
    bool old = memcmp(head.magic, old_magic, MAGIC_BYTES) == 0;
    if (!old && memcmp(head.magic, magic, MAGIC_BYTES) != 0)
        return shd_fail(SHERD_DATA, "it is no rank file of a checkpoint, or damaged: it does not begin as one");
    if (old || head.version != SHD_CHECKPOINT_VERSION)
        return shd_fail(SHERD_DATA, "it has version %u of the format; this build reads version %d",
                        old ? 1u : head.version, SHD_CHECKPOINT_VERSION);
    return SHERD_OK;
}

/* Whose it is; only when the checksum was right. */
static sherd_status check_origin(const shd_rank_file *file, const file_frame *frame) {
    file_head head;
    memcpy(&head, frame->head, sizeof head);
    if (head.rank == (uint32_t)file->rank && head.step == (uint64_t)file->step) return SHERD_OK;
    return shd_fail(SHERD_DATA, "it is rank %u's file of step %llu, not rank %d's of step %lld", head.rank,
                    (unsigned long long)head.step, file->rank, (long long)file->step);
}

/* Reads the tail alone, to learn how long the index is. */
static sherd_status read_tail(const shd_rank_file *file, file_frame *page, file_tail *out) {
    SHD_TRY(shd_file_read(file->descriptor, file->path, 0, page->head, SHD_FILE_HEAD_BYTES));
    SHD_TRY(check_head(page));
    if (file->bytes % ALIGN_BYTES != 0 || file->bytes < SHD_FILE_HEAD_BYTES + ALIGN_BYTES)
        return shd_fail(SHERD_DATA, "it is damaged: no rank file has %lld bytes", (long long)file->bytes);
    SHD_TRY(shd_file_read(file->descriptor, file->path, file->bytes - page->foot_bytes, page->foot, page->foot_bytes));
    file_tail *tail = tail_of(page);
    if (memcmp(tail->magic, end_magic, MAGIC_BYTES) != 0)
        return shd_fail(SHERD_DATA, "it is damaged: its last bytes are not those of a rank file");
    if (tail->index_bytes > SHD_INDEX_BYTES_MAX)
        return shd_fail(SHERD_DATA, "it is damaged: its index would have %llu bytes; %lld are the most",
                        (unsigned long long)tail->index_bytes, (long long)SHD_INDEX_BYTES_MAX);
    if (tail->index_bytes > (uint64_t)(file->bytes - SHD_FILE_HEAD_BYTES - TAIL_BYTES))
        return shd_fail(SHERD_DATA, "it is damaged: its index would have %llu bytes, the file has %lld",
                        (unsigned long long)tail->index_bytes, (long long)file->bytes);
    *out = *tail;
    return SHERD_OK;
}

static sherd_status read_index(shd_rank_file *file, const file_frame *frame) {
    int64_t index_bytes = (int64_t)tail_of(frame)->index_bytes, end_bytes = file->bytes - frame->foot_bytes;
    SHD_TRY(shd_file_read(file->descriptor, file->path, 0, frame->head, SHD_FILE_HEAD_BYTES));
    SHD_TRY(shd_file_read(file->descriptor, file->path, end_bytes, frame->foot, frame->foot_bytes));
    file->index_hash = tail_of(frame)->hash;
    if (hash_frame(frame) != file->index_hash || (int64_t)tail_of(frame)->index_bytes != index_bytes)
        return shd_fail(SHERD_DATA, "it is damaged: the checksum of its head and index does not match");
    SHD_TRY(check_origin(file, frame));
    return shd_index_parse(frame->foot, index_bytes, end_bytes, file->keep, &file->index);
}

static sherd_status read_frame(shd_rank_file *file) {
    file_frame page = {0}, whole = {0};
    file_tail tail = {0};
    SHD_TRY(make_frame(0, &page));
    sherd_status status = read_tail(file, &page, &tail);
    shd_free(page.memory);
    if (status == SHERD_OK) status = make_frame((int64_t)tail.index_bytes, &whole);
    if (status == SHERD_OK) {
        *tail_of(&whole) = tail;
        status = read_index(file, &whole);
    }
    shd_free(whole.memory);
    return status;
}

sherd_status shd_rank_file_open(const char *path, int64_t step, int32_t rank, shd_rank_file **out) {
    int descriptor;
    int64_t bytes;
    SHD_TRY(shd_file_open_direct(path, &descriptor, &bytes));
    shd_keep *keep = shd_keep_create();
    shd_rank_file *file = keep ? shd_keep_take(keep, sizeof *file) : NULL;
    if (!file) {
        shd_keep_destroy(keep);
        shd_file_close(descriptor);
        return shd_fail(SHERD_MEMORY, "out of memory for a checkpoint's index");
    }
    *file = (shd_rank_file){.keep = keep, .descriptor = descriptor, .rank = rank, .step = step, .bytes = bytes};
    sherd_status status = shd_path_make(file->path, "%s", path);
    if (status == SHERD_OK) status = read_frame(file);
    if (status != SHERD_OK) {
        shd_rank_file_close(file);
        return shd_fail_within(status, "%s", path);
    }
    *out = file;
    return SHERD_OK;
}

void shd_rank_file_close(shd_rank_file *file) {
    if (!file) return;
    shd_file_close(file->descriptor);
    shd_keep_destroy(file->keep);
}

void shd_rank_file_rest(shd_rank_file *file) {
    shd_file_close(file->descriptor);
    file->descriptor = -1;
}

static sherd_status read_stored(const shd_rank_file *file, const shd_file_block *block, void *stored) {
    int descriptor = file->descriptor;
    int64_t bytes;
    if (descriptor < 0) SHD_TRY(shd_file_open_direct(file->path, &descriptor, &bytes));
    sherd_status status = shd_file_read(descriptor, file->path, block->offset_bytes, stored, block->form.stored_bytes);
    if (descriptor != file->descriptor) shd_file_close(descriptor);
    return status;
}

sherd_status shd_rank_file_read(const shd_rank_file *file, int64_t block_index, shd_block_codec *codec, void *stored,
                                void *values) {
    const shd_file_block *block = &file->index.blocks[block_index];
    long long first = block->first, end = first + block->form.count;
    sherd_status status = read_stored(file, block, stored);
    if (status != SHERD_OK)
        return shd_fail_within(status, "%s of tensor %s, elements %lld to %lld", block->state, block->tensor, first,
                               end);
    status = shd_block_decode(codec, stored, &block->form, values);
    if (status == SHERD_OK) return SHERD_OK;
    return shd_fail_within(status, "%s is damaged: %s of tensor %s, elements %lld to %lld", file->path, block->state,
                           block->tensor, first, end);
}
