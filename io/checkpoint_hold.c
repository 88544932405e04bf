#include "io/checkpoint_hold.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_at(int descriptor, const char *path) {
    struct stat open, named;
    return fstat(descriptor, &open) == 0 && stat(path, &named) == 0 && open.st_dev == named.st_dev &&
           open.st_ino == named.st_ino;
}

int shd_folder_hold(const char *path) {
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (descriptor >= 0 && flock(descriptor, LOCK_SH) != 0 && errno == EINTR) continue;
    if (descriptor < 0 || is_at(descriptor, path)) return descriptor;
    close(descriptor);
    errno = ENOENT;
    return -1;
}
