/* Reading order: a rank enters; what is there is found; what goes is removed. The commit is in checkpoint_commit.c, the
 * list in checkpoint_list.c, how a folder is judged and removed in checkpoint_removal.c. */
#include "io/checkpoint_folder.h"

#include "io/checkpoint_hold.h"
#include "io/checkpoint_manifest.h"
#include "io/checkpoint_names.h"
#include "io/checkpoint_removal.h"
#include "io/folder.h"
#include "runtime/base/log.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

sherd_status shd_checkpoint_step_path(char out[SHD_PATH_BYTES], const char *parent, int64_t step) {
    return shd_step_path(out, parent, SHD_STEP_COMPLETE, step, 0);
}

sherd_status shd_checkpoint_partial_path(char out[SHD_PATH_BYTES], const char *parent, int64_t step, uint64_t id) {
    return shd_step_path(out, parent, SHD_STEP_PARTIAL, step, id);
}

/* --- entering ----------------------------------------------------------------------------------------------------- */

sherd_status shd_checkpoint_partial_enter(const char *path, int *descriptor) {
    /* Whoever removes such folders does so once in a while, so this is tried once or twice. */
    enum { TRIES = 100 };
    for (int32_t i = 0; i < TRIES; i++) {
        SHD_TRY(shd_folder_make(path));
        int folder = shd_folder_hold(path); /* where locks do not work, nobody removes anything either */
        if (folder < 0 && errno == ENOENT) continue;
        if (folder < 0) return shd_fail(SHERD_IO, "cannot open the folder %s: %s", path, strerror(errno));
        *descriptor = folder;
        return SHERD_OK;
    }
    return shd_fail(SHERD_IO, "cannot make the folder %s: somebody removes it again and again", path);
}

/* --- finding ------------------------------------------------------------------------------------------------------ */

static bool has_manifest(const char *folder) {
    char path[SHD_PATH_BYTES];
    return shd_path_make(path, "%s/" SHD_MANIFEST_NAME, folder) == SHERD_OK && access(path, F_OK) == 0;
}

/* The folders of most steps: with a manifest, and not to be looked into. NULL: there is none. */
typedef struct newest_folders {
    const shd_step_folder *complete, *hidden;
    int hidden_cause; /* errno */
    bool vanished;    /* one that was listed had lost its name by the time it was looked at */
} newest_folders;

static sherd_status weigh(const char *parent, const shd_step_folder *folder, newest_folders *newest) {
    char path[SHD_PATH_BYTES];
    SHD_TRY(shd_path_make(path, "%s/%s", parent, folder->name));
    if (has_manifest(path)) {
        newest->complete = folder;
    } else if (errno != ENOENT && errno != ENOTDIR) {
        newest->hidden = folder;
        newest->hidden_cause = errno;
    } else if (access(path, F_OK) != 0) {
        newest->vanished = true;
    }
    return SHERD_OK;
}

static bool is_newer(const shd_step_folder *a, const shd_step_folder *b) {
    return a && (!b || a->parsed.step > b->parsed.step);
}

static sherd_status find_newest(const char *parent, shd_keep *keep, newest_folders *out) {
    newest_folders newest = {0};
    shd_step_folder *folders = NULL;
    int64_t count = 0;
    SHD_TRY(shd_step_folders_read(parent, keep, &folders, &count));
    for (int64_t i = 0; i < count; i++)
        if (shd_step_folder_stands(folders, i)) SHD_TRY(weigh(parent, &folders[i], &newest));
    if (is_newer(newest.hidden, newest.complete))
        return shd_fail(SHERD_IO, "cannot look into %s/%s, which may be the newest checkpoint: %s", parent,
                        newest.hidden->name, strerror(newest.hidden_cause));
    *out = newest;
    return SHERD_OK;
}

