/* What a rank stores of a session: slices of parameters and optimizer states, under the names that checkpoints know. */
#ifndef SHD_SESSION_SLICES_H
#define SHD_SESSION_SLICES_H

#include "io/checkpoint.h"
#include "runtime/session/internal.h"

typedef struct shd_slice_list {
    shd_checkpoint_slice *slices;
    int32_t *tensors; /* [count]: whose slice it is */
    int64_t count, capacity;
} shd_slice_list;

/* The slices of the rank at `place` of a shard group: its shards of the parameters of every tensor and of each optimizer
 * state, and the states of the tensors that it owns, whose values are NULL on other ranks. At stage 0 any place will
 * do. Release with shd_slices_fini. Fails: MEMORY. */
sherd_status shd_slices_list(sherd_session *session, int32_t place, shd_slice_list *out);
void shd_slices_fini(shd_slice_list *list);

/* As job files and manifests have it. */
const char *shd_optimizer_name(const sherd_optimizer *optimizer);
/* States that any tensor has: those of elements, then those of whole tensors. */
int32_t shd_optimizer_states(const sherd_optimizer *optimizer);

#endif
