#include "runtime/report/markup.h"

#include "runtime/base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char replacement[] = "\xef\xbf\xbd";

static void add_character(shd_text *out, const char *at, int bytes) {
    switch (*at) {
    case '&': shd_text_add(out, "&amp;"); break;
    case '<': shd_text_add(out, "&lt;"); break;
    case '>': shd_text_add(out, "&gt;"); break;
    case '"': shd_text_add(out, "&quot;"); break;
    case '\'': shd_text_add(out, "&#39;"); break;
    default: shd_text_add(out, "%.*s", bytes, at);
    }
}

/* The bytes of what stands at `at` and can be shown; 0: something else does, and takes one byte or, in *skip, more. */
static int showable(const char *at, size_t left, int *skip) {
    uint32_t code;
    int bytes = shd_utf8_read(at, left, &code);
    *skip = bytes ? bytes : 1;
    return bytes && (shd_utf8_shows(code) || code == '\n' || code == '\t') ? bytes : 0;
}

void shd_markup_head(shd_text *out, const char *text, size_t bytes) {
    size_t length = strnlen(text, bytes + 1), left = length > bytes ? bytes : length;
    for (int skip; left > 0; text += skip, left -= (size_t)skip) {
        /* A character that the cut goes through is left out as a whole. */
        int shown = showable(text, length > bytes ? strlen(text) : left, &skip);
        if ((size_t)skip > left) break;
        if (shown)
            add_character(out, text, shown);
        else
            shd_text_add(out, "%s", replacement);
    }
    if (length > bytes) shd_text_add(out, "…");
}

void shd_markup_text(shd_text *out, const char *text) { shd_markup_head(out, text, strlen(text)); }

void shd_markup_json(shd_text *out, const char *text) {
    shd_text_add(out, "\"");
    for (int skip; *text; text += skip) {
        int shown = showable(text, strlen(text), &skip);
        if (!shown)
            shd_text_add(out, "\\ufffd");
        else if (shown > 1)
            shd_text_add(out, "%.*s", shown, text);
        else if (strchr("\"\\<>&'\n\t", *text))
            shd_text_add(out, "\\u%04x", (unsigned)*text);
        else
            shd_text_add(out, "%c", *text);
    }
    shd_text_add(out, "\"");
}

/* "1.500e+03" as "1.5e3"; a decimal comma of the program's locale becomes a point. */
static void shorten(char *text) {
    char *comma = strchr(text, ','), *exponent = strchr(text, 'e');
    if (comma) *comma = '.';
    if (!exponent) return;
    char tail[16];
    snprintf(tail, sizeof tail, "%s", exponent + 1);
    const char *digits = tail + (*tail == '+' || *tail == '-');
    while (*digits == '0' && digits[1]) digits++;
    sprintf(exponent, "e%s%s", *tail == '-' ? "-" : "", digits);
}

void shd_number_text(double value, char out[SHD_NUMBER_BYTES]) {
    static const char *const units[] = {"", "k", "M", "G", "T", "P"};
    int unit = 0;
    if (!isfinite(value)) {
        snprintf(out, SHD_NUMBER_BYTES, "%s", isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
        return;
    }
    if (fabs(value) >= 9999.5 && fabs(value) < 9.9e17)
        for (; fabs(value) >= 999.5 && unit < 5; unit++) value /= 1000;
    snprintf(out, SHD_NUMBER_BYTES - 2, unit ? "%.3g" : "%.4g", value);
    shorten(out);
    strcat(out, units[unit]);
}

void shd_count_text(int64_t value, char out[SHD_NUMBER_BYTES]) {
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRId64, value), used = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && digits[i - 1] != '-' && (length - i) % 3 == 0) out[used++] = ',';
        out[used++] = digits[i];
    }
    out[used] = 0;
}

void shd_span_text(double seconds, char out[SHD_NUMBER_BYTES]) {
    int64_t whole = seconds > 0 ? (int64_t)fmin(seconds + 0.5, 1e12) : 0;
    int days = (int)(whole / 86400), hours = (int)(whole / 3600 % 24), minutes = (int)(whole / 60 % 60);
    int rest = (int)(whole % 60);
    if (days)
        snprintf(out, SHD_NUMBER_BYTES, "%d d %d:%02d:%02d", days, hours, minutes, rest);
    else if (hours)
        snprintf(out, SHD_NUMBER_BYTES, "%d:%02d:%02d", hours, minutes, rest);
    else
        snprintf(out, SHD_NUMBER_BYTES, "%d:%02d", minutes, rest);
}

void shd_size_text(double bytes, char out[SHD_NUMBER_BYTES]) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    int unit = 0;
    for (; bytes >= 1000 && unit < 5; unit++) bytes /= 1024;
    snprintf(out, SHD_NUMBER_BYTES, unit == 0 || bytes >= 99.95 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    shorten(out);
}

void shd_moment_text(double seconds, char out[SHD_NUMBER_BYTES]) {
    out[0] = 0;
    if (!(seconds > 0 && seconds < 1e11)) return;
    const time_t at = (time_t)seconds;
    struct tm utc;
    if (gmtime_r(&at, &utc)) strftime(out, SHD_NUMBER_BYTES, "%Y-%m-%d %H:%M:%S UTC", &utc);
}

void shd_markup_exact(shd_text *out, double value) {
    char text[SHD_NUMBER_BYTES];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    shorten(text);
    shd_text_add(out, "%s", text);
}

void shd_markup_number(shd_text *out, double value, int digits) {
    char text[SHD_NUMBER_BYTES];
    snprintf(text, sizeof text, "%.*g", digits, value);
    shorten(text);
    shd_text_add(out, "%s", !strcmp(text, "-0") ? "0" : text);
}
