#include "io/json_line.h"

#include "runtime/base/utf8.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

shd_json_line shd_json_line_make(char *bytes, size_t capacity) {
    bytes[0] = 0;
    return (shd_json_line){.bytes = bytes, .capacity = capacity};
}

static void __attribute__((format(printf, 2, 3))) add(shd_json_line *line, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(line->bytes + line->length, line->capacity - line->length, format, arguments);
    va_end(arguments);
    if (bytes < 0 || (size_t)bytes >= line->capacity - line->length) {
        line->full = true;
        line->bytes[line->length] = 0;
        return;
    }
    line->length += (size_t)bytes;
}

/* The comma before a member, and its key. */
static void begin(shd_json_line *line, const char *key) {
    char before = line->length ? line->bytes[line->length - 1] : '{';
    if (before != '{' && before != '[') add(line, ",");
    if (key) add(line, "\"%s\":", key);
}

void shd_json_line_open(shd_json_line *line, const char *key, char bracket) {
    begin(line, key);
    add(line, "%c", bracket);
}

void shd_json_line_close(shd_json_line *line, char bracket) { add(line, "%c", bracket); }

void shd_json_line_integer(shd_json_line *line, const char *key, int64_t value) {
    begin(line, key);
    add(line, "%lld", (long long)value);
}

void shd_json_line_bool(shd_json_line *line, const char *key, bool value) {
    begin(line, key);
    add(line, "%s", value ? "true" : "false");
}

static void add_number(shd_json_line *line, const char *key, const char *format, int digits, double value) {
    char number[400];
    snprintf(number, sizeof number, format, digits, value);
    char *comma = strchr(number, ',');
    if (comma) *comma = '.';
    begin(line, key);
    add(line, "%s", number);
}

void shd_json_line_real(shd_json_line *line, const char *key, double value, int digits) {
    if (isfinite(value))
        add_number(line, key, "%.*g", digits, value);
    else
        shd_json_line_text(line, key, isnan(value) ? "nan" : value > 0 ? "inf" : "-inf", 4);
}

void shd_json_line_thousandths(shd_json_line *line, const char *key, double value) {
    add_number(line, key, "%.*f", 3, value);
}

void shd_json_line_text(shd_json_line *line, const char *key, const char *value, size_t limit) {
    size_t length = strnlen(value, limit);
    begin(line, key);
    add(line, "\"");
    for (size_t at = 0; at < length;) {
        uint32_t code;
        int bytes = shd_utf8_read(value + at, length - at, &code);
        if (bytes == 1 && code < ' ')
            add(line, " ");
        else if (bytes == 0 || !shd_utf8_shows(code))
            add(line, "?");
        else if (code == '"' || code == '\\')
            add(line, "\\%c", (char)code);
        else
            add(line, "%.*s", bytes, value + at);
        at += bytes ? (size_t)bytes : 1;
    }
    add(line, "\"");
}

void shd_json_line_end(shd_json_line *line) { add(line, "\n"); }
