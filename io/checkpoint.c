/* Reading order: a rank writes; rank 0 commits; a folder is found, opened, read. Formats are in checkpoint_file1.c and
 * checkpoint_manifest.c, the check that nothing is missing in checkpoint_pieces.c, the export in
 * checkpoint_export.c. */
#include "io/checkpoint.h"

#include "io/checkpoint_file1.h"
#include "io/checkpoint_manifest.h"
#include "io/checkpoint_manifest2.h"
#include "io/checkpoint_names.h"
#include "io/checkpoint_pieces.h"
#include "io/folder.h"
#include "runtime/base/arith.h"
#include "runtime/base/log.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static sherd_status make_step_path(char out[SHD_PATH_BYTES], const char *parent, int64_t step, const char *suffix) {
    return shd_path_make(out, "%s/step-%08lld%s", parent, (long long)step, suffix);
}

static bool is_rank_file(const char *name, int32_t *rank) {
    char again[32];
    *rank = strncmp(name, "rank-", 5) == 0 ? (int32_t)strtol(name + 5, NULL, 10) : -1;
    snprintf(again, sizeof again, "rank-%05d.bin", *rank);
    return *rank >= 0 && strcmp(again, name) == 0;
}

/* Removes rank files from `first_rank` on, and the manifest if told to. What cannot be removed stays. */
static void remove_files(const char *folder, int32_t first_rank, bool manifest) {
    DIR *listing = opendir(folder);
    if (!listing) return;
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        int32_t rank;
        bool ours = is_rank_file(entry->d_name, &rank) ? rank >= first_rank
                                                       : manifest && strcmp(entry->d_name, SHD_MANIFEST_NAME) == 0;
        if (ours) unlinkat(dirfd(listing), entry->d_name, 0);
    }
    closedir(listing);
}

/* Removes a checkpoint; a folder that also holds other things stays with them. */
static void remove_checkpoint(const char *path) {
    remove_files(path, 0, true);
    if (rmdir(path) != 0 && errno != ENOENT)
        shd_log(SHERD_LOG_WARN, "cannot remove the folder %s: %s", path, strerror(errno));
}

sherd_status shd_checkpoint_write_rank(const char *parent, int64_t step, int32_t rank,
                                       const shd_checkpoint_slice *slices, int64_t count) {
    char folder[SHD_PATH_BYTES], path[SHD_PATH_BYTES];
    SHD_TRY(make_step_path(folder, parent, step, ".partial"));
    SHD_TRY(shd_rank_file1_path(path, folder, rank));
    SHD_TRY(shd_folder_make(folder));
    return shd_rank_file1_write(path, step, rank, slices, count);
}

void shd_checkpoint1_discard(const char *parent, int64_t step) {
    char folder[SHD_PATH_BYTES];
    if (make_step_path(folder, parent, step, ".partial") == SHERD_OK) remove_checkpoint(folder);
}

static void close_rank_files(shd_rank_file1 **files, int32_t count) {
    for (int32_t rank = 0; rank < count; rank++) shd_rank_file1_close(files[rank]);
    shd_free(files);
}

/* Opens every rank's file in `folder` and notes what the manifest will say of it. */
static sherd_status open_written(const char *folder, const shd_checkpoint_manifest *manifest, shd_rank_file1 **files,
                                 shd_manifest_file *notes) {
    for (int32_t rank = 0; rank < manifest->world_size; rank++) {
        char path[SHD_PATH_BYTES];
        SHD_TRY(shd_rank_file1_path(path, folder, rank));
        if (access(path, F_OK) != 0)
            return shd_fail(SHERD_DATA, "rank %d of %d has not written %s", rank, manifest->world_size, path);
        SHD_TRY(shd_rank_file1_open(path, manifest->step, rank, &files[rank]));
        notes[rank] = (shd_manifest_file){files[rank]->bytes, files[rank]->header_hash};
    }
    return SHERD_OK;
}

