#include "io/line_file.h"

#include "io/file.h"
#include "io/folder.h"
#include "runtime/base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static bool ends_within_line(int file) {
    struct stat about;
    char last = '\n';
    return fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0 &&
           pread(file, &last, 1, about.st_size - 1) == 1 && last != '\n';
}

/* Whether the file's last line is torn. The size grows page by page while somebody's line is being written, so whoever
 * looks must be alone; but nobody waits long for a process that has been stopped: then the line is taken for whole. The
 * lock is given back when the file is closed. */
static bool is_torn(int file) {
    enum { TRIES = 100, PAUSE_NS = 1000 * 1000 };
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    for (int tries = 0; tries < TRIES; tries++) {
        bool waits = flock(file, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR);
        if (!waits) return ends_within_line(file); /* also where a file system knows no locks */
        nanosleep(&pause, NULL);
    }
    return false;
}

static sherd_status append(const char *path, int file, const char *text, size_t bytes) {
    char end = '\n';
    size_t torn = is_torn(file);
    const struct iovec pieces[2] = {{.iov_base = &end, .iov_len = torn}, {.iov_base = (void *)text, .iov_len = bytes}};
    ssize_t put;
    do put = writev(file, pieces, 2);
    while (put < 0 && errno == EINTR);
    if (put == (ssize_t)(bytes + torn)) return SHERD_OK;
    return shd_fail(SHERD_IO, "%s: cannot append a line: %s", path, strerror(put < 0 ? errno : ENOSPC));
}

sherd_status shd_line_append(const char *dir, const char *name, const char *text, size_t bytes) {
    char path[SHD_PATH_BYTES];
    SHD_TRY(shd_path_make(path, "%s/%s", dir, name));
    SHD_TRY(shd_folder_make(dir));
    int file = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0) return shd_fail(SHERD_IO, "%s: cannot open: %s", path, strerror(errno));
    sherd_status status = append(path, file, text, bytes);
    close(file);
    return status;
}
