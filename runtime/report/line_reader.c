#include "runtime/report/line_reader.h"

#include "io/file.h"
#include "io/json.h"
#include "runtime/base/arith.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

/* More than any file of this kind needs. */
#define OBJECT_BYTES ((int64_t)64 << 20)

/* What is read at once, unless a line needs more. */
enum { READ_BYTES = 1 << 20 };

/* Where a reading stands. */
typedef struct walk {
    shd_line_take *take;
    void *user;
    shd_line_counts *counts;
    int64_t number; /* of the line */
} walk;

static void count_damaged(walk *at) {
    at->counts->damaged++;
    if (!at->counts->first_damaged) at->counts->first_damaged = at->number;
}

static bool is_blank(const char *text, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i++)
        if (!strchr(" \t\r", text[i]) || !text[i]) return false;
    return true;
}

/* `ended`: a line end follows. */
static sherd_status take_line(walk *at, const char *text, int64_t bytes, bool ended) {
    at->number++;
    if (is_blank(text, bytes)) return SHERD_OK;
    json_t *object;
    sherd_status status = shd_json_parse(text, bytes, &object);
    if (status == SHERD_DATA && !ended) {
        at->counts->torn = true;
        return SHERD_OK;
    }
    if (status == SHERD_OK) {
        status = at->take(at->user, object);
        json_decref(object);
    }
    if (status == SHERD_OK) at->counts->good++;
    if (status == SHERD_DATA) count_damaged(at);
    return status == SHERD_DATA ? SHERD_OK : status;
}

/* Takes the lines of a buffer that are whole; *used is how much of it they are. */
static sherd_status take_lines(walk *at, const char *buffer, int64_t held, bool *skipping, int64_t *used) {
    *used = 0;
    for (const char *end; (end = memchr(buffer + *used, '\n', (size_t)(held - *used))) != NULL;) {
        const char *line = buffer + *used;
        *used = end + 1 - buffer;
        if (*skipping)
            *skipping = false;
        else
            SHD_TRY(take_line(at, line, end - line, true));
    }
    return SHERD_OK;
}

/* What has been read of a line that has not ended yet, and of those behind it. */
typedef struct window {
    char *bytes;
    int64_t room, held;
    bool skipping; /* the rest of a line that is too long */
} window;

/* Makes room for more of a line that fills it all; of a line that is too long nothing is kept. */
static sherd_status widen(window *seen, walk *at) {
    if (seen->room < SHD_LINE_BYTES && !seen->skipping) {
        char *wider = shd_realloc(seen->bytes, (size_t)(2 * seen->room));
        if (!wider) return shd_fail(SHERD_MEMORY, "out of memory for a line of %lld bytes", (long long)seen->room);
        seen->bytes = wider;
        seen->room *= 2;
        return SHERD_OK;
    }
    if (!seen->skipping) {
        at->number++;
        count_damaged(at);
    }
    seen->skipping = true;
    seen->held = 0;
    return SHERD_OK;
}

static sherd_status read_lines(int descriptor, const char *path, int64_t size, window *seen, walk *at) {
    for (int64_t offset = 0; offset < size;) {
        int64_t bytes = shd_min(seen->room - seen->held, size - offset), used;
        SHD_TRY(shd_file_read(descriptor, path, offset, seen->bytes + seen->held, bytes));
        offset += bytes;
        seen->held += bytes;
        SHD_TRY(take_lines(at, seen->bytes, seen->held, &seen->skipping, &used));
        memmove(seen->bytes, seen->bytes + used, (size_t)(seen->held - used));
        seen->held -= used;
        if (seen->held == seen->room) SHD_TRY(widen(seen, at));
    }
    return seen->held > 0 && !seen->skipping ? take_line(at, seen->bytes, seen->held, false) : SHERD_OK;
}

/* Opens what is there: -1 in *descriptor: nothing is. A pipe would be waited for. */
static sherd_status open_file(const char *path, int *descriptor, int64_t *size) {
    struct stat there;
    *descriptor = -1;
    if (stat(path, &there) == 0) {
        if (!S_ISREG(there.st_mode)) return shd_fail(SHERD_IO, "%s is no regular file", path);
        return shd_file_open(path, descriptor, size);
    }
    if (errno == ENOENT || errno == ENOTDIR) return SHERD_OK;
    return shd_fail(SHERD_IO, "cannot look at %s: %s", path, strerror(errno));
}

sherd_status shd_lines_read(const char *path, shd_line_take *take, void *user, shd_line_counts *counts) {
    int descriptor;
    int64_t size;
    walk at = {.take = take, .user = user, .counts = counts};
    *counts = (shd_line_counts){0};
    SHD_TRY(open_file(path, &descriptor, &size));
    if (descriptor < 0) return SHERD_OK;
    counts->there = true;
    window seen = {.bytes = shd_alloc(READ_BYTES, 1), .room = READ_BYTES};
    sherd_status status = seen.bytes ? read_lines(descriptor, path, size, &seen, &at)
                                     : shd_fail(SHERD_MEMORY, "out of memory for the lines of %s", path);
    shd_free(seen.bytes);
    shd_file_close(descriptor);
    return status;
}

sherd_status shd_object_read(const char *path, json_t **out) {
    int descriptor;
    int64_t size;
    *out = NULL;
    SHD_TRY(open_file(path, &descriptor, &size));
    if (descriptor < 0) return SHERD_OK;
    char *text = size <= OBJECT_BYTES ? shd_alloc((size_t)size + 1, 1) : NULL;
    sherd_status status = size > OBJECT_BYTES ? shd_fail(SHERD_DATA, "%lld bytes are too many", (long long)size)
                          : text              ? shd_file_read(descriptor, path, 0, text, size)
                                              : shd_fail(SHERD_MEMORY, "out of memory for %s", path);
    if (status == SHERD_OK) status = shd_json_parse(text, size, out);
    shd_free(text);
    shd_file_close(descriptor);
    return status;
}

bool shd_number_read(const json_t *value, double *out) {
    const char *text = json_string_value(value);
    if (json_is_number(value))
        *out = json_number_value(value);
    else if (json_is_boolean(value))
        *out = json_is_true(value);
    else if (text && !strcmp(text, "nan"))
        *out = (double)NAN;
    else if (text && !strcmp(text, "inf"))
        *out = (double)INFINITY;
    else if (text && !strcmp(text, "-inf"))
        *out = -(double)INFINITY;
    else
        return false;
    return true;
}