/* Checks that the rank files are complete, and writes the manifest beside them. */
static sherd_status close_partial(const char *folder, const shd_checkpoint_manifest *manifest) {
    size_t ranks = (size_t)manifest->world_size;
    shd_rank_file1 **files = shd_alloc(ranks, sizeof *files);
    shd_manifest_file *notes = shd_alloc(ranks, sizeof *notes);
    shd_pieces pieces = {0};
    sherd_status status = files && notes ? SHERD_OK : shd_fail(SHERD_MEMORY, "out of memory for a checkpoint");
    if (status == SHERD_OK) status = open_written(folder, manifest, files, notes);
    if (status == SHERD_OK) status = shd_pieces_collect(manifest, files, &pieces);
    if (status == SHERD_OK) status = shd_manifest_write(folder, manifest, notes);
    shd_free(pieces.list);
    shd_free(notes);
    if (files) close_rank_files(files, manifest->world_size);
    SHD_TRY(status);
    /* A broken-off save of more ranks may have left files here. */
    remove_files(folder, manifest->world_size, false);
    return shd_folder_sync(folder);
}

/* Gives the finished folder its name, in place of an older checkpoint; *replaced is where that one now is. */
static sherd_status put_in_place(const char *partial, const char *final, char replaced[SHD_PATH_BYTES]) {
    replaced[0] = 0;
    if (rename(partial, final) == 0) return SHERD_OK;
    if (errno != EEXIST && errno != ENOTEMPTY)
        return shd_fail(SHERD_IO, "cannot rename %s to %s: %s", partial, final, strerror(errno));
    if (renameat2(AT_FDCWD, partial, AT_FDCWD, final, RENAME_EXCHANGE) == 0)
        return shd_path_make(replaced, "%s", partial);
    SHD_TRY(shd_path_make(replaced, "%s.replaced", final));
    remove_checkpoint(replaced);
    SHD_TRY(shd_path_rename(final, replaced));
    sherd_status status = shd_path_rename(partial, final);
    if (status != SHERD_OK) rename(replaced, final);
    return status;
}

sherd_status shd_checkpoint1_commit(const char *parent, const shd_checkpoint_manifest *manifest) {
    char partial[SHD_PATH_BYTES], final[SHD_PATH_BYTES], replaced[SHD_PATH_BYTES];
    SHD_TRY(make_step_path(partial, parent, manifest->step, ".partial"));
    SHD_TRY(make_step_path(final, parent, manifest->step, ""));
    SHD_TRY(close_partial(partial, manifest));
    SHD_TRY(put_in_place(partial, final, replaced));
    SHD_TRY(shd_folder_sync(parent));
    if (replaced[0]) remove_checkpoint(replaced);
    return SHERD_OK;
}

static bool has_manifest(const char *folder) {
    char path[SHD_PATH_BYTES];
    return shd_path_make(path, "%s/" SHD_MANIFEST_NAME, folder) == SHERD_OK && access(path, F_OK) == 0;
}

static bool is_partial(const char *path) {
    size_t length = strlen(path), end = strlen(".partial");
    return shd_step_name_of_path(path).kind == SHD_STEP_PARTIAL ||
           (length > end && strcmp(path + length - end, ".partial") == 0);
}

struct shd_checkpoint {
    shd_keep *keep;
    const char *path;
    shd_checkpoint_manifest manifest;
    shd_manifest_file *files; /* [manifest.world_size] */
};

static sherd_status check_files(const shd_checkpoint *checkpoint) {
    for (int32_t rank = 0; rank < checkpoint->manifest.world_size; rank++) {
        char path[SHD_PATH_BYTES];
        struct stat about;
        SHD_TRY(shd_rank_file1_path(path, checkpoint->path, rank));
        if (stat(path, &about) != 0)
            return shd_fail(errno == ENOENT ? SHERD_DATA : SHERD_IO, "cannot look at %s, a part of the checkpoint: %s",
                            path, strerror(errno));
        int64_t bytes = checkpoint->files ? checkpoint->files[rank].bytes : checkpoint->manifest.files[rank].bytes;
        if (about.st_size != bytes)
            return shd_fail(SHERD_DATA, "%s is damaged: it has %lld bytes, the manifest says %lld", path,
                            (long long)about.st_size, (long long)bytes);
    }
    return SHERD_OK;
}

static sherd_status read_checkpoint(shd_checkpoint *checkpoint) {
    const char *path = checkpoint->path;
    if (!has_manifest(path)) return shd_fail(SHERD_DATA, "%s is no checkpoint: it has no " SHD_MANIFEST_NAME, path);
    if (is_partial(path)) return shd_fail(SHERD_DATA, "%s was never finished", path);
    sherd_status status = shd_manifest2_read(path, checkpoint->keep, &checkpoint->manifest);
    if (status == SHERD_UNSUPPORTED)
        status = shd_manifest_read(path, checkpoint->keep, &checkpoint->manifest, &checkpoint->files);
    SHD_TRY(status);
    shd_step_name name = shd_step_name_of_path(path);
    if (name.kind != SHD_STEP_OTHER && name.step != checkpoint->manifest.step)
        return shd_fail(SHERD_DATA, "%s was renamed: its manifest is that of step %lld", path,
                        (long long)checkpoint->manifest.step);
    return check_files(checkpoint);
}

