#include "io/folder.h"

#include "io/file.h"
#include "runtime/base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static sherd_status fail_system(const char *verb, const char *path) {
    return shd_fail(SHERD_IO, "cannot %s the folder %s: %s", verb, path, strerror(errno));
}

sherd_status shd_folder_sync(const char *path) {
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return fail_system("open", path);
    /* Some file systems cannot sync a folder, and say so with EINVAL: there is nothing to wait for then. */
    sherd_status status = fsync(descriptor) == 0 || errno == EINVAL ? SHERD_OK : fail_system("sync", path);
    close(descriptor);
    return status;
}

sherd_status shd_folder_identify(const char *path, shd_folder_id *out) {
    struct stat about;
    if (stat(path, &about) != 0) return fail_system("look at", path);
    *out = (shd_folder_id){.device = about.st_dev, .inode = about.st_ino};
    return SHERD_OK;
}

sherd_status shd_folder_make(const char *path) {
    struct stat about;
    if (stat(path, &about) == 0) {
        if (S_ISDIR(about.st_mode)) return SHERD_OK;
        return shd_fail(SHERD_IO, "cannot make the folder %s: a file has this name", path);
    }
    if (errno != ENOENT) return fail_system("look at", path);
    char above[SHD_PATH_BYTES];
    SHD_TRY(shd_path_folder(above, path));
    SHD_TRY(shd_folder_make(above));
    /* Another rank may have been faster. */
    if (mkdir(path, 0777) != 0 && errno != EEXIST) return fail_system("make", path);
    return shd_folder_sync(above);
}
