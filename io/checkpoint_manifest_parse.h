/* What a manifest's JSON says, checked: the inner part of reading one (io/checkpoint_manifest.h). */
#ifndef SHD_IO_CHECKPOINT_MANIFEST_PARSE_H
#define SHD_IO_CHECKPOINT_MANIFEST_PARSE_H

#include "io/checkpoint.h"
#include "io/keep.h"

#include <jansson.h>

/* Total: whatever `object` holds, it is refused, or *out is such that files of its sizes can be read by it. Fails:
 * DATA, UNSUPPORTED, MEMORY. */
sherd_status shd_manifest_take(const json_t *object, shd_keep *keep, shd_checkpoint_manifest *out);

#endif