sherd_status shd_checkpoint_open(const char *path, shd_checkpoint **out) {
    shd_keep *keep = shd_keep_create();
    shd_checkpoint *checkpoint = keep ? shd_keep_take(keep, sizeof *checkpoint) : NULL;
    char *path_copy = keep ? shd_keep_text(keep, path, strlen(path)) : NULL;
    if (!checkpoint || !path_copy) {
        shd_keep_destroy(keep);
        return shd_fail(SHERD_MEMORY, "out of memory for a checkpoint");
    }
    *checkpoint = (shd_checkpoint){.keep = keep, .path = path_copy};
    sherd_status status = read_checkpoint(checkpoint);
    if (status != SHERD_OK) {
        shd_checkpoint_close(checkpoint);
        return status;
    }
    *out = checkpoint;
    return SHERD_OK;
}

void shd_checkpoint_close(shd_checkpoint *checkpoint) {
    if (checkpoint) shd_keep_destroy(checkpoint->keep);
}

const char *shd_checkpoint_path(const shd_checkpoint *checkpoint) { return checkpoint->path; }

const shd_checkpoint_manifest *shd_checkpoint_content(const shd_checkpoint *checkpoint) {
    return &checkpoint->manifest;
}

sherd_status shd_checkpoint_open_rank(const shd_checkpoint *checkpoint, int32_t rank, shd_rank_file1 **out) {
    char path[SHD_PATH_BYTES];
    SHD_TRY(shd_rank_file1_path(path, checkpoint->path, rank));
    shd_rank_file1 *file = NULL;
    SHD_TRY(shd_rank_file1_open(path, checkpoint->manifest.step, rank, &file));
    if (file->header_hash != checkpoint->files[rank].header_hash) {
        shd_rank_file1_close(file);
        return shd_fail(SHERD_DATA, "%s is not the file that the checkpoint's manifest was made for", path);
    }
    *out = file;
    return SHERD_OK;
}

/* Whether the file holds the slices that are asked for. */
static sherd_status compare_layout(const shd_rank_file1 *file, const shd_checkpoint_slice *slices, int64_t count) {
    if (file->slice_count != count)
        return shd_fail(SHERD_DATA, "%s holds %lld slices; this layout has %lld", file->path,
                        (long long)file->slice_count, (long long)count);
    for (int64_t i = 0; i < count; i++) {
        const shd_rank_slice *stored = &file->slices[i];
        const shd_checkpoint_slice *wanted = &slices[i];
        if (strcmp(stored->tensor, wanted->tensor) == 0 && strcmp(stored->state, wanted->state) == 0 &&
            stored->first == wanted->first && stored->count == wanted->count &&
            stored->dtype == shd_stored_dtype(wanted->dtype))
            continue;
        return shd_fail(SHERD_DATA,
                        "%s holds %s of tensor %s, elements %lld to %lld, where this layout has %s of tensor %s, "
                        "elements %lld to %lld",
                        file->path, stored->state, stored->tensor, (long long)stored->first,
                        (long long)(stored->first + stored->count), wanted->state, wanted->tensor,
                        (long long)wanted->first, (long long)(wanted->first + wanted->count));
    }
    return SHERD_OK;
}

sherd_status shd_checkpoint_read_rank(const shd_checkpoint *checkpoint, int32_t rank,
                                      const shd_checkpoint_slice *slices, int64_t count) {
    if (rank < 0 || rank >= checkpoint->manifest.world_size)
        return shd_fail(SHERD_ARGUMENT, "%s is of %d ranks; there is no rank %d", checkpoint->path,
                        checkpoint->manifest.world_size, rank);
    shd_rank_file1 *file = NULL;
    SHD_TRY(shd_checkpoint_open_rank(checkpoint, rank, &file));
    sherd_status status = compare_layout(file, slices, count);
    for (int64_t i = 0; status == SHERD_OK && i < count; i++)
        if (slices[i].values) status = shd_rank_file1_read(file, i, slices[i].dtype, slices[i].values);
    shd_rank_file1_close(file);
    return status;
}
