/* Folders for outputs. */
#ifndef SHD_IO_FOLDER_H
#define SHD_IO_FOLDER_H

#include <sherd/status.h>
#include <stdint.h>

/* Makes `path` and what is missing above it, durably; one that exists is fine, also when another process makes it
 * meanwhile.
 * Fails: IO (which folder, and why), ARGUMENT (a path too long). */
sherd_status shd_folder_make(const char *path);
/* Which folder a path leads to, however it is spelled. */
typedef struct shd_folder_id {
    uint64_t device, inode;
} shd_folder_id;
/* Fails: IO. */
sherd_status shd_folder_identify(const char *path, shd_folder_id *out);

/* Returns when names made, renamed and removed in the folder would survive a loss of power. Fails: IO. */
sherd_status shd_folder_sync(const char *path);

#endif
