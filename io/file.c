#include "io/file.h"

#include "runtime/base/arith.h"
#include "runtime/base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
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

/* open(), past the page cache where the file system offers that. */
static int open_direct(const char *path, int flags) {
    int opened = open(path, flags | O_DIRECT, 0666);
    return opened < 0 && errno == EINVAL ? open(path, flags, 0666) : opened;
}

static sherd_status describe_opened(int opened, const char *path, int *descriptor, int64_t *bytes) {
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

sherd_status shd_file_open(const char *path, int *descriptor, int64_t *bytes) {
    return describe_opened(open(path, O_RDONLY | O_CLOEXEC), path, descriptor, bytes);
}

sherd_status shd_file_open_direct(const char *path, int *descriptor, int64_t *bytes) {
    return describe_opened(open_direct(path, O_RDONLY | O_CLOEXEC), path, descriptor, bytes);
}

void shd_file_use_cache(int descriptor, bool cache) {
    int flags = fcntl(descriptor, F_GETFL), wanted = cache ? flags & ~O_DIRECT : flags | O_DIRECT;
    if (flags >= 0 && wanted != flags) (void)fcntl(descriptor, F_SETFL, wanted);
}

sherd_status shd_file_create(const char *path, int *descriptor) {
    int opened = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (opened < 0) return fail_system("create", path);
    *descriptor = opened;
    return SHERD_OK;
}

sherd_status shd_file_create_direct(const char *path, int *descriptor) {
    int opened = open_direct(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC);
    if (opened < 0) return fail_system("create", path);
    *descriptor = opened;
    return SHERD_OK;
}

void shd_file_close(int descriptor) {
    if (descriptor >= 0) close(descriptor);
}

/* After a call that failed: whether it is worth another try. What the file system refuses past the page cache is tried
 * through it, once in a call: another thread may have turned the descriptor already. */
static bool try_again(int descriptor, bool *cached) {
    if (errno == EINTR) return true;
    if (errno != EINVAL || *cached) return false;
    *cached = true;
    shd_file_use_cache(descriptor, true);
    return true;
}

/* Linux moves at most 2 GiB - 4 KiB in one call. */
static const int64_t largest_call_bytes = (int64_t)1 << 30;

sherd_status shd_file_read(int descriptor, const char *path, int64_t offset, void *out, int64_t bytes) {
    bool cached = false;
    for (int64_t done = 0; done < bytes;) {
        size_t wanted = (size_t)shd_min(bytes - done, largest_call_bytes);
        ssize_t got = pread(descriptor, (char *)out + done, wanted, offset + done);
        if (got < 0 && try_again(descriptor, &cached)) continue;
        if (got < 0) return fail_system("read", path);
        if (got == 0)
            return shd_fail(SHERD_DATA, "%s ends after %lld bytes, where %lld more are expected", path,
                            (long long)(offset + done), (long long)(bytes - done));
        done += got;
    }
    return SHERD_OK;
}

/* write() or, at an offset that is not negative, pwrite(). Beyond the limit of file sizes these also send SIGXFSZ to the
 * calling thread, which would end the process: held back, and taken away. */
static ssize_t write_quietly(int descriptor, const void *data, size_t bytes, int64_t offset) {
    sigset_t limit, before;
    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &limit, &before);
    ssize_t put = offset < 0 ? write(descriptor, data, bytes) : pwrite(descriptor, data, bytes, offset);
    int cause = errno;
    if (put < 0 && cause == EFBIG) sigtimedwait(&limit, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = cause;
    return put;
}

static sherd_status fail_write(const char *path) {
    if (errno != EFBIG) return fail_system("write", path);
    return shd_fail(SHERD_IO, "cannot write %s: %s (see ulimit -f)", path, strerror(errno));
}

/* `offset` < 0: appends. */
static sherd_status write_all(int descriptor, const char *path, int64_t offset, const void *data, int64_t bytes) {
    bool cached = false;
    for (int64_t done = 0; done < bytes;) {
        ssize_t put = write_quietly(descriptor, (const char *)data + done,
                                    (size_t)shd_min(bytes - done, largest_call_bytes), offset < 0 ? -1 : offset + done);
        if (put < 0 && try_again(descriptor, &cached)) continue;
        if (put < 0) return fail_write(path);
        done += put;
    }
    return SHERD_OK;
}

sherd_status shd_file_write(int descriptor, const char *path, const void *data, int64_t bytes) {
    return write_all(descriptor, path, -1, data, bytes);
}

sherd_status shd_file_write_at(int descriptor, const char *path, int64_t offset, const void *data, int64_t bytes) {
    return write_all(descriptor, path, offset, data, bytes);
}

bool shd_file_is_at(int descriptor, const char *path) {
    struct stat open_file, named;
    return fstat(descriptor, &open_file) == 0 && stat(path, &named) == 0 && open_file.st_dev == named.st_dev &&
           open_file.st_ino == named.st_ino;
}

sherd_status shd_file_sync(int descriptor, const char *path) {
    return fsync(descriptor) == 0 ? SHERD_OK : fail_system("sync", path);
}

sherd_status shd_path_rename(const char *from, const char *to) {
    if (rename(from, to) == 0) return SHERD_OK;
    return shd_fail(SHERD_IO, "cannot rename %s to %s: %s", from, to, strerror(errno));
}
