/* The files that a list of paths and globs means. */
#ifndef SHD_IO_FILE_LIST_H
#define SHD_IO_FILE_LIST_H

#include "io/keep.h"

#include <sherd/status.h>
#include <stdbool.h>
#include <stdint.h>

/* True when `path` has a character that a glob gives a meaning. */
bool shd_path_is_glob(const char *path);

/* Files in the given order; those of a glob in the order of their bytes, whatever the locale. A path that exists is
 * that file, whatever characters it has. `key` names the list in messages.
 * Owns: *files and its texts live in `keep`. Fails: DATA (a glob that no file matches, a folder that cannot be read),
 * MEMORY. */
sherd_status shd_file_list_expand(const char *key, const char *const *paths, int32_t path_count, shd_keep *keep,
                                  const char *const **files, int32_t *file_count);

#endif
