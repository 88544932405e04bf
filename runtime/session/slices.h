/* What a rank stores of a session: slices of parameters and optimizer states, under the names that checkpoints know. */
#ifndef SHD_SESSION_SLICES_H
#define SHD_SESSION_SLICES_H

#include "io/checkpoint.h"
#include "runtime/session/internal.h"

/* What this rank stores of a checkpoint: its shards of the parameters of every tensor and of each optimizer state, and the
 * states of the tensors that it owns. `unit_ends` [unit_count]: where the slices of each unit end.
 * Release with shd_slices_fini. Fails: MEMORY. */
sherd_status shd_slices_stored(sherd_session *session, shd_slice_list *out, int64_t *unit_ends);
/* What it has to set when one is loaded: the same, but at stage 0 all elements. */
sherd_status shd_slices_held(sherd_session *session, shd_slice_list *out);
void shd_slices_fini(shd_slice_list *list);

/* Whether `load` leaves the tensor `name` as it is; `load` may be NULL. */
bool shd_load_skips(const sherd_load *load, const char *name);

/* As job files and manifests have it. */
const char *shd_optimizer_name(const sherd_optimizer *optimizer);
/* States that any tensor has: those of elements, then those of whole tensors; and the name of one. */
int32_t shd_optimizer_states(const sherd_optimizer *optimizer);
const char *shd_optimizer_states_name(const sherd_optimizer *optimizer, int32_t index);
/* How many values state `index` of a tensor has; 0: it has no such state. */
int64_t shd_state_values(const shd_plan *plan, int32_t tensor, int32_t index);

#endif
