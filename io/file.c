#include "io/file.h"

#include "runtime/base/arith.h"
#include "runtime/base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static sherd_status fail_system(const char *verb, const char *path) {
    return shd_fail(SHERD_IO, "cannot %s %s: %s", verb, path, strerror(errno));
}

sherd_status shd_path_make(char out[SHD_PATH_BYTES], const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(out, SHD_PATH_BYTES, format, arguments);
    va_end(arguments);
    if (length < 0 || length >= SHD_PATH_BYTES)
        return shd_fail(SHERD_ARGUMENT, "the path %.60s… is too long: %d bytes", out, length);
    return SHERD_OK;
}

sherd_status shd_path_folder(char out[SHD_PATH_BYTES], const char *path) {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    while (length > 0 && path[length - 1] != '/') length--;
    if (length == 0) return shd_path_make(out, ".");
    while (length > 1 && path[length - 1] == '/') length--;
    return shd_path_make(out, "%.*s", (int)length, path);
}

sherd_status shd_file_open(const char *path, int *descriptor, int64_t *bytes) {
    int opened = open(path, O_RDONLY | O_CLOEXEC);
    if (opened < 0) return fail_system("open", path);
    struct stat about;
    sherd_status status = SHERD_OK;
    if (fstat(opened, &about) != 0)
        status = fail_system("look at", path);
    else if (!S_ISREG(about.st_mode))
        status = shd_fail(SHERD_IO, "%s is not a regular file", path);
    if (status != SHERD_OK) {
        close(opened);
        return status;
    }
    *descriptor = opened;
    *bytes = about.st_size;
    return SHERD_OK;
}

sherd_status shd_file_create(const char *path, int *descriptor) {
    int opened = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (opened < 0) return fail_system("create", path);
    *descriptor = opened;
    return SHERD_OK;
}

void shd_file_close(int descriptor) {
    if (descriptor >= 0) close(descriptor);
}

/* Linux moves at most 2 GiB - 4 KiB in one call. */
static const int64_t largest_call_bytes = (int64_t)1 << 30;

sherd_status shd_file_read(int descriptor, const char *path, int64_t offset, void *out, int64_t bytes) {
    for (int64_t done = 0; done < bytes;) {
        size_t wanted = (size_t)shd_min(bytes - done, largest_call_bytes);
        ssize_t got = pread(descriptor, (char *)out + done, wanted, offset + done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail_system("read", path);
        if (got == 0)
            return shd_fail(SHERD_DATA, "%s ends after %lld bytes, where %lld more are expected", path,
                            (long long)(offset + done), (long long)(bytes - done));
        done += got;
    }
    return SHERD_OK;
}

sherd_status shd_file_write(int descriptor, const char *path, const void *data, int64_t bytes) {
    for (int64_t done = 0; done < bytes;) {
        ssize_t put = write(descriptor, (const char *)data + done, (size_t)shd_min(bytes - done, largest_call_bytes));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return fail_system("write", path);
        done += put;
    }
    return SHERD_OK;
}

sherd_status shd_file_sync(int descriptor, const char *path) {
    return fsync(descriptor) == 0 ? SHERD_OK : fail_system("sync", path);
}

sherd_status shd_path_rename(const char *from, const char *to) {
    if (rename(from, to) == 0) return SHERD_OK;
    return shd_fail(SHERD_IO, "cannot rename %s to %s: %s", from, to, strerror(errno));
}
