/* manifest.json of a checkpoint. */
#ifndef SHD_IO_CHECKPOINT_MANIFEST_H
#define SHD_IO_CHECKPOINT_MANIFEST_H

#include "io/checkpoint.h"
#include "io/checkpoint_manifest_parse.h"
#include "io/keep.h"

#include <stdint.h>

/* What the manifest knows of a rank's file. */
typedef struct shd_manifest_file {
    int64_t bytes;
    uint64_t header_hash;
} shd_manifest_file;

/* Writes and syncs `folder`/manifest.json. `files`: [world_size]. Fails: DATA (the note), ARGUMENT (a name that is not
 * UTF-8), IO, MEMORY. */
sherd_status shd_manifest_write(const char *folder, const shd_checkpoint_manifest *manifest,
                                const shd_manifest_file *files);

/* Reads and checks it; what *manifest and *files point to lives as long as `keep`. Fails: DATA (what is wrong, with the
 * file), IO, MEMORY. */
sherd_status shd_manifest_read(const char *folder, shd_keep *keep, shd_checkpoint_manifest *manifest,
                               shd_manifest_file **files);

#endif
