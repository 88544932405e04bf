/* The parts of planning, in the order shd_plan_create runs them. Each fills its fields of a zeroed plan and relies on
 * those before; what a failing part leaves behind, shd_plan_destroy frees. */
#ifndef SHD_SHARD_PARTS_H
#define SHD_SHARD_PARTS_H

#include "shard/plan.h"

/* Refuses a policy that makes no sense. Fails: ARGUMENT, CONFIG. */
sherd_status shd_policy_check(const shd_policy *policy);

/* Copies a checked description: names, tensors, and what of the units comes from it. Fails: MEMORY. */
sherd_status shd_plan_describe(shd_plan *plan, const sherd_model *model);

/* Finds the whole tensors among a description, and gives each an owner. Fails: MEMORY. */
sherd_status shd_plan_owners(shd_plan *plan, const shd_demand *demands);

/* Lays tensors into groups and groups into shards: groups, places, the units' group indices and bytes, counts.
 * Fails: MEMORY. */
sherd_status shd_plan_layout(shd_plan *plan);

/* Finds when units are gathered and when gradients are alive; slots come later. Fails: MEMORY. */
sherd_status shd_plan_residencies(shd_plan *plan);

/* Gives every buffer its place and bytes, slots included, and sums them up.
 * Fails: ARGUMENT (more than 2^63 bytes), MEMORY. */
sherd_status shd_plan_buffers(shd_plan *plan);

/* Whether stage 3 copies units into slots. */
static inline bool shd_policy_copies(const shd_policy *policy) {
    return policy->stage == 3 && shd_policy_split(policy) > 1 && !policy->gather_shared;
}

#endif
