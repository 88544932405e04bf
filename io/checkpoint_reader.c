/* Reading order: opening; finding what holds some elements; streaming. Filling many slices is in checkpoint_load.c. */
#include "io/checkpoint_reader.h"

#include "io/checkpoint_reader_parts.h"
#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { OPEN_FILES_MAX = 128 };

/* --- opening ------------------------------------------------------------------------------------------------------ */

static sherd_status fail_memory(void) { return shd_fail(SHERD_MEMORY, "out of memory to read a checkpoint"); }

static sherd_status check_size(const char *path, int64_t bytes) {
    struct stat about;
    if (stat(path, &about) != 0)
        return shd_fail(errno == ENOENT ? SHERD_DATA : SHERD_IO, "cannot look at %s, a part of the checkpoint: %s",
                        path, strerror(errno));
    if (about.st_size == bytes) return SHERD_OK;
    return shd_fail(SHERD_DATA, "%s is damaged: it has %lld bytes, the manifest says %lld", path,
                    (long long)about.st_size, (long long)bytes);
}

sherd_status shd_reader_open_file(const char *folder, int64_t step, int32_t rank, const shd_checkpoint_file *expected,
                                  shd_rank_file **out) {
    char path[SHD_PATH_BYTES];
    shd_rank_file *file = NULL;
    SHD_TRY(shd_rank_file_path(path, folder, rank));
    SHD_TRY(check_size(path, expected->bytes));
    SHD_TRY(shd_rank_file_open(path, step, rank, &file));
    if (file->bytes != expected->bytes || file->index_hash != expected->index_hash) {
        shd_rank_file_close(file);
        return shd_fail(SHERD_DATA, "%s is not the file that the checkpoint's manifest was made for", path);
    }
    *out = file;
    return SHERD_OK;
}

static sherd_status open_files(shd_reader *reader, const shd_checkpoint_manifest *manifest) {
    size_t ranks = (size_t)manifest->world_size;
    reader->files = shd_keep_take(reader->keep, ranks * sizeof *reader->files);
    reader->first_blocks = shd_keep_take(reader->keep, (ranks + 1) * sizeof *reader->first_blocks);
    if (!reader->files || !reader->first_blocks) return fail_memory();
    for (int32_t rank = 0; rank < manifest->world_size; rank++) {
        SHD_TRY(shd_reader_open_file(reader->path, manifest->step, rank, &manifest->files[rank], &reader->files[rank]));
        reader->file_count++;
        if (manifest->world_size > OPEN_FILES_MAX) shd_rank_file_rest(reader->files[rank]);
        reader->first_blocks[rank + 1] = reader->first_blocks[rank] + reader->files[rank]->index.count;
    }
    return SHERD_OK;
}

static int compare_values(const void *left, const void *right) {
    const shd_stored_value *a = left, *b = right;
    int order = strcmp(a->tensor, b->tensor);
    return order != 0 ? order : strcmp(a->state, b->state);
}

/* Joins what follows each other in a list of single blocks, sorted, into one value each. */
static void join_values(shd_reader *reader, int64_t block_count, shd_interval *intervals) {
    shd_stored_value *list = reader->values;
    for (int64_t begin = 0, end; begin < block_count; begin = end) {
        shd_stored_value *value = &list[reader->value_count++];
        shd_stored_value first = list[begin];
        for (end = begin; end < block_count && compare_values(&first, &list[end]) == 0; end++)
            intervals[end] = *list[end].intervals;
        first.intervals = &intervals[begin];
        shd_intervals_sort(first.intervals, end - begin, &first.count);
        *value = first;
    }
}

/* What is where, by names. */
static sherd_status list_values(shd_reader *reader) {
    int64_t block_count = reader->first_blocks[reader->file_count];
    size_t bytes = (size_t)block_count * sizeof(shd_interval) + 1;
    shd_interval *single = shd_alloc(bytes, 1), *intervals = shd_keep_take(reader->keep, bytes);
    reader->values = shd_keep_take(reader->keep, (size_t)block_count * sizeof *reader->values + 1);
    if (!single || !intervals || !reader->values) {
        shd_free(single);
        return fail_memory();
    }
    for (int64_t i = 0; i < block_count; i++) {
        const shd_file_block *block = shd_reader_block(reader, i);
        single[i] = (shd_interval){.first = block->first, .count = block->form.count, .source = i};
        reader->values[i] =
            (shd_stored_value){.tensor = block->tensor, .state = block->state, .intervals = &single[i], .count = 1};
    }
    qsort(reader->values, (size_t)block_count, sizeof *reader->values, compare_values);
    join_values(reader, block_count, intervals);
    shd_free(single);
    return SHERD_OK;
}

sherd_status shd_reader_open(const char *path, const shd_checkpoint_manifest *manifest, shd_reader **out) {
    shd_keep *keep = shd_keep_create();
    shd_reader *reader = keep ? shd_keep_take(keep, sizeof *reader) : NULL;
    char *path_copy = keep ? shd_keep_text(keep, path, strlen(path)) : NULL;
    if (!reader || !path_copy) {
        shd_keep_destroy(keep);
        return fail_memory();
    }
    *reader = (shd_reader){.keep = keep, .path = path_copy, .held = -1};
    sherd_status status = open_files(reader, manifest);
    if (status == SHERD_OK) status = list_values(reader);
    if (status != SHERD_OK) {
        shd_reader_destroy(reader);
        return status;
    }
    *out = reader;
    return SHERD_OK;
}