/* A copy of `parent`/`folder`->name; NULL where `folder` is. */
static sherd_status copy_path(const char *parent, const shd_step_folder *folder, char **out) {
    char path[SHD_PATH_BYTES];
    *out = NULL;
    if (!folder) return SHERD_OK;
    SHD_TRY(shd_path_make(path, "%s/%s", parent, folder->name));
    *out = shd_strdup(path);
    return *out ? SHERD_OK : shd_fail(SHERD_MEMORY, "out of memory for a path");
}

/* *again: there was one, which a job has let go for one that came after the list was made. */
static sherd_status look(const char *parent, char **found, bool *again) {
    newest_folders newest = {0};
    shd_keep *keep = shd_keep_create();
    if (!keep) return shd_fail(SHERD_MEMORY, "out of memory for a list of checkpoints");
    sherd_status status = find_newest(parent, keep, &newest);
    if (status == SHERD_OK) status = copy_path(parent, newest.complete, found);
    shd_keep_destroy(keep);
    *again = !newest.complete && newest.vanished;
    return status;
}

static sherd_status find(const char *parent, char **found) {
    enum { TRIES = 100 };
    char *path = NULL;
    bool again = true;
    for (int32_t i = 0; i < TRIES && again; i++) SHD_TRY(look(parent, &path, &again));
    *found = path;
    return SHERD_OK;
}

sherd_status shd_checkpoint_find(const char *path, char **found) {
    if (!has_manifest(path)) return find(path, found);
    char *copy = NULL;
    if (shd_step_name_of_path(path).kind != SHD_STEP_PARTIAL) {
        copy = shd_strdup(path);
        if (!copy) return shd_fail(SHERD_MEMORY, "out of memory for a path");
    }
    *found = copy;
    return SHERD_OK;
}

/* --- what goes ---------------------------------------------------------------------------------------------------- */

/* An older checkpoint whose name another one was to have: it gets it back, or goes when the other one has it. */
static void end_replacing(const char *parent, const shd_step_folder *folders, int64_t index) {
    char path[SHD_PATH_BYTES], final[SHD_PATH_BYTES];
    const shd_step_name *name = &folders[index].parsed;
    if (shd_path_make(path, "%s/%s", parent, folders[index].name) != SHERD_OK ||
        shd_step_path(final, parent, SHD_STEP_COMPLETE, name->step, 0) != SHERD_OK)
        return;
    if (!shd_step_folder_stands(folders, index)) {
        shd_complete_remove(parent, path, name->step, name->id);
    } else if (shd_path_rename(path, final) != SHERD_OK || shd_folder_sync(parent) != SHERD_OK) {
        shd_log(SHERD_LOG_WARN, "%s", sherd_last_error());
    }
}

/* What clearing has come to. */
typedef struct clearing {
    int32_t removed, unlockable;
} clearing;

static void clear_partial(const char *parent, const char *name, clearing *so_far) {
    char path[SHD_PATH_BYTES];
    bool removed = false;
    if (shd_path_make(path, "%s/%s", parent, name) != SHERD_OK) return;
    shd_partial_owner owner = shd_partial_judge(path, true, &removed);
    if (owner == SHD_PARTIAL_SOMEBODYS) shd_log(SHERD_LOG_INFO, "%s is kept: it is being written", path);
    so_far->unlockable += owner == SHD_PARTIAL_UNLOCKABLE;
    so_far->removed += removed;
}

static sherd_status clear_all(const char *parent, shd_keep *keep, clearing *so_far) {
    shd_step_folder *folders = NULL;
    int64_t count = 0;
    SHD_TRY(shd_step_folders_read(parent, keep, &folders, &count));
    for (int64_t i = 0; i < count; i++) {
        if (!folders[i].is_folder) continue;
        if (folders[i].parsed.kind == SHD_STEP_REPLACED) end_replacing(parent, folders, i);
        if (folders[i].parsed.kind == SHD_STEP_PARTIAL) clear_partial(parent, folders[i].name, so_far);
    }
    return SHERD_OK;
}

