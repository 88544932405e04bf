/* How far long work has come, on standard error where that is a terminal: "reading  43 %  1.2 GiB of 2.8 GiB …". */
#ifndef SHD_CLI_ADVANCE_LINE_H
#define SHD_CLI_ADVANCE_LINE_H

#include "io/advance.h"

#include <stdbool.h>

/* Lives in the caller's memory, at one address; give `advance` to who works. */
typedef struct shd_advance_line {
    shd_advance advance;
    const char *verb; /* "reading" */
    bool shows, drawn;
    double start_ms, drawn_ms;
} shd_advance_line;

void shd_advance_line_init(shd_advance_line *line, const char *verb);
/* Takes the line away. */
void shd_advance_line_end(shd_advance_line *line);

/* From now on INT, TERM and HUP end the work instead of the process, so that it takes away what it has begun; once a
 * process. For what writes. */
void shd_advance_line_hold_signals(void);
/* The exit code of the work that ended in `status`, after saying what went wrong, if something did; 128 + N when signal
 * N has ended it. */
int shd_advance_line_exit_code(sherd_status status);

#endif
