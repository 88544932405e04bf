#include "io/checkpoint.h"
#include "io/checkpoint_file.h"
#include "io/checkpoint_pieces.h"
#include "io/safetensors.h"
#include "runtime/base/arith.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <sys/stat.h>

/* Where a streamed slice goes: its first `skip` elements have been written already, from another rank's copy. */
typedef struct sink_state {
    shd_safetensors_writer *writer;
    int64_t skip;
} sink_state;

static sherd_status append(void *user, const float *values, int64_t count) {
    sink_state *state = user;
    int64_t skipped = shd_min(state->skip, count);
    state->skip -= skipped;
    return shd_safetensors_writer_append(state->writer, values + skipped, count - skipped);
}

/* Streams the parameters, tensor after tensor; pieces come in this order. */
static sherd_status stream_parameters(const shd_pieces *pieces, shd_rank_file *const *files,
                                      shd_safetensors_writer *writer) {
    int32_t tensor = -1;
    int64_t written = 0;
    for (int64_t i = 0; i < pieces->count; i++) {
        const shd_piece *piece = &pieces->list[i];
        if (piece->state_index != 0) continue;
        if (piece->tensor_index != tensor) written = 0;
        tensor = piece->tensor_index;
        int64_t end = piece->first + piece->count;
        if (end <= written) continue;
        sink_state state = {.writer = writer, .skip = written - piece->first};
        SHD_TRY(shd_rank_file_stream(files[piece->rank], piece->slice_index, append, &state));
        written = end;
    }
    return SHERD_OK;
}

static sherd_status write_file(const shd_checkpoint_manifest *manifest, const shd_pieces *pieces,
                               shd_rank_file *const *files, const char *to) {
    shd_safetensors_spec *specs = shd_alloc((size_t)manifest->tensor_count, sizeof *specs);
    if (!specs) return shd_fail(SHERD_MEMORY, "out of memory for an export");
    for (int32_t i = 0; i < manifest->tensor_count; i++) {
        const sherd_tensor *tensor = &manifest->tensors[i];
        specs[i] = (shd_safetensors_spec){tensor->name, tensor->dim_count, tensor->shape};
    }
    shd_safetensors_writer *writer = NULL;
    sherd_status status = shd_safetensors_writer_create(to, specs, manifest->tensor_count, &writer);
    shd_free(specs);
    if (status == SHERD_OK) status = stream_parameters(pieces, files, writer);
    if (status == SHERD_OK) status = shd_safetensors_writer_finish(writer);
    shd_safetensors_writer_destroy(writer);
    return status;
}

/* Refuses targets that would damage what is exported. */
static sherd_status check_target(const char *checkpoint_path, const char *to) {
    char folder[SHD_PATH_BYTES];
    struct stat about, source;
    if (stat(to, &about) == 0 && S_ISDIR(about.st_mode))
        return shd_fail(SHERD_ARGUMENT, "cannot export to %s: it is a folder; name a file", to);
    SHD_TRY(shd_path_folder(folder, to));
    if (stat(folder, &about) == 0 && stat(checkpoint_path, &source) == 0 && about.st_dev == source.st_dev &&
        about.st_ino == source.st_ino)
        return shd_fail(SHERD_ARGUMENT, "cannot export to %s: it lies in the checkpoint itself", to);
    return SHERD_OK;
}

static sherd_status export_open(const shd_checkpoint *checkpoint, const char *to) {
    const shd_checkpoint_manifest *manifest = shd_checkpoint_content(checkpoint);
    SHD_TRY(check_target(shd_checkpoint_path(checkpoint), to));
    shd_rank_file **files = shd_alloc((size_t)manifest->world_size, sizeof *files);
    if (!files) return shd_fail(SHERD_MEMORY, "out of memory for an export");
    shd_pieces pieces = {0};
    sherd_status status = SHERD_OK;
    for (int32_t rank = 0; status == SHERD_OK && rank < manifest->world_size; rank++)
        status = shd_checkpoint_open_rank(checkpoint, rank, &files[rank]);
    if (status == SHERD_OK) status = shd_pieces_collect(manifest, files, &pieces);
    if (status == SHERD_OK) status = write_file(manifest, &pieces, files, to);
    shd_free(pieces.list);
    for (int32_t rank = 0; rank < manifest->world_size; rank++) shd_rank_file_close(files[rank]);
    shd_free(files);
    return status;
}

sherd_status shd_checkpoint_export(const char *path, const char *to) {
    char *found = NULL;
    SHD_TRY(shd_checkpoint_find(path, &found));
    if (!found) return shd_fail(SHERD_DATA, "there is no complete checkpoint at %s", path);
    shd_checkpoint *checkpoint = NULL;
    sherd_status status = shd_checkpoint_open(found, &checkpoint);
    shd_free(found);
    if (status == SHERD_OK) status = export_open(checkpoint, to);
    shd_checkpoint_close(checkpoint);
    return status;
}