sherd_status shd_checkpoint_clear_leftovers(const char *parent, int32_t *removed) {
    clearing so_far = {0};
    shd_keep *keep = shd_keep_create();
    if (!keep) return shd_fail(SHERD_MEMORY, "out of memory for a list of checkpoints");
    sherd_status status = clear_all(parent, keep, &so_far);
    shd_keep_destroy(keep);
    SHD_TRY(status);
    if (so_far.unlockable > 0)
        shd_log(
            SHERD_LOG_WARN,
            "%s: %d folder%s called step-….partial-… stay%s: files there cannot be locked, so nobody knows whether a "
            "job still writes them; remove them when none does",
            parent, so_far.unlockable, so_far.unlockable == 1 ? "" : "s", so_far.unlockable == 1 ? "s" : "");
    *removed = so_far.removed;
    return SHERD_OK;
}

static bool is_whole(const char *path) {
    shd_checkpoint *checkpoint = NULL;
    bool whole = shd_checkpoint_open(path, &checkpoint) == SHERD_OK;
    if (whole) shd_checkpoint_close(checkpoint);
    return whole;
}

/* From the newest on: so many stay, then milestones alone. Newer steps are in `folders` behind older ones. */
static void retain(const char *parent, const shd_step_folder *folders, int64_t count,
                   const shd_checkpoint_retention *retention, int64_t newest, uint64_t id) {
    int32_t kept = 1;
    for (int64_t i = count; i-- > 0;) {
        char path[SHD_PATH_BYTES];
        int64_t step = folders[i].parsed.step;
        bool milestone = retention->keep_every > 0 && step % retention->keep_every == 0;
        if (folders[i].parsed.kind != SHD_STEP_COMPLETE || step >= newest) continue;
        if (kept >= retention->keep && (milestone || !folders[i].is_folder)) continue;
        if (shd_path_make(path, "%s/%s", parent, folders[i].name) != SHERD_OK || !is_whole(path)) continue;
        if (kept < retention->keep)
            kept++;
        else
            shd_complete_remove(parent, path, step, id);
    }
}

void shd_checkpoint_retain(const char *parent, const shd_checkpoint_retention *retention, int64_t newest, uint64_t id) {
    shd_step_folder *folders = NULL;
    int64_t count = 0;
    if (retention->keep <= 0) return;
    shd_keep *keep = shd_keep_create();
    if (keep && shd_step_folders_read(parent, keep, &folders, &count) == SHERD_OK)
        retain(parent, folders, count, retention, newest, id);
    else
        shd_log(SHERD_LOG_WARN, "%s: no checkpoint is removed: %s", parent,
                keep ? sherd_last_error() : "memory is out");
    shd_keep_destroy(keep);
}

static sherd_status move_all(const char *parent, int64_t step, uint64_t id, shd_keep *keep, int32_t *moved) {
    shd_step_folder *folders = NULL;
    int64_t count = 0;
    SHD_TRY(shd_step_folders_read(parent, keep, &folders, &count));
    for (int64_t i = 0; i < count; i++) {
        char from[SHD_PATH_BYTES], to[SHD_PATH_BYTES];
        if (folders[i].parsed.kind != SHD_STEP_COMPLETE || !folders[i].is_folder || folders[i].parsed.step <= step)
            continue;
        SHD_TRY(shd_path_make(from, "%s/%s", parent, folders[i].name));
        SHD_TRY(shd_step_path(to, parent, SHD_STEP_ASIDE, folders[i].parsed.step, id));
        SHD_TRY(shd_path_rename(from, to));
        ++*moved;
    }
    return *moved > 0 ? shd_folder_sync(parent) : SHERD_OK;
}

sherd_status shd_checkpoint_move_aside(const char *parent, int64_t step, uint64_t id, int32_t *moved) {
    int32_t count = 0;
    shd_keep *keep = shd_keep_create();
    if (!keep) return shd_fail(SHERD_MEMORY, "out of memory for a list of checkpoints");
    sherd_status status = move_all(parent, step, id, keep, &count);
    shd_keep_destroy(keep);
    if (status == SHERD_OK) *moved = count;
    return status;
}
