#include "io/folder.h"

#include "runtime/base/status.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

static sherd_status make_one(const char *path) {
    struct stat about;
    if (mkdir(path, 0777) == 0) return SHERD_OK;
    int error = errno;
    if (stat(path, &about) == 0 && S_ISDIR(about.st_mode)) return SHERD_OK;
    if (error == EEXIST) error = ENOTDIR;
    return shd_fail(SHERD_IO, "%s: cannot make this folder: %s", path, strerror(error));
}

sherd_status shd_folder_make(const char *path) {
    char part[PATH_MAX];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof part) return shd_fail(SHERD_ARGUMENT, "a folder's path of %zu bytes", length);
    for (size_t end = 1; end < length; end++) {
        if (path[end] != '/') continue;
        memcpy(part, path, end);
        part[end] = 0;
        SHD_TRY(make_one(part));
    }
    return make_one(path);
}
