/* One line of strict JSON, built in memory of the caller: for files of lines that other programs read while they grow.
 *
 * Nothing is allocated. A line that does not fit is remembered as `full`, and then holds less than was asked for: sizes
 * are chosen so that it fits, callers with text from outside look. Numbers do not follow the program's locale. */
#ifndef SHD_IO_JSON_LINE_H
#define SHD_IO_JSON_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct shd_json_line {
    char *bytes; /* [capacity], terminated by a zero */
    size_t capacity, length;
    bool full;
} shd_json_line;

/* Empty, in `bytes` [capacity]; capacity > 0. */
shd_json_line shd_json_line_make(char *bytes, size_t capacity);

/* Begin and end an object, '{' and '}', or a list, '[' and ']'. `key`: NULL in a list and for the line's own object. Keys
 * are plain ASCII without quotes. */
void shd_json_line_open(shd_json_line *line, const char *key, char bracket);
void shd_json_line_close(shd_json_line *line, char bracket);
/* Members, in a list with `key` NULL. */
void shd_json_line_integer(shd_json_line *line, const char *key, int64_t value);
void shd_json_line_bool(shd_json_line *line, const char *key, bool value);
/* With `digits` significant digits; what is not finite is the text "nan", "inf" or "-inf". */
void shd_json_line_real(shd_json_line *line, const char *key, double value, int digits);
/* With three digits behind the point, as times have them; finite. */
void shd_json_line_thousandths(shd_json_line *line, const char *key, double value);
/* At most `limit` bytes of `value` are taken; line ends and the like become spaces, what is no UTF-8 or cannot be shown
 * '?'. */
void shd_json_line_text(shd_json_line *line, const char *key, const char *value, size_t limit);
/* The end of the line. */
void shd_json_line_end(shd_json_line *line);

#endif
