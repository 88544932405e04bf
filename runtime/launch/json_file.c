#include "runtime/launch/json_file.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static sherd_status write_whole(const char *path, const json_t *root) {
    char partial[PATH_MAX];
    int length = snprintf(partial, sizeof partial, "%s.%d.tmp", path, (int)getpid());
    if (length < 0 || (size_t)length >= sizeof partial) return shd_fail(SHERD_IO, "the path %.60s… is too long", path);
    int fd = open(partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return shd_fail(SHERD_IO, "cannot write %s: %s", path, strerror(errno));
    bool written = json_dumpfd(root, fd, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0 && write(fd, "\n", 1) == 1;
    int cause = errno;
    close(fd);
    if (written && rename(partial, path) == 0) return SHERD_OK;
    if (written) cause = errno;
    unlink(partial);
    return shd_fail(SHERD_IO, "cannot write %s: %s", path, strerror(cause));
}

sherd_status shd_json_file_write(const char *path, json_t *root) {
    if (!root) return shd_fail(SHERD_MEMORY, "no memory for %s", path);
    sherd_status status = write_whole(path, root);
    json_decref(root);
    return status;
}

json_t *shd_json_file_text(const char *text) {
    if (!text) return json_null();
    size_t count = strlen(text);
    char *copy = shd_alloc(count + 1, 1);
    for (size_t at = 0; copy && at < count;) {
        uint32_t code;
        int bytes = shd_utf8_read(text + at, count - at, &code);
        if (bytes == 0)
            copy[at++] = '?';
        else
            for (; bytes > 0; bytes--, at++) copy[at] = text[at];
    }
    json_t *string = copy ? json_string(copy) : NULL;
    shd_free(copy);
    return string;
}
