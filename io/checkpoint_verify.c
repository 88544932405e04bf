#include "io/checkpoint_file.h"
#include "io/checkpoint_manifest2.h"
#include "io/checkpoint_manifest_parse.h"
#include "io/checkpoint_pieces2.h"
#include "io/checkpoint_reader.h"
#include "io/checkpoint_reader_parts.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <stdio.h>
#include <string.h>

enum { CAUSE_BYTES = 2048 };

typedef struct verification {
    const char *path;
    shd_keep *keep;
    shd_checkpoint_manifest manifest;
    shd_rank_file **files; /* by rank; NULL: it cannot be used */
    void *memory;
    shd_decode_room room;
    shd_verify_report report;
    void *user;
    int64_t done_bytes, total_bytes, damaged;
} verification;

/* Reports the failure that is this thread's last error, of a block or, when that is NULL, of a file as such. */
static void report_damage(verification *v, const char *path, const shd_file_block *block) {
    char cause[CAUSE_BYTES];
    snprintf(cause, sizeof cause, "%s", sherd_last_error());
    shd_damage damage = {.path = path, .cause = cause};
    if (block) {
        damage.tensor = block->tensor;
        damage.state = block->state;
        damage.first = block->first;
        damage.count = block->form.count;
    }
    v->damaged++;
    v->report(v->user, &damage, v->done_bytes, v->total_bytes);
}

static void report_progress(verification *v, int64_t bytes) {
    v->done_bytes += bytes;
    v->report(v->user, NULL, v->done_bytes, v->total_bytes);
}

/* A file that cannot be used is damage, one block of it that cannot be used is another piece; only MEMORY fails. */
static sherd_status verify_file(verification *v, int32_t rank) {
    const shd_checkpoint_file *expected = &v->manifest.files[rank];
    char path[SHD_PATH_BYTES];
    sherd_status status = shd_rank_file_path(path, v->path, rank);
    if (status == SHERD_OK) status = shd_reader_open_file(v->path, v->manifest.step, rank, expected, &v->files[rank]);
    if (status == SHERD_MEMORY) return status;
    const shd_rank_file *file = v->files[rank];
    if (!file) report_damage(v, path, NULL);
    int64_t left_bytes = expected->bytes;
    for (int64_t i = 0; file && i < file->index.count; i++) {
        const shd_file_block *block = &file->index.blocks[i];
        if (shd_rank_file_read(file, i, v->room.codec, v->room.stored, v->room.values) != SHERD_OK)
            report_damage(v, path, block);
        left_bytes -= block->form.stored_bytes;
        report_progress(v, block->form.stored_bytes);
    }
    report_progress(v, left_bytes);
    return SHERD_OK;
}

/* Whether files that are sound by themselves have everything together. */
static sherd_status verify_whole(verification *v) {
    shd_checkpoint_manifest described = v->manifest;
    for (int32_t rank = 0; rank < v->manifest.world_size; rank++)
        if (!v->files[rank]) return SHERD_OK;
    sherd_status status = shd_pieces_describe(v->files, v->keep, &described);
    if (status == SHERD_OK || status == SHERD_MEMORY) return status;
    shd_fail_within(status, "%s", v->path);
    report_damage(v, v->path, NULL);
    return SHERD_OK;
}

static sherd_status verify_files(verification *v) {
    v->memory = shd_map(shd_decode_room_bytes());
    v->files = shd_keep_take(v->keep, (size_t)v->manifest.world_size * sizeof *v->files);
    if (!v->memory || !v->files) return shd_fail(SHERD_MEMORY, "out of memory to verify a checkpoint");
    v->room = shd_decode_room_init(v->memory);
    for (int32_t rank = 0; rank < v->manifest.world_size; rank++) v->total_bytes += v->manifest.files[rank].bytes;
    for (int32_t rank = 0; rank < v->manifest.world_size; rank++) SHD_TRY(verify_file(v, rank));
    return verify_whole(v);
}

static sherd_status verify(verification *v) {
    char path[SHD_PATH_BYTES];
    sherd_status status = shd_path_make(path, "%s/" SHD_MANIFEST_NAME, v->path);
    if (status == SHERD_OK) status = shd_manifest2_read(v->path, v->keep, &v->manifest);
    if (status == SHERD_MEMORY) return status;
    if (status == SHERD_OK) return verify_files(v);
    report_damage(v, path, NULL);
    return SHERD_OK;
}

sherd_status shd_checkpoint_verify(const char *path, shd_verify_report report, void *user, int64_t *damaged) {
    verification v = {.path = path, .keep = shd_keep_create(), .report = report, .user = user};
    if (!v.keep) return shd_fail(SHERD_MEMORY, "out of memory to verify a checkpoint");
    sherd_status status = verify(&v);
    for (int32_t rank = 0; v.files && rank < v.manifest.world_size; rank++) shd_rank_file_close(v.files[rank]);
    if (v.memory) shd_unmap(v.memory, shd_decode_room_bytes());
    shd_keep_destroy(v.keep);
    if (status == SHERD_OK && damaged) *damaged = v.damaged;
    return status;
}
