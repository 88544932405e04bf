#include "io/events.h"

#include "io/json_line.h"
#include "io/line_file.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

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

sherd_status shd_event_add(const char *dir, const shd_event *event) {
    char bytes[EVENT_BYTES];
    shd_json_line line = shd_json_line_make(bytes, sizeof bytes);
    format_event(event, &line);
    return shd_line_append(dir, "events.jsonl", bytes, line.length);
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
