#include "runtime/launch/log_file.h"

#include "runtime/base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_full(int cause) { return cause == ENOSPC || cause == EDQUOT; }

sherd_status shd_log_folder_make(const char *path, int *cause) {
    char part[PATH_MAX];
    *cause = 0;
    if (strlen(path) >= sizeof part) return shd_fail(SHERD_IO, "the path %.60s… is too long", path);
    strcpy(part, path);
    for (char *at = part + 1;; at++) {
        if (*at && *at != '/') continue;
        char kept = *at;
        *at = 0;
        struct stat info;
        if (mkdir(part, 0777) < 0 && !(stat(part, &info) == 0 && S_ISDIR(info.st_mode))) {
            *cause = errno == EEXIST ? ENOTDIR : errno;
            return shd_fail(SHERD_IO, "cannot make the folder %s: %s", part, strerror(*cause));
        }
        *at = kept;
        if (!kept) return SHERD_OK;
    }
}

sherd_status shd_log_file_open(shd_log_file *file, const char *folder, int32_t rank, const char *name) {
    *file = (shd_log_file){.fd = -1};
    char path[PATH_MAX];
    int bytes = snprintf(path, sizeof path, "%s/%d", folder, rank);
    if (bytes < 0 || (size_t)bytes + strlen(name) + 2 > sizeof path)
        return shd_fail(SHERD_IO, "the path %.60s… is too long", folder);
    sherd_status status = shd_log_folder_make(path, &file->cause);
    if (status != SHERD_OK) return is_full(file->cause) ? SHERD_OK : status;
    snprintf(path + bytes, sizeof path - (size_t)bytes, "/%s", name);
    file->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file->fd >= 0) return SHERD_OK;
    file->cause = errno;
    return is_full(errno) ? SHERD_OK : shd_fail(SHERD_IO, "cannot open %s: %s", path, strerror(errno));
}

void shd_log_file_close(shd_log_file *file) {
    if (file->fd >= 0) close(file->fd);
    file->fd = -1;
}

/* How many of the bytes were written. */
static size_t write_all(shd_log_file *file, const char *bytes, size_t count) {
    size_t done = 0;
    while (done < count) {
        ssize_t written = write(file->fd, bytes + done, count - done);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) {
            if (!file->cause) file->cause = written < 0 ? errno : EIO;
            break;
        }
        done += (size_t)written;
    }
    return done;
}

void shd_log_file_write(shd_log_file *file, const char *bytes, size_t count) {
    if (file->fd < 0) return;
    if (file->missing > 0) {
        char note[96];
        int length = snprintf(note, sizeof note, "\n[sherd: %" PRId64 " bytes are missing here: %s]\n", file->missing,
                              strerror(file->cause));
        if (write_all(file, note, (size_t)length) < (size_t)length) {
            file->missing += (int64_t)count;
            return;
        }
        file->missing = 0;
    }
    file->missing = (int64_t)(count - write_all(file, bytes, count));
}
