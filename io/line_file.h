/* Files of lines that anybody may add to at any time: each line is one write at the file's end, after which the file is
 * closed again. A line that a full disk, or a death, has torn stays alone on its line. */
#ifndef SHD_IO_LINE_FILE_H
#define SHD_IO_LINE_FILE_H

#include <sherd/status.h>
#include <stddef.h>

/* Appends a line, which ends with '\n', to `dir`/`name`, making the folder and the file. Allocates nothing. Threads: any.
 * Fails: IO, ARGUMENT (a path too long). */
sherd_status shd_line_append(const char *dir, const char *name, const char *text, size_t bytes);

#endif
