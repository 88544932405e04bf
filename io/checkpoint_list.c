/* What is below a parent, and what is wrong with it. */
#include "io/checkpoint_folder.h"
#include "io/checkpoint_manifest.h"
#include "io/checkpoint_names.h"
#include "io/checkpoint_removal.h"
#include "io/keep.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static sherd_status fail_memory(void) { return shd_fail(SHERD_MEMORY, "out of memory for a list of checkpoints"); }

static sherd_status set_flaw(shd_checkpoint_entry *entry, shd_keep *keep, const char *flaw) {
    entry->flaw = shd_keep_text(keep, flaw, strlen(flaw));
    return entry->flaw ? SHERD_OK : fail_memory();
}

static const char *describe_partial(const char *path) {
    bool removed;
    switch (shd_partial_judge(path, false, &removed)) {
    case SHD_PARTIAL_SOMEBODYS: return "is being written";
    case SHD_PARTIAL_UNLOCKABLE: return "is being written, or was left by a job that ended: files cannot be locked";
    default: return "was left by a job that ended; the next one here removes it";
    }
}

/* Why a folder that is whole is not looked for; NULL: it is. */
static const char *describe_name(shd_step_kind kind, bool stands_for_step) {
    if (kind == SHD_STEP_ASIDE) return "was set aside by a job that went on from an older step";
    if (kind == SHD_STEP_REPLACED && !stands_for_step) return "was replaced; the next job here removes it";
    return NULL;
}

/* Complete, or what shd_checkpoint_open has against it. */
static sherd_status look_inside(shd_checkpoint_entry *entry, const shd_step_folder *folder, bool stands_for_step,
                                shd_keep *keep) {
    shd_checkpoint *checkpoint = NULL;
    const char *flaw = describe_name(folder->parsed.kind, stands_for_step);
    sherd_status status = shd_checkpoint_open(entry->path, &checkpoint);
    if (status == SHERD_MEMORY) return status;
    if (status != SHERD_OK) return set_flaw(entry, keep, sherd_last_error());
    const shd_checkpoint_manifest *manifest = shd_checkpoint_content(checkpoint);
    entry->time_s = manifest->time_s;
    entry->raw_bytes = manifest->raw_bytes;
    entry->stored_bytes = manifest->stored_bytes;
    shd_checkpoint_close(checkpoint);
    return flaw ? set_flaw(entry, keep, flaw) : SHERD_OK;
}

static bool is_folder(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

static sherd_status describe(const char *parent, const shd_step_folder *folder, bool stands_for_step, shd_keep *keep,
                             shd_checkpoint_entry *entry) {
    char path[SHD_PATH_BYTES];
    SHD_TRY(shd_path_make(path, "%s/%s", parent, folder->name));
    *entry = (shd_checkpoint_entry){.step = folder->parsed.step,
                                    .name = folder->name,
                                    .path = shd_keep_text(keep, path, strlen(path)),
                                    .is_step = stands_for_step};
    if (!entry->path) return fail_memory();
    if (folder->parsed.kind == SHD_STEP_OTHER) return set_flaw(entry, keep, "is not named as checkpoints are");
    if (!is_folder(path)) return set_flaw(entry, keep, "is no folder");
    if (folder->parsed.kind == SHD_STEP_PARTIAL) return set_flaw(entry, keep, describe_partial(path));
    return look_inside(entry, folder, stands_for_step, keep);
}

static sherd_status list_all(const char *parent, shd_checkpoint_list *list) {
    shd_step_folder *folders = NULL;
    if (!is_folder(parent)) return shd_fail(SHERD_DATA, "there is no folder %s", parent);
    SHD_TRY(shd_step_folders_read(parent, list->keep, &folders, &list->count));
    list->entries = shd_keep_take(list->keep, (size_t)list->count * sizeof *list->entries + 1);
    if (!list->entries) return fail_memory();
    for (int64_t i = 0; i < list->count; i++)
        SHD_TRY(describe(parent, &folders[i], shd_step_folder_stands(folders, i), list->keep, &list->entries[i]));
    return SHERD_OK;
}

sherd_status shd_checkpoint_list_folders(const char *parent, shd_checkpoint_list *out) {
    shd_checkpoint_list list = {.keep = shd_keep_create()};
    if (!list.keep) return fail_memory();
    sherd_status status = list_all(parent, &list);
    if (status == SHERD_OK)
        *out = list;
    else
        shd_checkpoint_list_release(&list);
    return status;
}

void shd_checkpoint_list_release(shd_checkpoint_list *list) {
    shd_keep_destroy(list->keep);
    *list = (shd_checkpoint_list){0};
}
