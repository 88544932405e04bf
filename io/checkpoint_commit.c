/* A commit: everything is checked and on disk before the one rename. */
#include "io/checkpoint_file.h"
#include "io/checkpoint_folder.h"
#include "io/checkpoint_hold.h"
#include "io/checkpoint_manifest.h"
#include "io/checkpoint_names.h"
#include "io/checkpoint_pieces.h"
#include "io/checkpoint_removal.h"
#include "io/folder.h"
#include "runtime/base/log.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ABANDON_TRIES = 20, ABANDON_PAUSE_NS = 5000000 };

static void close_files(shd_rank_file **files, int32_t count) {
    for (int32_t rank = 0; files && rank < count; rank++) shd_rank_file_close(files[rank]);
    shd_free(files);
}

static sherd_status open_files(const char *folder, const shd_checkpoint_manifest *manifest, shd_rank_file **files) {
    for (int32_t rank = 0; rank < manifest->world_size; rank++) {
        char path[SHD_PATH_BYTES];
        SHD_TRY(shd_rank_file_path(path, folder, rank));
        if (access(path, F_OK) != 0)
            return shd_fail(SHERD_DATA, "rank %d of %d has not written %s", rank, manifest->world_size, path);
        SHD_TRY(shd_rank_file_open(path, manifest->step, rank, &files[rank]));
        shd_rank_file_rest(files[rank]);
    }
    return SHERD_OK;
}

/* Checks that the files in `folder` are complete, and writes the manifest beside them. */
static sherd_status describe_and_write(const char *folder, const shd_checkpoint_manifest *given, shd_rank_file **files,
                                       shd_keep *keep) {
    shd_checkpoint_manifest manifest = *given;
    SHD_TRY(open_files(folder, given, files));
    SHD_TRY(shd_pieces_describe(files, keep, &manifest));
    manifest.time_s = (int64_t)time(NULL);
    return shd_manifest_write(folder, &manifest);
}

static sherd_status close_partial(const char *folder, const shd_checkpoint_manifest *manifest) {
    shd_keep *keep = shd_keep_create();
    shd_rank_file **files = shd_alloc((size_t)manifest->world_size, sizeof *files);
    sherd_status status = keep && files ? SHERD_OK : shd_fail(SHERD_MEMORY, "out of memory for a checkpoint");
    if (status == SHERD_OK) status = describe_and_write(folder, manifest, files, keep);
    close_files(files, manifest->world_size);
    shd_keep_destroy(keep);
    return status == SHERD_OK ? shd_folder_sync(folder) : status;
}

/* Where two names cannot be exchanged: the older one steps aside first, under a name that is looked for as long as
 * there is no other. */
static sherd_status replace_in_two(const char *parent, const char *partial, const char *final, const char *replaced) {
    SHD_TRY(shd_path_rename(final, replaced));
    sherd_status status = shd_folder_sync(parent);
    if (status == SHERD_OK) status = shd_path_rename(partial, final);
    if (status != SHERD_OK) rename(replaced, final);
    return status;
}

/* Undoes what could not be made durable, so that the older one is what it was: in its place, and not to be discarded. */
static void take_back(const char *partial, const char *final, const char *older, bool exchanged) {
    int failed = exchanged ? renameat2(AT_FDCWD, partial, AT_FDCWD, final, RENAME_EXCHANGE) : rename(final, partial);
    if (failed == 0 && older[0]) failed = rename(older, final);
    if (failed != 0) shd_log(SHERD_LOG_WARN, "cannot undo the commit of %s: %s", final, strerror(errno));
}

/* Gives the finished folder its name, in place of an older checkpoint; *older is where that one is now, "": there was
 * none. */
static sherd_status rename_durably(const char *parent, int64_t step, uint64_t id, char older[SHD_PATH_BYTES]) {
    char partial[SHD_PATH_BYTES], final[SHD_PATH_BYTES];
    SHD_TRY(shd_step_path(partial, parent, SHD_STEP_PARTIAL, step, id));
    SHD_TRY(shd_step_path(final, parent, SHD_STEP_COMPLETE, step, 0));
    SHD_TRY(shd_step_path(older, parent, SHD_STEP_REPLACED, step, id));
    bool exchanged = false;
    if (rename(partial, final) == 0) {
        older[0] = 0;
    } else if (errno != EEXIST && errno != ENOTEMPTY) {
        return shd_fail(SHERD_IO, "cannot rename %s to %s: %s", partial, final, strerror(errno));
    } else if (renameat2(AT_FDCWD, partial, AT_FDCWD, final, RENAME_EXCHANGE) == 0) {
        SHD_TRY(shd_path_make(older, "%s", partial));
        exchanged = true;
    } else {
        SHD_TRY(replace_in_two(parent, partial, final, older));
    }
    sherd_status status = shd_folder_sync(parent);
    if (status != SHERD_OK) take_back(partial, final, exchanged ? "" : older, exchanged);
    return status;
}

/* The older one is held: after an exchange it has the partial name, where a peer that gives up would take it for what is
 * nobody's, and may have to come back. */
static sherd_status put_in_place(const char *parent, int64_t step, uint64_t id, char older[SHD_PATH_BYTES]) {
    char final[SHD_PATH_BYTES];
    SHD_TRY(shd_step_path(final, parent, SHD_STEP_COMPLETE, step, 0));
    const int held = shd_folder_hold(final);
    sherd_status status = rename_durably(parent, step, id, older);
    shd_file_close(held);
    return status;
}

sherd_status shd_checkpoint_commit(const char *parent, uint64_t id, const shd_checkpoint_manifest *manifest) {
    char partial[SHD_PATH_BYTES], older[SHD_PATH_BYTES];
    SHD_TRY(shd_step_path(partial, parent, SHD_STEP_PARTIAL, manifest->step, id));
    SHD_TRY(close_partial(partial, manifest));
    SHD_TRY(put_in_place(parent, manifest->step, id, older));
    if (older[0] && shd_step_name_of_path(older).kind == SHD_STEP_PARTIAL)
        shd_partial_remove(older);
    else if (older[0])
        shd_complete_remove(parent, older, manifest->step, id);
    return SHERD_OK;
}

void shd_checkpoint_abandon(const char *parent, int64_t step, uint64_t id) {
    const struct timespec pause = {.tv_nsec = ABANDON_PAUSE_NS};
    char partial[SHD_PATH_BYTES];
    bool removed;
    if (shd_step_path(partial, parent, SHD_STEP_PARTIAL, step, id) != SHERD_OK) return;
    /* Peers that end with this rank are at the same, and in each other's way. */
    for (int i = 0; i < ABANDON_TRIES && shd_partial_judge(partial, true, &removed) == SHD_PARTIAL_SOMEBODYS; i++)
        nanosleep(&pause, NULL);
}

void shd_checkpoint_discard(const char *parent, int64_t step, uint64_t id) {
    char partial[SHD_PATH_BYTES];
    if (shd_step_path(partial, parent, SHD_STEP_PARTIAL, step, id) == SHERD_OK) shd_partial_remove(partial);
}
