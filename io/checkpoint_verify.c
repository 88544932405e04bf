#include "io/checkpoint_file.h"
#include "io/checkpoint_hold.h"
#include "io/checkpoint_manifest.h"
#include "io/checkpoint_manifest_parse.h"
#include "io/checkpoint_names.h"
#include "io/checkpoint_pieces.h"
#include "io/checkpoint_reader.h"
#include "io/checkpoint_reader_parts.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CAUSE_BYTES = 2048, OWN_THREADS = 2 };

typedef struct verification {
    const char *path;
    const shd_reader_config *config;
    shd_keep *keep;
    shd_checkpoint_manifest manifest;
    shd_rank_file **files; /* by rank; NULL: it cannot be used */
    shd_verify_report report;
    void *user;
    int64_t done_bytes, total_bytes, damaged;
} verification;

static sherd_status fail_memory(void) { return shd_fail(SHERD_MEMORY, "out of memory to verify a checkpoint"); }

/* Reports a block, or, when that is NULL, a file as such. */
static void report_damage(verification *v, const char *path, const shd_file_block *block, const char *cause) {
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

/* The same of the failure that is this thread's last error. */
static void report_failure(verification *v, const char *path) {
    char cause[CAUSE_BYTES];
    snprintf(cause, sizeof cause, "%s", sherd_last_error());
    report_damage(v, path, NULL, cause);
}

static void report_progress(verification *v, int64_t bytes) {
    v->done_bytes += bytes;
    v->report(v->user, NULL, v->done_bytes, v->total_bytes);
}

/* What became of a block; its thread writes the cause, then `done`. */
typedef struct block_result {
    atomic_bool done;
    bool damaged;
    char *cause; /* NULL: it is sound, or there was no memory for a copy */
} block_result;

/* The blocks of one file: threads read them, the caller's reports them in their order. */
typedef struct file_check {
    verification *verification;
    const shd_rank_file *file;
    block_result *results; /* [file->index.count] */
    int64_t reported;
} file_check;

static void check_block(void *user, int64_t index, const shd_decode_room *room) {
    file_check *check = user;
    block_result *result = &check->results[index];
    if (shd_rank_file_read(check->file, index, room->codec, room->stored, room->values) != SHERD_OK) {
        result->damaged = true;
        result->cause = shd_strdup(sherd_last_error());
    }
    atomic_store_explicit(&result->done, true, memory_order_release);
}

/* Reports the blocks that are done up to the first that is not. */
static void report_blocks(void *user) {
    file_check *check = user;
    for (; check->reported < check->file->index.count; check->reported++) {
        const shd_file_block *block = &check->file->index.blocks[check->reported];
        const block_result *result = &check->results[check->reported];
        if (!atomic_load_explicit(&result->done, memory_order_acquire)) return;
        if (result->damaged)
            report_damage(check->verification, check->file->path, block,
                          result->cause ? result->cause : check->file->path);
        report_progress(check->verification, block->form.stored_bytes);
    }
}

static sherd_status verify_blocks(verification *v, const shd_rank_file *file) {
    file_check check = {.verification = v, .file = file};
    check.results = shd_alloc((size_t)file->index.count, sizeof *check.results);
    if (!check.results) return fail_memory();
    shd_jobs_run(v->config, file->index.count, check_block, report_blocks, &check);
    report_blocks(&check);
    for (int64_t i = 0; i < file->index.count; i++) shd_free(check.results[i].cause);
    shd_free(check.results);
    return SHERD_OK;
}

/* A file that is not what it should be is one piece of damage. One that may not be opened is no proof of any. */
static sherd_status verify_file(verification *v, int32_t rank, int64_t bytes) {
    const shd_checkpoint_file *expected = &v->manifest.files[rank];
    char path[SHD_PATH_BYTES];
    int64_t end_bytes = v->done_bytes + bytes;
    sherd_status status = shd_rank_file_path(path, v->path, rank);
    if (status == SHERD_OK) status = shd_reader_open_file(v->path, v->manifest.step, rank, expected, &v->files[rank]);
    if (status != SHERD_OK && status != SHERD_DATA) return status;
    if (status == SHERD_OK) {
        SHD_TRY(verify_blocks(v, v->files[rank]));
        shd_rank_file_rest(v->files[rank]);
    } else {
        report_failure(v, path);
    }
    report_progress(v, end_bytes - v->done_bytes);
    return SHERD_OK;
}

/* Whether files that are sound by themselves have everything together. */
static sherd_status verify_whole(verification *v) {
    shd_checkpoint_manifest described = v->manifest;
    for (int32_t rank = 0; rank < v->manifest.world_size; rank++)
        if (!v->files[rank]) return SHERD_OK;
    sherd_status status = shd_pieces_describe(v->files, v->keep, &described);
    if (status != SHERD_DATA) return status;
    shd_fail_within(status, "%s", v->path);
    report_failure(v, v->path);
    return SHERD_OK;
}

static sherd_status verify(verification *v) {
    char path[SHD_PATH_BYTES];
    sherd_status status = shd_path_make(path, "%s/" SHD_MANIFEST_NAME, v->path);
    if (status == SHERD_OK) status = shd_manifest_read(v->path, v->keep, &v->manifest);
    if (status == SHERD_IO && access(path, F_OK) != 0 && errno == ENOENT) status = SHERD_DATA;
    if (status == SHERD_OK) status = shd_step_path_check(v->path, v->manifest.step);
    if (status != SHERD_OK && status != SHERD_DATA) return status;
    if (status == SHERD_DATA) {
        report_failure(v, path);
        return SHERD_OK;
    }
    int32_t ranks = v->manifest.world_size;
    v->files = shd_keep_take(v->keep, (size_t)ranks * sizeof *v->files);
    if (!v->files) return fail_memory();
    for (int32_t rank = 0; rank < ranks; rank++) v->total_bytes += v->manifest.files[rank].bytes;
    for (int32_t rank = 0; rank < ranks; rank++) SHD_TRY(verify_file(v, rank, v->manifest.files[rank].bytes));
    return verify_whole(v);
}

sherd_status shd_checkpoint_verify_with(const char *path, const shd_reader_config *config, shd_verify_report report,
                                        void *user, int64_t *damaged) {
    shd_reader_config own = {.threads = OWN_THREADS};
    int64_t own_bytes = shd_reader_memory_bytes(OWN_THREADS);
    verification v = {.path = path, .keep = shd_keep_create(), .report = report, .user = user};
    if (!config) own.memory = shd_map(own_bytes);
    v.config = config ? config : &own;
    const int held = shd_folder_hold(path);
    sherd_status status = v.keep && v.config->memory ? verify(&v) : fail_memory();
    shd_file_close(held);
    for (int32_t rank = 0; v.files && rank < v.manifest.world_size; rank++) shd_rank_file_close(v.files[rank]);
    if (own.memory) shd_unmap(own.memory, own_bytes);
    shd_keep_destroy(v.keep);
    if (status == SHERD_OK && damaged) *damaged = v.damaged;
    return status;
}

sherd_status shd_checkpoint_verify(const char *path, shd_verify_report report, void *user, int64_t *damaged) {
    return shd_checkpoint_verify_with(path, NULL, report, user, damaged);
}
