/* Who owns what, and what a plan makes of it. */
#include "shard/plan.h"
#include "tests/shard/models.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* Matrices are whole, with a state of their size in `state` 0, or of their two sides in 1 and 2. */
static shd_demand *demands_of(const sherd_model *model, bool factored) {
    shd_demand *demands = calloc((size_t)model->tensor_count + 1, sizeof *demands);
    for (int32_t t = 0; t < model->tensor_count; t++) {
        const sherd_tensor *tensor = &model->tensors[t];
        int64_t rows = tensor->shape[0], columns = tensor->shape[1];
        if (tensor->dim_count != 2) continue;
        demands[t] = (shd_demand){.whole = true, .work_bytes = 8 * (rows + columns)};
        if (factored)
            demands[t].state_counts[1] = rows, demands[t].state_counts[2] = columns;
        else
            demands[t].state_counts[0] = rows * columns;
    }
    return demands;
}

static void check_plan(const shd_plan *plan, const shd_demand *demands) {
    int32_t places = shd_policy_split(&plan->policy);
    int64_t loads[16] = {0}, largest = 0, work = 0;
    char *used = calloc((size_t)(16 * (plan->owned_count + 1)), 1);
    for (int32_t t = 0; t < plan->tensor_count; t++) {
        const shd_tensor_place *place = &plan->places[t];
        bool wants = demands[t].whole && !plan->tensors[t].frozen && place->element_count > 0;
        cr_assert_eq(place->whole, wants);
        cr_assert_eq(place->owner >= 0, wants);
        if (!wants) continue;
        cr_assert_lt(place->owner, places);
        loads[place->owner] += place->element_count;
        if (place->element_count > largest) largest = place->element_count;
        if (demands[t].work_bytes > work) work = demands[t].work_bytes;
        for (int s = 0; s < SHD_MAX_OWNED_STATES; s++) {
            cr_assert_eq(place->state_counts[s], demands[t].state_counts[s]);
            for (int64_t i = 0; i < place->state_counts[s]; i++) {
                cr_assert_lt(place->state_offsets[s] + i, plan->owned_count);
                char *mark = &used[place->owner * plan->owned_count + place->state_offsets[s] + i];
                cr_assert_eq(*mark, 0, "two states share memory");
                *mark = 1;
            }
        }
    }
    free(used);
    cr_assert_eq(plan->owner_work_bytes, work);
    for (int32_t p = 0; p < places; p++)
        for (int32_t q = 0; q < places; q++) cr_assert_leq(loads[p], loads[q] + largest, "ill balanced");
}

/* Whole tensors lie behind the others, and states of elements cover those alone. */
static void check_groups(const shd_plan *plan) {
    for (int32_t g = 0; g < plan->group_count; g++) {
        const shd_group *group = &plan->groups[g];
        int64_t others = 0, first_whole = INT64_MAX;
        for (int32_t t = 0; t < plan->tensor_count; t++) {
            const shd_tensor_place *place = &plan->places[t];
            int64_t end = place->offset_count + place->element_count;
            if (place->group_index != g || place->element_count == 0) continue;
            if (!place->whole && end > others) others = end;
            if (place->whole && place->offset_count < first_whole) first_whole = place->offset_count;
        }
        cr_assert_leq(others, first_whole);
        cr_assert_eq(group->has_whole, first_whole < INT64_MAX);
        if (!group->trainable) continue;
        int64_t stated = (others + 255) / 256 * 256;
        cr_assert_eq(group->stated_count,
                     group->has_whole && stated < group->padded_count ? stated : group->padded_count);
        int64_t kept = plan->policy.stage == 0 || group->stated_count < group->shard_count ? group->stated_count
                                                                                           : group->shard_count;
        cr_assert_eq(shd_stated_count(plan, group), kept);
        for (int32_t s = 0; s < plan->policy.state_count; s++)
            cr_assert_eq(kept > 0 ? plan->buffers[group->state_buffers[s]].bytes : 0, 4 * kept);
        bool read = group->has_whole && plan->policy.world_size > 1;
        if (group->padded_count > 0 && plan->policy.stage > 0)
            cr_assert_eq(plan->buffers[group->accumulator_buffer].place, read ? SHD_PLACE_EXPORTED : SHD_PLACE_PRIVATE);
    }
}

Test(owner, tensors_are_given_away_evenly_whatever_the_stage) {
    static const int32_t world_sizes[] = {1, 2, 3, 4, 8};
    model_box box;
    for (int seed = 1; seed <= 60; seed++) {
        box_random(&box, (uint64_t)seed);
        shd_demand *demands = demands_of(&box.model, seed % 2);
        for (int w = 0; w < 5; w++) {
            shd_plan *first = NULL;
            for (int32_t stage = 0; stage <= 3; stage++) {
                shd_policy policy = policy_of(world_sizes[w], stage, false, 1);
                shd_plan *plan = NULL;
                policy.demands = demands;
                policy.owners_read_parameters = seed % 2;
                cr_assert_eq(shd_plan_create(&box.model, &policy, &plan), SHERD_OK, "%s", sherd_last_error());
                check_plan(plan, demands);
                check_groups(plan);
                if (!first) first = plan;
                for (int32_t t = 0; t < plan->tensor_count; t++)
                    cr_assert_eq(memcmp(&plan->places[t], &first->places[t], sizeof *plan->places), 0);
                for (int32_t g = 0; g < plan->group_count; g++)
                    cr_assert_eq(plan->groups[g].shard_count, first->groups[g].shard_count);
                if (plan != first) shd_plan_destroy(plan);
            }
            shd_plan_destroy(first);
        }
        free(demands);
    }
}

/* 12 blocks of four equal matrices on four ranks: each block gives one to each. */
Test(owner, places_share_the_work_of_every_unit) {
    enum { BLOCKS = 12 };
    static sherd_tensor tensors[4 * BLOCKS];
    static sherd_unit units[BLOCKS];
    static char names[5 * BLOCKS][16];
    shd_demand demands[4 * BLOCKS];
    for (int t = 0; t < 4 * BLOCKS; t++) {
        snprintf(names[t], 16, "t%d", t);
        tensors[t] = (sherd_tensor){.name = names[t], .dim_count = 2, .shape = {8, 8}};
        demands[t] = (shd_demand){.whole = true, .state_counts = {64}, .work_bytes = 64};
    }
    for (int u = 0; u < BLOCKS; u++) {
        snprintf(names[4 * BLOCKS + u], 16, "u%d", u);
        units[u] = (sherd_unit){.name = names[4 * BLOCKS + u], .first_tensor = 4 * u, .tensor_count = 4};
    }
    const sherd_model model = {
        .size = sizeof model, .units = units, .unit_count = BLOCKS, .tensors = tensors, .tensor_count = 4 * BLOCKS};
    shd_policy policy = policy_of(4, 3, false, 1);
    shd_plan *plan = NULL;
    policy.demands = demands;
    cr_assert_eq(shd_plan_create(&model, &policy, &plan), SHERD_OK, "%s", sherd_last_error());
    for (int u = 0; u < BLOCKS; u++) {
        int seen = 0;
        for (int t = 4 * u; t < 4 * u + 4; t++) seen |= 1 << plan->places[t].owner;
        cr_assert_eq(seen, 15, "block %d", u);
    }
    cr_assert_eq(plan->owned_count, BLOCKS * 64);
    cr_assert_eq(plan->buffers[plan->owned_state_buffer].bytes, BLOCKS * 256);
    shd_plan_destroy(plan);
}
