/* What all rank files of a checkpoint hold together, in the order of tensors, states and elements. */
#ifndef SHD_IO_CHECKPOINT_PIECES_H
#define SHD_IO_CHECKPOINT_PIECES_H

#include "io/checkpoint_file1.h"

#include <stdint.h>

int64_t shd_element_count(const sherd_tensor *tensor);
/* Values of state `state_index` (0: the parameter, 1 + i: the manifest's state i) of a tensor. */
int64_t shd_state_elements(const shd_checkpoint_manifest *manifest, int32_t tensor_index, int32_t state_index);

/* One slice of one file; slices without elements are left out. */
typedef struct shd_piece {
    int32_t tensor_index;
    int32_t state_index; /* 0: the parameter, 1 + i: the manifest's state i */
    int64_t first, count;
    int32_t rank;
    int64_t slice_index; /* in the rank's file */
} shd_piece;

typedef struct shd_pieces {
    shd_piece *list; /* sorted by tensor, state, first */
    int64_t count;
} shd_pieces;

/* Collects the slices of `files` ([manifest->world_size]) and checks that every element of every parameter, and of
 * every state of those not frozen, is there at least once. Owns: release out->list with shd_free. Fails: DATA (which
 * elements are nowhere, which slice belongs to nothing), MEMORY. */
sherd_status shd_pieces_collect(const shd_checkpoint_manifest *manifest, shd_rank_file1 *const *files, shd_pieces *out);

#endif
