/* Control sequences as in ECMA-48: CSI is ESC [, parameters 0x30-0x3F, intermediates 0x20-0x2F, a final byte. */
#include "runtime/launch/screen.h"

#include "runtime/base/utf8.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static const char reset[] = "\033[0m", replacement[] = "\xEF\xBF\xBD";
enum { RESET_BYTES = sizeof reset - 1, REPLACEMENT_BYTES = sizeof replacement - 1, ESCAPE = 0x1b, BELL = 7 };

size_t shd_screen_room(size_t count) { return REPLACEMENT_BYTES * count + SHD_SCREEN_COLOUR_BYTES + RESET_BYTES; }

/* The first of the bytes from `at` that is not in [low, high]. */
static size_t skip(const char *line, size_t count, size_t at, char low, char high) {
    while (at < count && line[at] >= low && line[at] <= high) at++;
    return at;
}

/* The end of a control string (OSC, DCS, …), whose introducer ends at `at`. Where it has none in this line, only the introducer goes: text
 * that a rank has written is not lost. */
static size_t skip_string(const char *line, size_t count, size_t at) {
    for (size_t end = at; end < count; end++) {
        if (line[end] == BELL) return end + 1;
        if (line[end] == ESCAPE && end + 1 < count && line[end + 1] == '\\') return end + 2;
    }
    return at;
}

/* The end of the sequence at `at`, which is ESC; *colours: it sets a colour and nothing else. */
static size_t skip_sequence(const char *line, size_t count, size_t at, bool *colours) {
    *colours = false;
    size_t next = at + 1;
    if (next == count) return next;
    if (line[next] == '[') {
        size_t first = next + 1, last = skip(line, count, first, 0x30, 0x3f);
        size_t final = skip(line, count, last, 0x20, 0x2f);
        bool whole = final < count && line[final] >= 0x40 && line[final] <= 0x7e;
        *colours = whole && final == last && line[final] == 'm' && skip(line, count, first, '0', ';') == last;
        return whole ? final + 1 : final;
    }
    if (line[next] && strchr("]PX^_", line[next])) return skip_string(line, count, next + 1);
    size_t final = skip(line, count, next, 0x20, 0x2f);
    return final < count && line[final] >= 0x30 && line[final] <= 0x7e ? final + 1 : final;
}

/* Keeps a colour for the lines that follow; "0" among the parameters ends what was before. */
static void keep_colour(shd_screen *screen, const char *sequence, size_t bytes) {
    const char *first = sequence + 2, *last = sequence + bytes - 1;
    bool resets = first == last || *first == ';' || (*first == '0' && (first + 1 == last || first[1] == ';'));
    if (resets || screen->colour_count + bytes > SHD_SCREEN_COLOUR_BYTES) screen->colour_count = 0;
    if (bytes > SHD_SCREEN_COLOUR_BYTES || (resets && last - first <= 1)) return;
    memcpy(screen->colour + screen->colour_count, sequence, bytes);
    screen->colour_count += bytes;
}

static size_t put(char *out, const char *bytes, size_t count) {
    memcpy(out, bytes, count);
    return count;
}

/* One character at line[*at]. */
static size_t put_character(const char *line, size_t count, size_t *at, char *out) {
    unsigned char byte = (unsigned char)line[*at];
    uint32_t code;
    if (byte == '\t' || (byte >= 0x20 && byte < 0x7f)) return put(out, line + (*at)++, 1);
    if (byte < 0x20 || byte == 0x7f) {
        (*at)++;
        out[0] = '^';
        out[1] = (char)(byte ^ 0x40);
        return 2;
    }
    int bytes = shd_utf8_read(line + *at, count - *at, &code);
    size_t from = *at;
    *at += bytes > 0 ? (size_t)bytes : 1;
    if (bytes == 0 || !shd_utf8_shows(code)) return put(out, replacement, REPLACEMENT_BYTES);
    return put(out, line + from, (size_t)bytes);
}

size_t shd_screen_line(shd_screen *screen, const char *line, size_t count, char *out) {
    size_t used = put(out, screen->colour, screen->colour_count);
    bool coloured = used > 0;
    for (size_t at = 0; at < count;) {
        if (line[at] != ESCAPE) {
            used += put_character(line, count, &at, out + used);
            continue;
        }
        bool colours;
        size_t end = skip_sequence(line, count, at, &colours);
        if (colours) {
            used += put(out + used, line + at, end - at);
            keep_colour(screen, line + at, end - at);
            coloured = true;
        }
        at = end;
    }
    if (coloured) used += put(out + used, reset, RESET_BYTES);
    return used;
}

size_t shd_screen_plain(const char *line, size_t count, char *out) {
    size_t used = 0;
    for (size_t at = 0; at < count;) {
        bool colours;
        if (line[at] == ESCAPE)
            at = skip_sequence(line, count, at, &colours);
        else
            used += put_character(line, count, &at, out + used);
    }
    return used;
}
