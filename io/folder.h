/* Folders for outputs. */
#ifndef SHD_IO_FOLDER_H
#define SHD_IO_FOLDER_H

#include <sherd/status.h>

/* Makes `path` and what is missing above it; one that exists is fine, also when another process makes it meanwhile.
 * Fails: IO (which folder, and why), ARGUMENT (a path too long). */
sherd_status shd_folder_make(const char *path);

#endif
