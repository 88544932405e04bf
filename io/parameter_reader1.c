#include "io/parameter_reader1.h"

#include "io/checkpoint_file1.h"
#include "io/checkpoint_pieces.h"
#include "runtime/base/arith.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <string.h>

struct shd_parameter_reader1 {
    const shd_checkpoint_manifest *manifest;
    shd_rank_file1 **files; /* [manifest->world_size] */
    shd_pieces pieces;      /* by tensor, state, first element */
};

/* A slice on its way from the file: what of it is wanted goes to `values`. */
typedef struct slice_window {
    int64_t at;           /* the tensor's element that comes next */
    int64_t first, count; /* wanted */
    float *values;
} slice_window;

static sherd_status take(void *user, const float *values, int64_t count) {
    slice_window *window = user;
    int64_t low = shd_max(window->at, window->first);
    int64_t high = shd_min(window->at + count, window->first + window->count);
    if (low < high)
        memcpy(window->values + (low - window->first), values + (low - window->at),
               (size_t)(high - low) * sizeof *values);
    window->at += count;
    return SHERD_OK;
}

static sherd_status open_files(shd_parameter_reader1 *reader, const shd_checkpoint *checkpoint) {
    reader->files = shd_alloc((size_t)reader->manifest->world_size, sizeof *reader->files);
    if (!reader->files) return shd_fail(SHERD_MEMORY, "no memory to read a checkpoint");
    for (int32_t rank = 0; rank < reader->manifest->world_size; rank++)
        SHD_TRY(shd_checkpoint_open_rank(checkpoint, rank, &reader->files[rank]));
    return shd_pieces_collect(reader->manifest, reader->files, &reader->pieces);
}

sherd_status shd_parameter_reader1_create(const shd_checkpoint *checkpoint, shd_parameter_reader1 **out) {
    shd_parameter_reader1 *reader = shd_alloc(1, sizeof *reader);
    if (!reader) return shd_fail(SHERD_MEMORY, "no memory to read a checkpoint");
    reader->manifest = shd_checkpoint_content(checkpoint);
    sherd_status status = open_files(reader, checkpoint);
    if (status != SHERD_OK) {
        shd_parameter_reader1_destroy(reader);
        return status;
    }
    *out = reader;
    return SHERD_OK;
}

void shd_parameter_reader1_destroy(shd_parameter_reader1 *reader) {
    if (!reader) return;
    for (int32_t rank = 0; reader->files && rank < reader->manifest->world_size; rank++)
        shd_rank_file1_close(reader->files[rank]);
    shd_free(reader->files);
    shd_free(reader->pieces.list);
    shd_free(reader);
}

static sherd_status find_tensor(const shd_checkpoint_manifest *manifest, const char *name, int32_t *out) {
    for (int32_t i = 0; i < manifest->tensor_count; i++)
        if (!strcmp(manifest->tensors[i].name, name)) {
            *out = i;
            return SHERD_OK;
        }
    return shd_fail(SHERD_ARGUMENT, "the checkpoint has no parameter %s", name);
}

sherd_status shd_parameter_reader1_read(const shd_parameter_reader1 *reader, const char *tensor, int64_t first,
                                        int64_t count, float *values) {
    int32_t index = -1;
    SHD_TRY(find_tensor(reader->manifest, tensor, &index));
    int64_t available = shd_element_count(&reader->manifest->tensors[index]);
    if (first < 0 || count < 0 || first > available - count)
        return shd_fail(SHERD_ARGUMENT, "%s has %lld elements, not those from %lld to %lld", tensor,
                        (long long)available, (long long)first, (long long)(first + count));
    /* Copies on several ranks are equal: what has been read is not read again. */
    int64_t read = first, end = first + count;
    for (int64_t i = 0; i < reader->pieces.count && read < end; i++) {
        const shd_piece *piece = &reader->pieces.list[i];
        if (piece->tensor_index != index || piece->state_index != 0 || piece->first + piece->count <= read) continue;
        slice_window window = {
            .at = piece->first, .first = read, .count = end - read, .values = values + (read - first)};
        SHD_TRY(shd_rank_file1_stream(reader->files[piece->rank], piece->slice_index, take, &window));
        read = piece->first + piece->count;
    }
    return SHERD_OK;
}

/* What follows the first `skip` elements of a slice goes on to `sink`. */
typedef struct skipping_sink {
    int64_t skip;
    shd_rank_file1_sink sink;
    void *user;
} skipping_sink;

static sherd_status skip(void *user, const float *values, int64_t count) {
    skipping_sink *state = user;
    int64_t skipped = shd_min(state->skip, count);
    state->skip -= skipped;
    return state->sink(state->user, values + skipped, count - skipped);
}

sherd_status shd_parameter_reader1_stream(const shd_parameter_reader1 *reader, const char *tensor,
                                          shd_rank_file1_sink sink, void *user) {
    int32_t index = -1;
    SHD_TRY(find_tensor(reader->manifest, tensor, &index));
    int64_t done = 0;
    for (int64_t i = 0; i < reader->pieces.count; i++) {
        const shd_piece *piece = &reader->pieces.list[i];
        if (piece->tensor_index != index || piece->state_index != 0 || piece->first + piece->count <= done) continue;
        skipping_sink state = {.skip = done - piece->first, .sink = sink, .user = user};
        SHD_TRY(shd_rank_file1_stream(reader->files[piece->rank], piece->slice_index, skip, &state));
        done = piece->first + piece->count;
    }
    return SHERD_OK;
}
