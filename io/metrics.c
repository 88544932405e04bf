#include "io/metrics.h"

#include "io/file.h"
#include "io/folder.h"
#include "runtime/base/arith.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEPT_ROWS = 4 };

struct shd_metrics {
    char path[PATH_MAX];
    int file;
    int64_t length_bytes;                         /* up to the end of the last whole row */
    char kept[KEPT_ROWS * SHD_METRICS_ROW_BYTES]; /* rows that could not be written */
    size_t kept_bytes;
    int64_t last_step; /* of the last row */
    shd_metrics_counts counted;
};

/* --- opening: what an earlier run left ---------------------------------------------------------------------------- */

/* True when `line` is a row of a step before `first_step`; then *counted is what it says. */
static bool is_earlier_row(const char *line, size_t length, int64_t first_step, shd_metrics_counts *counted) {
    /* jansson skips a zero byte behind a number, which no other reader does. */
    json_t *row = memchr(line, 0, length) ? NULL : json_loadb(line, length, JSON_REJECT_DUPLICATES, NULL);
    const json_t *step = json_object_get(row, "step");
    bool earlier = json_is_integer(step) && json_integer_value(step) < first_step;
    if (earlier)
        *counted = (shd_metrics_counts){.skipped_steps = json_integer_value(json_object_get(row, "skipped_steps")),
                                        .nonfinite_steps = json_integer_value(json_object_get(row, "nonfinite_steps"))};
    json_decref(row);
    return earlier;
}

/* Where the rows to keep end, where the last whole line ends, and what the last of the rows to keep says. */
static sherd_status scan(const char *path, int64_t first_step, int64_t *keep_bytes, int64_t *whole_bytes,
                         shd_metrics_counts *counted) {
    FILE *file = fopen(path, "re");
    if (!file) return shd_fail(SHERD_IO, "%s: cannot read: %s", path, strerror(errno));
    char line[SHD_METRICS_ROW_BYTES];
    bool keeping = true, line_start = true;
    *keep_bytes = *whole_bytes = 0;
    for (int64_t before = 0, at; fgets(line, sizeof line, file); before = at) {
        at = ftello(file);
        /* Not strlen: a file system may leave zeros where a row was when the power went. */
        size_t length = (size_t)(at - before);
        bool line_end = line[length - 1] == '\n';
        /* A line longer than the buffer is no row. */
        keeping = keeping && line_start && line_end && is_earlier_row(line, length, first_step, counted);
        if (keeping) *keep_bytes = at;
        if (line_end) *whole_bytes = at;
        line_start = line_end;
    }
    bool failed = ferror(file) != 0;
    fclose(file);
    return failed ? shd_fail(SHERD_IO, "%s: cannot read: %s", path, strerror(errno)) : SHERD_OK;
}

/* Makes the first free `path.N`. */
static sherd_status create_aside(const char *path, char aside[PATH_MAX + 16], int *out) {
    for (int number = 1; number < INT_MAX; number++) {
        snprintf(aside, PATH_MAX + 16, "%s.%d", path, number);
        *out = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (*out >= 0) return SHERD_OK;
        if (errno != EEXIST) break;
    }
    return shd_fail(SHERD_IO, "%s: cannot create: %s", aside, strerror(errno));
}

/* Copies bytes [first, end) of the rows to the file `aside`. */
static sherd_status copy_range(const shd_metrics *metrics, int64_t first, int64_t end, int to, const char *aside) {
    char block[1 << 14];
    for (int64_t at = first; at < end; at += (int64_t)sizeof block) {
        int64_t bytes = shd_min(end - at, (int64_t)sizeof block);
        SHD_TRY(shd_file_read(metrics->file, metrics->path, at, block, bytes));
        SHD_TRY(shd_file_write(to, aside, block, bytes));
    }
    return shd_file_sync(to, aside);
}

/* Moves the rows behind `keep_bytes` aside, and cuts the file there. */
static sherd_status cut(shd_metrics *metrics, int64_t keep_bytes, int64_t whole_bytes) {
    if (whole_bytes > keep_bytes) {
        char aside[PATH_MAX + 16];
        int file;
        SHD_TRY(create_aside(metrics->path, aside, &file));
        sherd_status status = copy_range(metrics, keep_bytes, whole_bytes, file, aside);
        close(file);
        SHD_TRY(status);
    }
    if (ftruncate(metrics->file, keep_bytes) != 0)
        return shd_fail(SHERD_IO, "%s: cannot cut to %lld bytes: %s", metrics->path, (long long)keep_bytes,
                        strerror(errno));
    metrics->length_bytes = keep_bytes;
    return SHERD_OK;
}

/* Cuts what an earlier run left to the rows before `first_step`. */
static sherd_status trim(shd_metrics *metrics, int64_t first_step) {
    int64_t keep_bytes = 0, whole_bytes = 0;
    SHD_TRY(scan(metrics->path, first_step, &keep_bytes, &whole_bytes, &metrics->counted));
    return cut(metrics, keep_bytes, whole_bytes);
}

