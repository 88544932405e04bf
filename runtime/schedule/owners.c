#include "runtime/schedule/owners.h"

bool shd_unit_is_owned(const shd_plan *plan, int32_t u) {
    return plan->groups[plan->units[u].trainable_group].has_whole;
}

/* Whether the shard of `place` has elements of a tensor. */
static bool has_part(const shd_plan *plan, const shd_tensor_place *tensor, int32_t place) {
    int64_t shard_count = plan->groups[tensor->group_index].shard_count;
    int64_t end = tensor->offset_count + tensor->element_count;
    return tensor->offset_count < (place + 1) * shard_count && end > place * shard_count;
}

/* Whether others than its owner have elements of a whole tensor in their shards. */
static bool is_spread(const shd_plan *plan, const shd_tensor_place *tensor) {
    for (int32_t place = 0; tensor->whole && place < shd_policy_split(&plan->policy); place++)
        if (place != tensor->owner && has_part(plan, tensor, place)) return true;
    return false;
}

/* At stage 0 everyone updates everything. */
static bool travels(const shd_plan *plan, const shd_tensor_place *tensor) {
    bool everywhere = plan->policy.stage == 0 && shd_policy_split(&plan->policy) > 1;
    return tensor->whole && (everywhere || is_spread(plan, tensor));
}

static bool any(const shd_plan *plan, int32_t u, bool (*is)(const shd_plan *plan, const shd_tensor_place *tensor)) {
    const shd_unit_plan *unit = &plan->units[u];
    for (int32_t t = unit->first_tensor; t < unit->first_tensor + unit->tensor_count; t++)
        if (is(plan, &plan->places[t])) return true;
    return false;
}

bool shd_owners_need_peers(const shd_plan *plan, int32_t u) { return any(plan, u, is_spread); }

bool shd_steps_travel(const shd_plan *plan, int32_t u) { return any(plan, u, travels); }

static bool overlap(const shd_tensor_place *a, const shd_tensor_place *b) {
    return a->offset_count < b->offset_count + b->element_count && b->offset_count < a->offset_count + a->element_count;
}

static int32_t slot_of(const shd_plan *plan, int32_t u) {
    for (int32_t i = 0; i < plan->gradient_count; i++)
        if (plan->gradients[i].unit_index == u) return plan->gradients[i].slot_buffer;
    return -1;
}

bool shd_steps_overwrite(const shd_plan *plan, int32_t u, int32_t before) {
    const shd_unit_plan *writer = &plan->units[u], *reader = &plan->units[before];
    if (slot_of(plan, u) != slot_of(plan, before)) return false;
    for (int32_t i = writer->first_tensor; i < writer->first_tensor + writer->tensor_count; i++)
        for (int32_t j = reader->first_tensor; j < reader->first_tensor + reader->tensor_count; j++) {
            const shd_tensor_place *written = &plan->places[i], *read = &plan->places[j];
            if (written->whole && travels(plan, read) && written->owner == read->owner && overlap(written, read))
                return true;
        }
    return false;
}

const shd_residency *shd_late_gradient(const shd_plan *plan, int32_t i) {
    return &plan->gradients[plan->policy.stage > 0 ? plan->gradient_count - 1 - i : i];
}

/* Whether late gradients `i` and `j` leave their steps in the same slot. */
static bool meet(const shd_plan *plan, int32_t i, int32_t j) {
    const shd_residency *a = shd_late_gradient(plan, i), *b = shd_late_gradient(plan, j);
    return a->slot_buffer == b->slot_buffer && shd_unit_is_owned(plan, a->unit_index) &&
           shd_unit_is_owned(plan, b->unit_index);
}

int32_t shd_late_window_end(const shd_plan *plan, int32_t first) {
    int32_t end = first;
    while (++end < plan->gradient_count)
        for (int32_t i = first; plan->has_owners && i < end; i++)
            if (meet(plan, i, end)) return end;
    return end;
}

int32_t shd_late_lingering(const shd_plan *plan) {
    int32_t lingering = 0;
    for (int32_t first = 0, end; first < plan->gradient_count; first = end) {
        end = shd_late_window_end(plan, first);
        for (int32_t i = first; i < end; i++)
            if (shd_steps_travel(plan, shd_late_gradient(plan, i)->unit_index)) lingering = first;
    }
    return lingering;
}
