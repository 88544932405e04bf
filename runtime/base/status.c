#include "runtime/base/status.h"

#include "runtime/base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { CAUSE_BYTES = 2048 };

/* Per thread, so that ranks which are threads of one process keep their causes apart. */
static _Thread_local char last_cause[CAUSE_BYTES];

const char *sherd_status_text(sherd_status status) {
    switch (status) {
#define TEXT_CASE(name, value, text)                                                                                   \
    case SHERD_##name: return text;
        SHERD_STATUS_MAP(TEXT_CASE)
#undef TEXT_CASE
    }
    return "unknown status";
}

bool sherd_status_is_fatal(sherd_status status) { return status >= SHERD_COMM; }

const char *sherd_last_error(void) { return last_cause; }

/* Causes quote files that nobody vouches for, cut at a number of bytes: what would move a terminal's cursor, or is half
 * a character, becomes a question mark. */
static void make_shown(char *text) {
    char *to = text;
    uint32_t code;
    for (size_t left = strlen(text); left > 0;) {
        int count = shd_utf8_read(text, left, &code);
        bool shown = count > 0 && shd_utf8_shows(code);
        if (count == 0) count = 1;
        if (shown)
            memmove(to, text, (size_t)count);
        else
            *to = '?';
        to += shown ? count : 1;
        text += count;
        left -= (size_t)count;
    }
    *to = 0;
}

sherd_status shd_fail(sherd_status status, const char *format, ...) {
    /* Arguments may point into the old cause: format beside it, then copy. */
    char cause[CAUSE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(cause, sizeof cause, format, arguments);
    va_end(arguments);
    make_shown(cause);
    memcpy(last_cause, cause, sizeof cause);
    return status;
}

sherd_status shd_fail_within(sherd_status status, const char *format, ...) {
    char context[CAUSE_BYTES / 2], cause[CAUSE_BYTES / 2];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(context, sizeof context, format, arguments);
    va_end(arguments);
    memcpy(cause, last_cause, sizeof cause);
    cause[sizeof cause - 1] = 0;
    snprintf(last_cause, sizeof last_cause, "%s: %s", context, cause);
    make_shown(last_cause);
    return status;
}
