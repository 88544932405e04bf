/* Error files of ranks, as torchrun has them: TORCHELASTIC_ERROR_FILE names one for each rank, which the rank makes when it
 * fails: {"message": {"message": TEXT, "extraInfo": {"py_callstack": TEXT, "timestamp": "SECONDS"}}}. */
#ifndef SHD_LAUNCH_ERROR_FILE_H
#define SHD_LAUNCH_ERROR_FILE_H

#include <sherd/status.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct shd_error_file {
    char *message;   /* owned */
    char *callstack; /* owned; NULL: there is none */
    int64_t time_s;  /* Unix time the rank wrote; 0: none */
    int64_t made_ns; /* Unix time of the file itself */
} shd_error_file;

/* Writes one, whole or not at all, over what is there. Bytes of `message` that are not UTF-8 are replaced. Fails: MEMORY, IO. */
sherd_status shd_error_file_write(const char *path, const char *message);
/* What a rank left at `path`; *found is false where there is no such file, or an empty one. What is no JSON of this form is a message as it stands.
 * Fails: MEMORY, IO. */
sherd_status shd_error_file_read(const char *path, bool *found, shd_error_file *out);
/* Accepts a zeroed value. */
void shd_error_file_fini(shd_error_file *file);

#endif
