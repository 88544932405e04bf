#include "runtime/launch/error_file.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/launch/json_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Longer files are read up to here: a message of a rank, not its life's story. */
enum { READ_BYTES = 1 << 20 };

sherd_status shd_error_file_write(const char *path, const char *message) {
    char time_text[24];
    snprintf(time_text, sizeof time_text, "%" PRId64, (int64_t)time(NULL));
    return shd_json_file_write(path, json_pack("{s: {s: o, s: {s: s, s: s}}}", "message", "message",
                                               shd_json_file_text(message), "extraInfo", "py_callstack", "",
                                               "timestamp", time_text));
}

static int64_t read_time(const json_t *value) {
    if (json_is_integer(value)) return json_integer_value(value);
    const char *text = json_string_value(value);
    return text ? strtoll(text, NULL, 10) : 0;
}

/* False: it is not of the form. Messages are texts, or objects that hold one. */
static bool take_fields(json_t *root, shd_error_file *file) {
    const json_t *outer = json_object_get(root, "message");
    const char *message = json_string_value(outer), *callstack = NULL;
    if (json_is_object(outer)) {
        const json_t *extra = json_object_get(outer, "extraInfo");
        message = json_string_value(json_object_get(outer, "message"));
        callstack = json_string_value(json_object_get(extra, "py_callstack"));
        file->time_s = read_time(json_object_get(extra, "timestamp"));
    }
    if (!message) return false;
    file->message = shd_strdup(message);
    if (callstack && *callstack) file->callstack = shd_strdup(callstack);
    return true;
}

static sherd_status parse(const char *text, size_t count, shd_error_file *file) {
    json_t *root = json_loadb(text, count, JSON_ALLOW_NUL, NULL);
    bool formed = root && take_fields(root, file);
    json_decref(root);
    if (!formed) file->message = shd_strdup(text);
    if (file->message) return SHERD_OK;
    shd_error_file_fini(file);
    return shd_fail(SHERD_MEMORY, "no memory for an error file");
}

static sherd_status read_all(int fd, char *text, size_t *count) {
    while (*count < READ_BYTES) {
        ssize_t got = read(fd, text + *count, READ_BYTES - *count);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return shd_fail(SHERD_IO, "cannot read an error file: %s", strerror(errno));
        if (got == 0) break;
        *count += (size_t)got;
    }
    return SHERD_OK;
}

sherd_status shd_error_file_read(const char *path, bool *found, shd_error_file *out) {
    /* A rank may have put anything there; a pipe must not hold up the launcher. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        *found = false;
        return SHERD_OK;
    }
    if (fd < 0) return shd_fail(SHERD_IO, "cannot open %s: %s", path, strerror(errno));
    struct stat info = {0};
    shd_error_file file = {0};
    size_t count = 0;
    char *text = shd_alloc(READ_BYTES + 1, 1);
    sherd_status status = SHERD_OK;
    if (!text)
        status = shd_fail(SHERD_MEMORY, "no memory for an error file");
    else if (fstat(fd, &info) < 0 || !S_ISREG(info.st_mode))
        status = shd_fail(SHERD_IO, "%s is no file", path);
    else
        status = read_all(fd, text, &count);
    close(fd);
    if (status == SHERD_OK && count > 0) status = parse(text, count, &file);
    shd_free(text);
    if (status != SHERD_OK) return status;
    if (count == 0) {
        *found = false;
        return SHERD_OK;
    }
    file.made_ns = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
    *found = true;
    *out = file;
    return SHERD_OK;
}

void shd_error_file_fini(shd_error_file *file) {
    shd_free(file->message);
    shd_free(file->callstack);
    *file = (shd_error_file){0};
}
