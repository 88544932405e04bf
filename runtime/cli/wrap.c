#include "runtime/cli/wrap.h"

#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LINE_BYTES = 8192, INDENT = 7, NARROW_INDENT = 2, NARROW_COLUMNS = 60 };

int shd_terminal_columns(FILE *out) {
    struct winsize size;
    bool told = isatty(fileno(out)) == 1 && ioctl(fileno(out), TIOCGWINSZ, &size) == 0;
    return told ? size.ws_col : 0;
}

/* Characters of UTF-8 text: bytes that begin one. */
static int count_characters(const char *text, size_t bytes) {
    int count = 0;
    for (size_t i = 0; i < bytes; i++) count += (text[i] & 0xc0) != 0x80;
    return count;
}

static void add(char *out, size_t bytes, size_t *used, const char *text, size_t length) {
    if (*used + 1 >= bytes) return;
    if (length > bytes - 1 - *used) length = bytes - 1 - *used;
    memcpy(out + *used, text, length);
    *used += length;
    out[*used] = 0;
}

void shd_wrap_line(const char *line, int columns, char *out, size_t bytes) {
    static const char blanks[] = "\n       ";
    size_t used = 0, indent = columns < NARROW_COLUMNS ? NARROW_INDENT : INDENT;
    int at = 0; /* characters in the row */
    if (bytes > 0) out[0] = 0;
    if (columns <= 0) {
        add(out, bytes, &used, line, strlen(line));
        return;
    }
    while (*line) {
        /* A word with the blanks before it, which a new row does without. */
        size_t gap = strspn(line, " "), word = strcspn(line + gap, " \n");
        int width = count_characters(line, gap + word);
        if (at > 0 && at + width > columns && word > 0) {
            add(out, bytes, &used, blanks, 1 + indent);
            add(out, bytes, &used, line + gap, word);
            at = (int)indent + width - (int)gap;
        } else {
            add(out, bytes, &used, line, gap + word);
            at += width;
        }
        line += gap + word;
        if (*line != '\n') continue;
        add(out, bytes, &used, line++, 1);
        at = 0;
    }
}

void shd_print_line(FILE *out, const char *line) {
    char text[LINE_BYTES];
    int columns = shd_terminal_columns(out);
    if (columns > 0) shd_wrap_line(line, columns, text, sizeof text);
    fprintf(out, "%s\n", columns > 0 ? text : line);
}
