/* Lines of ranks, made safe for the terminal they share.
 *
 * Characters and colours pass; whatever else could change the terminal does not: the sequences that move its cursor, erase, set its title,
 * its character set or its modes are left out, unfinished ones too, other control characters are shown as ^X, and what
 * is not UTF-8 as U+FFFD. A colour ends with its line and is taken up again in the next line of the same stream. */
#ifndef SHD_LAUNCH_SCREEN_H
#define SHD_LAUNCH_SCREEN_H

#include <stddef.h>

enum { SHD_SCREEN_COLOUR_BYTES = 96 };

/* The colour (and bold, underline, …) that a stream has set and not reset: the sequences themselves. All zero at
 * first. */
typedef struct shd_screen {
    char colour[SHD_SCREEN_COLOUR_BYTES];
    size_t colour_count;
} shd_screen;

/* The bytes that a line of `count` bytes can become, at most. */
size_t shd_screen_room(size_t count);
/* Writes the line as it may be shown, without an end, to `out`, which has room for shd_screen_room(count) bytes.
 * Returns the bytes written. */
size_t shd_screen_line(shd_screen *screen, const char *line, size_t count, char *out);
/* The same for text that is read elsewhere: without colours. */
size_t shd_screen_plain(const char *line, size_t count, char *out);

#endif
