/* Cuts what a rank writes into lines, in whatever pieces it comes.
 *
 * A line ends with LF or CR LF; its end is no part of it. CR alone begins the line anew, as progress bars have it: of
 * the states that are written over, one a second is taken, each as a line; the last one counts like any line.
 * A line longer than SHD_LINES_MAX_BYTES is taken in pieces of that size. */
#ifndef SHD_LAUNCH_LINES_H
#define SHD_LAUNCH_LINES_H

#include <stdbool.h>
#include <stddef.h>

enum { SHD_LINES_MAX_BYTES = 1 << 20, SHD_LINES_STATE_MS = 1000 };

/* The line that has not ended yet. All zero at first. */
typedef struct shd_lines {
    char *text;
    size_t count, room;
    bool returned;   /* a CR is the last that came */
    double state_ms; /* when a state that was written over was taken last; 0: never */
} shd_lines;

/* Gets `count` bytes, which are valid during the call. */
typedef void shd_lines_take(void *user, const char *line, size_t count);

/* Adds what came at `now_ms` (> 0), and takes every line that it ends. Where memory is out, a line is cut earlier. */
void shd_lines_feed(shd_lines *lines, const char *bytes, size_t count, double now_ms, shd_lines_take *take, void *user);
/* Nothing more comes: takes the line that has no end, and frees the memory. */
void shd_lines_finish(shd_lines *lines, shd_lines_take *take, void *user);

#endif
