#include "io/checkpoint.h"

#include "io/checkpoint_file.h"
#include "io/checkpoint_hold.h"
#include "io/checkpoint_manifest.h"
#include "io/checkpoint_names.h"
#include "runtime/base/status.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct shd_checkpoint {
    shd_keep *keep;
    const char *path;
    int held; /* its folder, or -1 */
    shd_checkpoint_manifest manifest;
};

static sherd_status check_files(const shd_checkpoint *checkpoint) {
    for (int32_t rank = 0; rank < checkpoint->manifest.world_size; rank++) {
        char path[SHD_PATH_BYTES];
        struct stat about;
        int64_t bytes = checkpoint->manifest.files[rank].bytes;
        SHD_TRY(shd_rank_file_path(path, checkpoint->path, rank));
        if (stat(path, &about) != 0)
            return shd_fail(errno == ENOENT ? SHERD_DATA : SHERD_IO, "cannot look at %s, a part of the checkpoint: %s",
                            path, strerror(errno));
        if (about.st_size != bytes)
            return shd_fail(SHERD_DATA, "%s is damaged: it has %lld bytes, the manifest says %lld", path,
                            (long long)about.st_size, (long long)bytes);
    }
    return SHERD_OK;
}

static sherd_status check_manifest_is_there(const char *folder) {
    char path[SHD_PATH_BYTES];
    SHD_TRY(shd_path_make(path, "%s/" SHD_MANIFEST_NAME, folder));
    if (access(path, F_OK) == 0) return SHERD_OK;
    if (errno == ENOENT || errno == ENOTDIR)
        return shd_fail(SHERD_DATA, "%s is no checkpoint: it has no " SHD_MANIFEST_NAME, folder);
    return shd_fail(SHERD_IO, "cannot look at %s: %s", path, strerror(errno));
}

static sherd_status read_checkpoint(shd_checkpoint *checkpoint) {
    const char *path = checkpoint->path;
    shd_step_name name = shd_step_name_of_path(path);
    SHD_TRY(check_manifest_is_there(path));
    if (name.kind == SHD_STEP_PARTIAL) return shd_fail(SHERD_DATA, "%s was never finished", path);
    SHD_TRY(shd_manifest_read(path, checkpoint->keep, &checkpoint->manifest));
    SHD_TRY(shd_step_path_check(path, checkpoint->manifest.step));
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
    *checkpoint = (shd_checkpoint){.keep = keep, .path = path_copy, .held = shd_folder_hold(path)};
    sherd_status status = read_checkpoint(checkpoint);
    if (status != SHERD_OK) {
        shd_checkpoint_close(checkpoint);
        return status;
    }
    *out = checkpoint;
    return SHERD_OK;
}

void shd_checkpoint_close(shd_checkpoint *checkpoint) {
    if (!checkpoint) return;
    shd_file_close(checkpoint->held);
    shd_keep_destroy(checkpoint->keep);
}

const char *shd_checkpoint_path(const shd_checkpoint *checkpoint) { return checkpoint->path; }

const shd_checkpoint_manifest *shd_checkpoint_content(const shd_checkpoint *checkpoint) {
    return &checkpoint->manifest;
}
