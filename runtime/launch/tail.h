/* The last lines that a rank has written, of both its streams in the order in which they came. */
#ifndef SHD_LAUNCH_TAIL_H
#define SHD_LAUNCH_TAIL_H

#include <stddef.h>

enum { SHD_TAIL_LINES = 30, SHD_TAIL_LINE_BYTES = 400 };

/* All zero at first. */
typedef struct shd_tail {
    int next, count;
    size_t bytes[SHD_TAIL_LINES];
    char lines[SHD_TAIL_LINES][SHD_TAIL_LINE_BYTES]; /* as written, cut where they are longer */
} shd_tail;

void shd_tail_add(shd_tail *tail, const char *line, size_t count);
/* The last lines, at most `lines`, as plain text that can be shown and is UTF-8, each with an LF, in memory of the
 * caller's (shd_free); NULL: there are none, or no memory. Accepts NULL. */
char *shd_tail_text(const shd_tail *tail, int lines);

#endif
