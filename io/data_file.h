/* A file of training data: read with pread, closed and opened again at will, refused once its length changes.
 *
 * Not mapped: a file that is cut short under a mapping kills the process, and what is read is widened into a batch anyway
 * (docs/decisions/0006-token-files.md). */
#ifndef SHD_IO_DATA_FILE_H
#define SHD_IO_DATA_FILE_H

#include <sherd/status.h>
#include <stdint.h>

typedef struct shd_data_file {
    const char *path; /* borrowed */
    const char *what; /* for messages: "token file"; borrowed */
    int descriptor;   /* -1: closed, and opened again by the next read */
    int64_t bytes;
    struct shd_open_files *group; /* of which only so many are open at once; NULL: none */
} shd_data_file;

/* Files of which only `limit` are open at once: one more, and the one that has been open for longest is closed. Belongs
 * to one thread; the files stay where they are for as long as it is used. */
typedef struct shd_open_files {
    shd_data_file **files; /* [limit], the caller's: those that may be open, the oldest at `oldest` once it is full */
    int32_t limit, count, oldest;
} shd_open_files;

/* Opens a regular file. *out is filled in place, its descriptor is -1 after a failure. Fails: DATA. */
sherd_status shd_data_file_open(const char *path, const char *what, shd_open_files *group, shd_data_file *out);
/* Gives the descriptor back; the file can be read as before. */
void shd_data_file_close(shd_data_file *file);
/* Closes those that are open. */
void shd_open_files_close(shd_open_files *group);

/* Reads exactly `bytes` at `offset`. Allocates nothing.
 * Fails: DATA (the file has changed its length, with the byte), IO. Threads: one at a time. */
sherd_status shd_data_file_read(shd_data_file *file, int64_t offset, int64_t bytes, void *out);

/* Continues `hash`, 0 at first, over `head` and `samples` KiB spread over the file, to tell that data has changed.
 * Fails: as reading. */
sherd_status shd_data_file_fingerprint(shd_data_file *file, const int64_t *head, int32_t head_count, int32_t samples,
                                       uint64_t *hash);

#endif
