/* Groups: where tensors lie in flat memory, and how that memory is cut into shards.
 *
 * Nothing here depends on the stage: layout and block borders are the same for all of them. Tensors come in order, but
 * whole ones after all others, so that states of elements end before them. */
#include "shard/parts.h"

#include "runtime/base/arith.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

_Static_assert(SHD_BLOCK_COUNT % SHD_CODE_BLOCK_COUNT == 0, "no shard border cuts a block of states");

/* The group that tensors of unit `u` join; opened when the first one comes. */
static int32_t find_group(shd_plan *plan, int32_t u, bool trainable) {
    int32_t *group = trainable ? &plan->units[u].trainable_group : &plan->units[u].frozen_group;
    if (*group < 0) {
        *group = plan->group_count++;
        plan->groups[*group] = (shd_group){.unit_index = u,
                                           .trainable = trainable,
                                           .parameters_buffer = -1,
                                           .shard_buffer = -1,
                                           .master_buffer = -1,
                                           .accumulator_buffer = -1,
                                           .state_buffers = {-1, -1}};
    }
    return *group;
}

/* Where tensors may start. Blocks of states belong to one tensor each, so that they are the same in every layout. */
static int64_t find_alignment(const shd_plan *plan, bool trainable) {
    return trainable && plan->policy.state_dtype == SHERD_INT8 ? SHD_CODE_BLOCK_COUNT : SHD_ALIGN_COUNT;
}

/* Lays the tensors of unit `u` that are trainable, or those that are not, and whole, or not, one after another. */
static void lay_tensors(shd_plan *plan, int32_t u, bool trainable, bool whole) {
    const shd_unit_plan *unit = &plan->units[u];
    for (int32_t t = unit->first_tensor; t < unit->first_tensor + unit->tensor_count; t++) {
        shd_tensor_place *place = &plan->places[t];
        if (plan->tensors[t].frozen == trainable || place->whole != whole) continue;
        place->unit_index = u;
        place->group_index = find_group(plan, u, trainable);
        shd_group *group = &plan->groups[place->group_index];
        place->offset_count = shd_round_up(group->used_count, find_alignment(plan, trainable));
        group->used_count = place->offset_count + place->element_count;
        plan->parameter_count += place->element_count;
        if (trainable) plan->trainable_count += place->element_count;
    }
}

static void lay_trainable(shd_plan *plan, int32_t u) {
    lay_tensors(plan, u, true, false);
    int32_t group = plan->units[u].trainable_group;
    int64_t others = group < 0 ? 0 : plan->groups[group].used_count;
    lay_tensors(plan, u, true, true);
    group = plan->units[u].trainable_group;
    if (group < 0) return;
    plan->groups[group].has_whole = plan->groups[group].used_count > others;
    plan->groups[group].stated_count =
        plan->groups[group].has_whole ? shd_round_up(others, SHD_BLOCK_COUNT) : INT64_MAX;
}

/* Returns the group's elements, padding included. */
static int64_t cut_group(shd_plan *plan, int32_t index) {
    if (index < 0) return 0;
    shd_group *group = &plan->groups[index];
    int64_t blocks = shd_div_ceil(group->used_count, SHD_BLOCK_COUNT);
    int64_t shard_blocks = shd_div_ceil(blocks, shd_policy_split(&plan->policy));
    group->shard_count = shard_blocks * SHD_BLOCK_COUNT;
    group->part_count = shd_div_ceil(shard_blocks, plan->policy.replicas) * SHD_BLOCK_COUNT;
    group->padded_count = group->shard_count * shd_policy_split(&plan->policy);
    group->stated_count = group->trainable ? shd_min(group->stated_count, group->padded_count) : 0;
    return group->padded_count;
}

sherd_status shd_plan_layout(shd_plan *plan) {
    plan->groups = shd_alloc(2 * (size_t)plan->unit_count, sizeof *plan->groups);
    if (!plan->groups) return shd_fail(SHERD_MEMORY, "no memory for the plan's groups");
    for (int32_t u = 0; u < plan->unit_count; u++) {
        lay_trainable(plan, u);
        lay_tensors(plan, u, false, false);
        shd_unit_plan *unit = &plan->units[u];
        int64_t trainable = cut_group(plan, unit->trainable_group), frozen = cut_group(plan, unit->frozen_group);
        unit->gradient_bytes = trainable * SHD_FLOAT_BYTES;
        unit->gathered_bytes = (trainable + frozen) * shd_dtype_bytes(plan->policy.parameter_dtype);
    }
    return SHERD_OK;
}
