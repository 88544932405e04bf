/* Files, with every failure told once: what was tried, the path, the system's words.
 *
 * A write that a limit of file sizes stops (RLIMIT_FSIZE) fails like one on a full disk; SIGXFSZ never comes of it. A
 * descriptor opened past the page cache goes through it from the first call on that the file system refuses (EINVAL). */
#ifndef SHD_IO_FILE_H
#define SHD_IO_FILE_H

#include <sherd/status.h>
#include <stdbool.h>
#include <stdint.h>

enum { SHD_PATH_BYTES = 4096 };

/* Formats a path. Fails: ARGUMENT when it is too long. */
sherd_status shd_path_make(char out[SHD_PATH_BYTES], const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The folder that holds `path`. */
sherd_status shd_path_folder(char out[SHD_PATH_BYTES], const char *path);

/* Opens a regular file for reading; close *descriptor with shd_file_close. `bytes` is its size. Fails: IO. */
sherd_status shd_file_open(const char *path, int *descriptor, int64_t *bytes);
/* The same past the page cache (O_DIRECT), where the file system offers it: then offsets, sizes and addresses must be
 * multiples of its block size, which 4096 is. */
sherd_status shd_file_open_direct(const char *path, int *descriptor, int64_t *bytes);
/* Turns a descriptor to the page cache, or away from it where that is possible. */
void shd_file_use_cache(int descriptor, bool cache);
/* Makes an empty file, in place of an older one, for writing. Fails: IO. */
sherd_status shd_file_create(const char *path, int *descriptor);
/* The same past the page cache, like shd_file_open_direct. */
sherd_status shd_file_create_direct(const char *path, int *descriptor);
/* Accepts negative descriptors. */
void shd_file_close(int descriptor);

/* Reads exactly `bytes` at `offset`. Fails: IO; DATA when the file ends before. */
sherd_status shd_file_read(int descriptor, const char *path, int64_t offset, void *out, int64_t bytes);
/* Appends. Fails: IO. */
sherd_status shd_file_write(int descriptor, const char *path, const void *data, int64_t bytes);
/* Writes at `offset`, which moves nothing: threads may write at once. Fails: IO. */
sherd_status shd_file_write_at(int descriptor, const char *path, int64_t offset, const void *data, int64_t bytes);
/* Whether `path` is the name of the open file. */
bool shd_file_is_at(int descriptor, const char *path);
/* Returns when the contents would survive a loss of power. Fails: IO. */
sherd_status shd_file_sync(int descriptor, const char *path);

/* Gives what is called `from` the name `to`, in place of a file of this name. Fails: IO. */
sherd_status shd_path_rename(const char *from, const char *to);

#endif
