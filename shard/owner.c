/* Owners: which rank makes the updates of a tensor that needs all of its gradient at once, and where it keeps what it
 * knows of it.
 *
 * Tensors are given away in the order in which units are updated, the largest of a unit first, each to the place that
 * has least so far. So places have about the same of any few units in a row, which are what they work on at the same
 * time. Nothing here depends on the stage. */
#include "shard/parts.h"

#include "runtime/base/arith.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

/* The largest tensor of a unit that has no owner yet, -1: none. */
static int32_t find_largest(const shd_plan *plan, const shd_unit_plan *unit) {
    int32_t found = -1;
    for (int32_t t = unit->first_tensor; t < unit->first_tensor + unit->tensor_count; t++) {
        const shd_tensor_place *place = &plan->places[t];
        bool waits = place->whole && place->owner < 0;
        if (waits && (found < 0 || place->element_count > plan->places[found].element_count)) found = t;
    }
    return found;
}

static int32_t find_least(const int64_t *loads, int32_t count) {
    int32_t least = 0;
    for (int32_t i = 1; i < count; i++)
        if (loads[i] < loads[least]) least = i;
    return least;
}

/* Lays the states of a tensor behind those its owner has. */
static void lay_states(shd_tensor_place *place, int64_t *end) {
    for (int32_t s = 0; s < SHD_MAX_OWNED_STATES; s++) {
        place->state_offsets[s] = *end;
        *end += shd_round_up(place->state_counts[s], SHD_ALIGN_COUNT);
    }
}

/* `loads`, `ends`: [places], zero. */
static void give_away(shd_plan *plan, int32_t places, int64_t *loads, int64_t *ends) {
    for (int32_t u = 0; u < plan->unit_count; u++)
        for (int32_t t; (t = find_largest(plan, &plan->units[u])) >= 0;) {
            shd_tensor_place *place = &plan->places[t];
            place->owner = find_least(loads, places);
            loads[place->owner] += place->element_count;
            lay_states(place, &ends[place->owner]);
        }
    for (int32_t p = 0; p < places; p++) plan->owned_count = shd_max(plan->owned_count, ends[p]);
}

sherd_status shd_plan_owners(shd_plan *plan, const shd_demand *demands) {
    for (int32_t t = 0; t < plan->tensor_count; t++) {
        shd_tensor_place *place = &plan->places[t];
        place->owner = -1;
        if (!demands || !demands[t].whole || plan->tensors[t].frozen || place->element_count == 0) continue;
        place->whole = plan->has_owners = true;
        for (int32_t s = 0; s < SHD_MAX_OWNED_STATES; s++) place->state_counts[s] = demands[t].state_counts[s];
        plan->owner_work_bytes = shd_max(plan->owner_work_bytes, demands[t].work_bytes);
    }
    if (!plan->has_owners) return SHERD_OK;
    int32_t places = shd_policy_split(&plan->policy);
    int64_t *loads = shd_alloc((size_t)places, sizeof *loads), *ends = shd_alloc((size_t)places, sizeof *ends);
    sherd_status status = SHERD_OK;
    if (loads && ends)
        give_away(plan, places, loads, ends);
    else
        status = shd_fail(SHERD_MEMORY, "no memory for the owners of tensors");
    shd_free(loads);
    shd_free(ends);
    return status;
}
