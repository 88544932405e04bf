/* The file of one stream of a rank: exactly the bytes that the rank wrote, added to what is there.
 *
 * A disk that is full costs the bytes that come meanwhile, and nothing else: it is told once, writing goes on when
 * there is room again, and a line in the file says how much is missing. */
#ifndef SHD_LAUNCH_LOG_FILE_H
#define SHD_LAUNCH_LOG_FILE_H

#include <sherd/status.h>
#include <stddef.h>
#include <stdint.h>

typedef struct shd_log_file {
    int fd;          /* -1: there is none */
    char *path;      /* of one that the full disk had no room for, to be tried again; NULL: there is no such */
    int cause;       /* errno of the first write that failed; 0: none did */
    int64_t missing; /* bytes since the last that were written */
} shd_log_file;

/* Opens FOLDER/RANK/NAME, making folders as needed. Where the disk is full file->cause says so, and writing tries
 * again. Fails: IO. */
sherd_status shd_log_file_open(shd_log_file *file, const char *folder, int32_t rank, const char *name);
void shd_log_file_close(shd_log_file *file);
void shd_log_file_write(shd_log_file *file, const char *bytes, size_t count);

/* Makes a folder and those above it. Fails: IO, naming it; *cause is errno, or 0. */
sherd_status shd_log_folder_make(const char *path, int *cause);

#endif