static sherd_status open_file(shd_metrics *metrics, const char *dir, int64_t first_step) {
    SHD_TRY(shd_folder_make(dir));
    int bytes = snprintf(metrics->path, sizeof metrics->path, "%s/metrics.jsonl", dir);
    if (bytes < 0 || bytes >= (int)sizeof metrics->path) return shd_fail(SHERD_IO, "%s: the path is too long", dir);
    metrics->file = open(metrics->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (metrics->file < 0) return shd_fail(SHERD_IO, "%s: cannot open: %s", metrics->path, strerror(errno));
    struct stat about;
    if (fstat(metrics->file, &about) != 0 || !S_ISREG(about.st_mode))
        return shd_fail(SHERD_IO, "%s: not a regular file", metrics->path);
    return trim(metrics, first_step);
}

sherd_status shd_metrics_open(const char *dir, int64_t first_step, shd_metrics **out) {
    shd_metrics *metrics = shd_alloc(1, sizeof *metrics);
    if (!metrics) return shd_fail(SHERD_MEMORY, "%s: out of memory", dir);
    metrics->file = -1;
    sherd_status status = open_file(metrics, dir, first_step);
    if (status != SHERD_OK) {
        shd_metrics_close(metrics);
        return status;
    }
    *out = metrics;
    return SHERD_OK;
}

shd_metrics_counts shd_metrics_counted(const shd_metrics *metrics) { return metrics->counted; }

void shd_metrics_close(shd_metrics *metrics) {
    if (!metrics) return;
    if (metrics->file >= 0) close(metrics->file);
    shd_free(metrics);
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* Appends, with one system call, or not at all. */
static sherd_status append(shd_metrics *metrics, const char *text, size_t bytes, const char *what, int64_t step) {
    ssize_t put;
    do put = write(metrics->file, text, bytes);
    while (put < 0 && errno == EINTR);
    if (put == (ssize_t)bytes) {
        metrics->length_bytes += put;
        return SHERD_OK;
    }
    int error = put < 0 ? errno : ENOSPC;
    if (ftruncate(metrics->file, metrics->length_bytes) != 0) error = errno;
    return shd_fail(SHERD_IO, "%s: cannot append the row of step %lld%s: %s", metrics->path, (long long)step, what,
                    strerror(error));
}

sherd_status shd_metrics_flush(shd_metrics *metrics) {
    if (metrics->kept_bytes == 0) return SHERD_OK;
    SHD_TRY(append(metrics, metrics->kept, metrics->kept_bytes, " or before", metrics->last_step));
    metrics->kept_bytes = 0;
    return SHERD_OK;
}

sherd_status shd_metrics_write(shd_metrics *metrics, const shd_metrics_row *row) {
    char bytes[SHD_METRICS_ROW_BYTES];
    shd_json_line text = shd_json_line_make(bytes, sizeof bytes);
    shd_metrics_format(row, &text);
    metrics->last_step = row->step;
    sherd_status status = shd_metrics_flush(metrics);
    if (status == SHERD_OK) status = append(metrics, text.bytes, text.length, "", row->step);
    if (status != SHERD_OK && metrics->kept_bytes + text.length <= sizeof metrics->kept) {
        memcpy(metrics->kept + metrics->kept_bytes, text.bytes, text.length);
        metrics->kept_bytes += text.length;
    }
    return status;
}

/* --- taking back -------------------------------------------------------------------------------------------------- */

/* Where the last row that ends at `end` begins; a line that is too long for a row is taken apart. `out` is the row. */
static sherd_status read_last_row(const shd_metrics *metrics, int64_t end, char out[SHD_METRICS_ROW_BYTES],
                                  int64_t *first) {
    int64_t bytes = shd_min(end, SHD_METRICS_ROW_BYTES);
    SHD_TRY(shd_file_read(metrics->file, metrics->path, end - bytes, out, bytes));
    const char *before = memrchr(out, '\n', (size_t)bytes - 1);
    int64_t skipped = before ? before + 1 - out : 0;
    memmove(out, out + skipped, (size_t)(bytes - skipped));
    *first = end - bytes + skipped;
    return SHERD_OK;
}

/* Takes the rows from `first_step` on off the end. */
static sherd_status cut_last_rows(shd_metrics *metrics, int64_t first_step) {
    char row[SHD_METRICS_ROW_BYTES];
    int64_t end = metrics->length_bytes;
    for (int64_t first; end > 0; end = first) {
        SHD_TRY(read_last_row(metrics, end, row, &first));
        if (is_earlier_row(row, (size_t)(end - first), first_step, &metrics->counted)) break;
    }
    return cut(metrics, end, metrics->length_bytes);
}

sherd_status shd_metrics_go_back(shd_metrics *metrics, int64_t first_step) {
    struct stat about;
    if (fstat(metrics->file, &about) != 0)
        return shd_fail(SHERD_IO, "%s: cannot read: %s", metrics->path, strerror(errno));
    metrics->kept_bytes = 0;
    metrics->counted = (shd_metrics_counts){0};
    /* Somebody has cut the file meanwhile, as logrotate's copytruncate does, or written to it. */
    if (about.st_size != metrics->length_bytes) return trim(metrics, first_step);
    return cut_last_rows(metrics, first_step);
}
