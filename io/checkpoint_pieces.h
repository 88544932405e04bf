/* What all rank files of a checkpoint hold together: from their indexes to what the manifest says of each value. */
#ifndef SHD_IO_CHECKPOINT_PIECES_H
#define SHD_IO_CHECKPOINT_PIECES_H

#include "io/checkpoint.h"
#include "io/checkpoint_file.h"
#include "io/keep.h"

/* Fills in `values`, `files`, `raw_bytes` and `stored_bytes` of a manifest that has the rest, from `files`
 * ([manifest->world_size], by rank); what they point to lives as long as `keep`. Blocks of one rank that follow each
 * other are one range. Checks that every element of every parameter, and of every state that its tensor has, is in some
 * file, each value in one dtype. Fails: DATA (which elements are nowhere, which block belongs to nothing, with the
 * file), MEMORY. */
sherd_status shd_pieces_describe(shd_rank_file *const *files, shd_keep *keep, shd_checkpoint_manifest *manifest);

#endif
