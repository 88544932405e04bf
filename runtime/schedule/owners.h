/* What the owners of whole tensors bring into a program: in which order units are updated after VERDICT, who must hear
 * of whose steps, and when a slot that held steps is free. Pure functions of the plan. */
#ifndef SHD_SCHEDULE_OWNERS_H
#define SHD_SCHEDULE_OWNERS_H

#include "shard/plan.h"

/* Whether unit `u`, which has something to train, has whole tensors. */
bool shd_unit_is_owned(const shd_plan *plan, int32_t u);
/* Whether an owner of tensors of `u` has peers that hold elements of their gradients in their shards. */
bool shd_owners_need_peers(const shd_plan *plan, int32_t u);
/* Whether a step of `u` goes from its owner to others. */
bool shd_steps_travel(const shd_plan *plan, int32_t u);
/* Whether steps of `u` are written where others read some of `before`. */
bool shd_steps_overwrite(const shd_plan *plan, int32_t u, int32_t before);

/* The i-th gradient to be used after VERDICT: where the next run begins with gathers, in the order in which it will ask
 * for them. */
const shd_residency *shd_late_gradient(const shd_plan *plan, int32_t i);
/* Owners work on as many units at once as have slots of their own, so that none waits for another's unit before it has
 * done its part of all these: late gradients from `first` up to the returned one. */
int32_t shd_late_window_end(const shd_plan *plan, int32_t first);
/* The first late gradient whose updates all ranks are not known to have ended when a run is over: those of a window are
 * known where a later one waits for its owners. */
int32_t shd_late_lingering(const shd_plan *plan);

#endif
