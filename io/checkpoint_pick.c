#include "io/checkpoint_pick.h"

#include "io/checkpoint_folder.h"
#include "io/file.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* What is at the path instead of a checkpoint. */
static sherd_status fail_without(const char *path) {
    struct stat about;
    char below[SHD_PATH_BYTES];
    if (stat(path, &about) != 0) return shd_fail(SHERD_DATA, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(about.st_mode)) return shd_fail(SHERD_DATA, "%s: a file; a checkpoint is a folder", path);
    SHD_TRY(shd_path_make(below, "%s/checkpoints", path));
    if (stat(below, &about) == 0)
        return shd_fail(SHERD_DATA, "%s: a run's folder; its checkpoints are in %s", path, below);
    return shd_fail(SHERD_DATA, "%s: there is no complete checkpoint", path);
}

static bool is_gone(const char *path) {
    struct stat about;
    return stat(path, &about) != 0 && errno == ENOENT;
}

sherd_status shd_checkpoint_pick(const char *path, shd_checkpoint **out) {
    /* Between finding and opening a job may let it go, but then it has a newer one. */
    enum { TRIES = 100 };
    sherd_status status = SHERD_OK;
    bool gone = true;
    for (int32_t i = 0; i < TRIES && gone; i++) {
        char *found = NULL;
        SHD_TRY(shd_checkpoint_find(path, &found));
        if (!found) return fail_without(path);
        status = shd_checkpoint_open(found, out);
        gone = status != SHERD_OK && is_gone(found);
        shd_free(found);
    }
    return status;
}
