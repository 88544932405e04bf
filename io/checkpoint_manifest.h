/* manifest.json of a checkpoint: what the job was, and which file holds what. docs/CHECKPOINT.md has every key. */
#ifndef SHD_IO_CHECKPOINT_MANIFEST_H
#define SHD_IO_CHECKPOINT_MANIFEST_H

#include "io/checkpoint.h"
#include "io/keep.h"

#include <stdbool.h>
#include <stdint.h>

#define SHD_MANIFEST_NAME "manifest.json"
enum { SHD_MANIFEST_BYTES_MAX = 1 << 30 };

/* Elements of a shape; shapes that were read from a manifest do not overflow. */
int64_t shd_element_count(const sherd_tensor *tensor);

/* Whether ranges in the order of `first` leave elements of [0, element_count) out: *gap is the first run of them. */
bool shd_ranges_gap(const shd_checkpoint_range *ranges, int64_t count, int64_t element_count,
                    shd_checkpoint_range *gap);

/* The text, sealed, with everything that io/checkpoint.h says is known once it is committed; state_elements and
 * state_dtype are those of the values. Release *out with shd_free. Fails: DATA (the note), ARGUMENT (a name that is not
 * UTF-8, or is there twice), MEMORY. */
sherd_status shd_manifest_print(const shd_checkpoint_manifest *manifest, char **out);
/* Checks the seal, then that everything in it makes sense by itself and together: what it points to lives as long as
 * `keep`. Fails: DATA (what is wrong), UNSUPPORTED (another version, or something required that this build does not
 * know), MEMORY. */
sherd_status shd_manifest_parse(const char *text, int64_t bytes, shd_keep *keep, shd_checkpoint_manifest *out);

/* Writes and syncs `folder`/manifest.json. Fails: as printing does; IO. */
sherd_status shd_manifest_write(const char *folder, const shd_checkpoint_manifest *manifest);
/* Reads it. Fails: as parsing does, with the file; IO. */
sherd_status shd_manifest_read(const char *folder, shd_keep *keep, shd_checkpoint_manifest *out);

#endif
