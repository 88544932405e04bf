#include "runtime/launch/log_file.h"

#include "runtime/base/memory.h"
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
        int error = mkdir(part, 0777) < 0 ? errno : 0;
        if (error && !(stat(part, &info) == 0 && S_ISDIR(info.st_mode))) {
            *cause = error == EEXIST ? ENOTDIR : error;
            return shd_fail(SHERD_IO, "cannot make the folder %s: %s", part, strerror(*cause));
        }
        *at = kept;
        if (!kept) return SHERD_OK;
    }
}

/* Opens `path`, of which the last part is the file's name. Fails: IO; file->cause is errno, or 0. */
static sherd_status open_path(shd_log_file *file, const char *path) {
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    int cause;
    sherd_status status = shd_log_folder_make(folder, &cause);
    if (status == SHERD_OK) {
        file->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (file->fd >= 0) return SHERD_OK;
        cause = errno;
        status = shd_fail(SHERD_IO, "cannot open %s: %s", path, strerror(cause));
    }
    file->cause = cause;
    return status;
}

sherd_status shd_log_file_open(shd_log_file *file, const char *folder, int32_t rank, const char *name) {
    *file = (shd_log_file){.fd = -1};
    char path[PATH_MAX];
    int bytes = snprintf(path, sizeof path, "%s/%d/%s", folder, rank, name);
    if (bytes < 0 || (size_t)bytes >= sizeof path) return shd_fail(SHERD_IO, "the path %.60s… is too long", folder);
    sherd_status status = open_path(file, path);
    if (status == SHERD_OK || !is_full(file->cause)) return status;
    file->path = shd_alloc((size_t)bytes + 1, 1);
    if (file->path) memcpy(file->path, path, (size_t)bytes + 1);
    return SHERD_OK;
}

static void forget_path(shd_log_file *file) {
    shd_free(file->path);
    file->path = NULL;
}

void shd_log_file_close(shd_log_file *file) {
    if (file->fd >= 0) close(file->fd);
    file->fd = -1;
    forget_path(file);
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
    if (file->path && open_path(file, file->path) == SHERD_OK) forget_path(file);
    if (file->fd < 0) {
        file->missing += (int64_t)count;
        return;
    }
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
