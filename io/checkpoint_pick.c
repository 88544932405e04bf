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

sherd_status shd_checkpoint_pick(const char *path, shd_checkpoint **out) {
    char *found = NULL;
    SHD_TRY(shd_checkpoint_find(path, &found));
    if (!found) return fail_without(path);
    sherd_status status = shd_checkpoint_open(found, out);
    shd_free(found);
    return status;
}
