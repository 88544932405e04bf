#include "io/events.h"

#include "io/file.h"
#include "io/folder.h"
#include "io/json_line.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Every character of a text may need a second one. */
enum { EVENT_BYTES = 2 * SHD_EVENT_TEXT_BYTES + 200 };

const char *shd_event_word(shd_event_kind kind) {
#define WORD(enumerator, word) [enumerator] = word,
    static const char *const words[] = {SHD_EVENT_KINDS(WORD)};
#undef WORD
    return words[kind];
}

static double unix_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void format_event(const shd_event *event, shd_json_line *line) {
    shd_json_line_open(line, NULL, '{');
    shd_json_line_thousandths(line, "time", unix_seconds());
    shd_json_line_text(line, "event", shd_event_word(event->kind), SHD_EVENT_TEXT_BYTES);
    if (event->step >= 0) shd_json_line_integer(line, "step", event->step);
    if (event->rank >= 0) shd_json_line_integer(line, "rank", event->rank);
    if (event->text) shd_json_line_text(line, "text", event->text, SHD_EVENT_TEXT_BYTES);
    shd_json_line_close(line, '}');
    shd_json_line_end(line);
}

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
    ssize_t put;
    do put = write(file, text, bytes);
    while (put < 0 && errno == EINTR);
    if (put == (ssize_t)bytes) return SHERD_OK;
    return shd_fail(SHERD_IO, "%s: cannot append an event: %s", path, strerror(put < 0 ? errno : ENOSPC));
}

sherd_status shd_event_add(const char *dir, const shd_event *event) {
    char path[SHD_PATH_BYTES], bytes[1 + EVENT_BYTES] = "\n";
    SHD_TRY(shd_path_make(path, "%s/events.jsonl", dir));
    SHD_TRY(shd_folder_make(dir));
    shd_json_line line = shd_json_line_make(bytes + 1, EVENT_BYTES);
    format_event(event, &line);
    int file = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0) return shd_fail(SHERD_IO, "%s: cannot open: %s", path, strerror(errno));
    int torn = is_torn(file);
    sherd_status status = append(path, file, bytes + !torn, line.length + (size_t)torn);
    close(file);
    return status;
}

void shd_event_tell(const char *dir, shd_event_kind kind, int64_t step, int32_t rank, const char *format, ...) {
    char text[SHD_EVENT_TEXT_BYTES], cause[SHD_EVENT_TEXT_BYTES];
    va_list arguments;
    if (!dir) return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(cause, sizeof cause, "%s", sherd_last_error());
    const shd_event event = {.kind = kind, .step = step, .rank = rank, .text = text};
    sherd_status status = shd_event_add(dir, &event);
    if (status == SHERD_OK) return;
    shd_log(SHERD_LOG_DEBUG, "%s", sherd_last_error());
    shd_fail(status, "%s", cause);
}