sherd_status shd_reader_create(const shd_checkpoint *checkpoint, shd_reader **out) {
    return shd_reader_open(shd_checkpoint_path(checkpoint), shd_checkpoint_content(checkpoint), out);
}

void shd_reader_destroy(shd_reader *reader) {
    if (!reader) return;
    for (int32_t i = 0; i < reader->file_count; i++) shd_rank_file_close(reader->files[i]);
    if (reader->memory) shd_unmap(reader->memory, shd_decode_room_bytes());
    shd_keep_destroy(reader->keep);
}

/* --- finding ------------------------------------------------------------------------------------------------------ */

/* The file that has block `number`; among files without blocks it is the last one that begins there. */
static int32_t file_of(const shd_reader *reader, int64_t number) {
    int32_t low = 0, high = reader->file_count;
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (reader->first_blocks[middle] <= number)
            low = middle;
        else
            high = middle;
    }
    return low;
}

const shd_file_block *shd_reader_block(const shd_reader *reader, int64_t number) {
    int32_t file = file_of(reader, number);
    return &reader->files[file]->index.blocks[number - reader->first_blocks[file]];
}

sherd_status shd_reader_decode(const shd_reader *reader, int64_t number, const shd_decode_room *room, void *values) {
    int32_t file = file_of(reader, number);
    return shd_rank_file_read(reader->files[file], number - reader->first_blocks[file], room->codec, room->stored,
                              values);
}

static sherd_status fail_missing(const shd_reader *reader, const shd_stored_value *value, int64_t first, int64_t end) {
    int64_t covered = first;
    for (int64_t i = 0; i < value->count && value->intervals[i].first <= covered; i++)
        covered = shd_max(covered, value->intervals[i].first + value->intervals[i].count);
    for (int64_t i = 0; i < value->count; i++)
        if (value->intervals[i].first > covered) end = shd_min(end, value->intervals[i].first);
    return shd_fail(SHERD_DATA, "%s: no file holds elements %lld to %lld of %s of tensor %s", reader->path,
                    (long long)covered, (long long)end, value->state, value->tensor);
}

sherd_status shd_reader_cut(const shd_reader *reader, const char *tensor, const char *state, int64_t first,
                            int64_t count, shd_interval **out, int64_t *piece_count) {
    shd_stored_value wanted = {.tensor = tensor, .state = state};
    const shd_stored_value *found =
        bsearch(&wanted, reader->values, (size_t)reader->value_count, sizeof wanted, compare_values);
    int64_t pieces = 0;
    if (!found) found = &wanted;
    if (!shd_intervals_cut(found->intervals, found->count, first, count, NULL, 0, &pieces))
        return fail_missing(reader, found, first, first + count);
    shd_interval *list = shd_alloc((size_t)pieces, sizeof *list);
    if (!list) return fail_memory();
    shd_intervals_cut(found->intervals, found->count, first, count, list, pieces, &pieces);
    *out = list;
    *piece_count = pieces;
    return SHERD_OK;
}

/* --- streaming ---------------------------------------------------------------------------------------------------- */

static sherd_status hold_block(shd_reader *reader, int64_t number) {
    if (!reader->memory) {
        reader->memory = shd_map(shd_decode_room_bytes());
        if (!reader->memory) return fail_memory();
        reader->room = shd_decode_room_init(reader->memory);
    }
    if (reader->held == number) return SHERD_OK;
    reader->held = -1;
    SHD_TRY(shd_reader_decode(reader, number, &reader->room, reader->room.values));
    reader->held = number;
    return SHERD_OK;
}

static sherd_status stream_piece(shd_reader *reader, const shd_interval *piece, const shd_reader_convert *convert,
                                 shd_value_sink sink, void *user) {
    const shd_file_block *block = shd_reader_block(reader, piece->source);
    int64_t most = block->form.dtype == SHERD_FP32 ? piece->count : SHD_PORTION_COUNT - SHD_CODE_BLOCK_COUNT;
    SHD_TRY(hold_block(reader, piece->source));
    for (int64_t done = 0, count; done < piece->count; done += count) {
        const float *floats = NULL;
        count = shd_min(piece->count - done, most);
        SHD_TRY(shd_deliver_floats(block, reader->room.values, piece->first + done, count, convert,
                                   reader->room.portion, &floats));
        SHD_TRY(sink(user, floats, count));
    }
    return SHERD_OK;
}

sherd_status shd_reader_stream(shd_reader *reader, const char *tensor, const char *state, int64_t first, int64_t count,
                               const shd_reader_convert *convert, shd_value_sink sink, void *user) {
    shd_interval *pieces = NULL;
    int64_t piece_count = 0;
    if (count == 0) return SHERD_OK;
    SHD_TRY(shd_reader_cut(reader, tensor, state, first, count, &pieces, &piece_count));
    sherd_status status = SHERD_OK;
    for (int64_t i = 0; status == SHERD_OK && i < piece_count; i++)
        status = stream_piece(reader, &pieces[i], convert, sink, user);
    shd_free(pieces);
    return status;
}

/* --- for one use -------------------------------------------------------------------------------------------------- */

sherd_status shd_checkpoint_read(const shd_checkpoint *checkpoint, const shd_checkpoint_slice *wanted, int64_t count,
                                 const shd_reader_config *config) {
    shd_reader *reader = NULL;
    SHD_TRY(shd_reader_create(checkpoint, &reader));
    sherd_status status = shd_reader_read(reader, wanted, count, config);
    shd_reader_destroy(reader);
    return status;
}
