/* Files with one JSON object a line, which a running job may be writing, and a crash may have damaged: every line that
 * is whole is given, the others are counted. */
#ifndef SHD_REPORT_LINE_READER_H
#define SHD_REPORT_LINE_READER_H

#include <jansson.h>
#include <sherd/status.h>
#include <stdbool.h>
#include <stdint.h>

/* Longer lines are damaged; an alert has some 200 bytes for each sequence of a global batch. */
enum { SHD_LINE_BYTES = 16 << 20 };

typedef struct shd_line_counts {
    bool there; /* the file */
    int64_t good, damaged;
    int64_t first_damaged; /* its number, from 1; 0: there is none */
    bool torn;             /* the last line has no end, and is no object: it is being written, or the writer was killed;
                            * not counted as damaged */
} shd_line_counts;

/* Takes an object, which is borrowed. DATA: the line counts as damaged; any other failure ends the reading. */
typedef sherd_status shd_line_take(void *user, const json_t *object);

/* Reads the lines that the file has now; empty ones are passed over. No file is no failure: then counts->there is false.
 * Fails: IO, MEMORY, and as `take` does. */
sherd_status shd_lines_read(const char *path, shd_line_take *take, void *user, shd_line_counts *counts);

/* One JSON object that is a whole file; *out is NULL where there is no file. Owns: json_decref(*out).
 * Fails: DATA (why, without the path), IO, MEMORY. */
sherd_status shd_object_read(const char *path, json_t **out);

/* A number as metrics.jsonl has it, true and false as 1 and 0; false: it is none. */
bool shd_number_read(const json_t *value, double *out);

#endif
