#include "shard/plan.h"
#include "tests/shard/models.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static shd_plan *plan_of(const model_box *box, shd_policy policy) {
    shd_plan *plan = NULL;
    cr_assert_eq(shd_plan_create(&box->model, &policy, &plan), SHERD_OK, "%s", sherd_last_error());
    return plan;
}

/* The unit that runs in an event. */
static int32_t runner(const shd_plan *plan, int32_t event) {
    return event < plan->unit_count ? event : 2 * plan->unit_count - 1 - event;
}

static bool uses(const model_box *box, int32_t user, int32_t unit) {
    if (user == unit) return true;
    for (int32_t i = 0; i < box->units[user].share_count; i++)
        if (box->units[user].shares[i] == unit) return true;
    return false;
}

static void expect_residency(const shd_residency *got, int32_t unit, int32_t issue, int32_t first, int32_t last) {
    cr_assert(got->unit_index == unit && got->issue_event == issue && got->first_event == first &&
                  got->last_event == last,
              "unit %d [%d, %d] issued at %d, not unit %d [%d, %d] at %d", got->unit_index, got->first_event,
              got->last_event, got->issue_event, unit, first, last, issue);
}

Test(residency, of_three_units_is_as_written_by_hand) {
    model_box box;
    box_three_units(&box);
    static const int32_t gathers[][4] = {{0, 0, 0, 0}, {1, 0, 1, 1}, {0, 1, 2, 3},
                                         {2, 1, 2, 3}, {1, 3, 4, 4}, {0, 4, 5, 5}};
    static const int32_t gradients[][4] = {{2, 3, 3, 3}, {1, 4, 4, 4}, {0, 3, 3, 5}};
    static const int32_t gather_slots[] = {0, 1, 0, 2, 1, 0};
    shd_plan *plan = plan_of(&box, policy_of(2, 3, false, 1));
    cr_assert_eq(plan->gather_count, 6);
    for (int i = 0; i < 6; i++) {
        expect_residency(&plan->gathers[i], gathers[i][0], gathers[i][1], gathers[i][2], gathers[i][3]);
        cr_assert_eq(plan->buffers[plan->gathers[i].slot_buffer].owner_index, gather_slots[i], "gather %d", i);
    }
    cr_assert_eq(plan->gradient_count, 3);
    for (int i = 0; i < 3; i++)
        expect_residency(&plan->gradients[i], gradients[i][0], gradients[i][1], gradients[i][2], gradients[i][3]);
    shd_plan_destroy(plan);
}

/* Every use of a unit's parameters lies in exactly one of its residencies, and none is longer, earlier or more often
 * than it must be. */
static void check_gathers(const model_box *box, const shd_plan *plan) {
    int32_t events = 2 * plan->unit_count;
    for (int32_t u = 0; u < plan->unit_count; u++) {
        int32_t before_last = -1, found = 0;
        for (int32_t i = 0; i < plan->gather_count; i++) { /* by issue, so in order of time for one unit */
            const shd_residency *gather = &plan->gathers[i];
            if (gather->unit_index != u) continue;
            found++;
            int32_t earliest = gather->first_event - plan->policy.prefetch;
            if (earliest < 0) earliest = 0;
            if (earliest < before_last + 1) earliest = before_last + 1;
            cr_assert_eq(gather->issue_event, earliest);
            cr_assert(uses(box, runner(plan, gather->first_event), u) &&
                      uses(box, runner(plan, gather->last_event), u));
            for (int32_t e = gather->first_event; e < gather->last_event; e++)
                cr_assert(uses(box, runner(plan, e), u), "unit %d stays through event %d for nothing", u, e);
            if (before_last >= 0) cr_assert_gt(gather->first_event, before_last + 1, "two that should be one");
            before_last = gather->last_event;
        }
        for (int32_t e = 0; e < events; e++) {
            int32_t covering = 0;
            for (int32_t i = 0; i < plan->gather_count; i++)
                covering += plan->gathers[i].unit_index == u && plan->gathers[i].first_event <= e &&
                            e <= plan->gathers[i].last_event;
            bool wanted = plan->policy.stage == 3 && plan->units[u].gathered_bytes > 0 && uses(box, runner(plan, e), u);
            cr_assert_eq(covering, wanted, "unit %d, event %d", u, e);
        }
        if (plan->units[u].gathered_bytes == 0) cr_assert_eq(found, 0);
    }
    for (int32_t i = 1; i < plan->gather_count; i++) {
        const shd_residency *a = &plan->gathers[i - 1], *b = &plan->gathers[i];
        cr_assert(a->issue_event < b->issue_event ||
                  (a->issue_event == b->issue_event && a->first_event <= b->first_event));
    }
}

static void check_gradients(const model_box *box, const shd_plan *plan) {
    int32_t found = 0;
    for (int32_t u = 0; u < plan->unit_count; u++) {
        int64_t trainable = 0;
        for (int32_t t = box->units[u].first_tensor; t < box->units[u].first_tensor + box->units[u].tensor_count; t++)
            if (!box->tensors[t].frozen) trainable += plan->places[t].element_count;
        const shd_residency *gradient = NULL;
        for (int32_t i = 0; i < plan->gradient_count; i++)
            if (plan->gradients[i].unit_index == u) gradient = &plan->gradients[i], found++;
        cr_assert_eq(gradient != NULL, trainable > 0);
        if (!gradient) continue;
        int32_t first = -1, last = -1;
        for (int32_t e = plan->unit_count; e < 2 * plan->unit_count; e++)
            if (uses(box, runner(plan, e), u)) {
                if (first < 0) first = e;
                last = e;
            }
        expect_residency(gradient, u, first, first, last);
    }
    cr_assert_eq(found, plan->gradient_count);
    for (int32_t i = 1; i < plan->gradient_count; i++)
        cr_assert_lt(plan->gradients[i - 1].last_event, plan->gradients[i].last_event);
}

/* Tenants of one slot never meet, fit into it, and some tenant needs all of it. */
static void check_slots(const shd_plan *plan, const shd_residency *tenants, int32_t count, int32_t linger,
                        shd_buffer_kind kind) {
    for (int32_t b = 0; b < plan->buffer_count; b++) {
        if (plan->buffers[b].kind != kind) continue;
        int64_t largest = 0;
        for (int32_t i = 0; i < count; i++) {
            if (tenants[i].slot_buffer != b) continue;
            const shd_unit_plan *unit = &plan->units[tenants[i].unit_index];
            int64_t bytes = kind == SHD_BUFFER_GATHER_SLOT     ? unit->gathered_bytes
                            : kind == SHD_BUFFER_GRADIENT_SLOT ? unit->gradient_bytes
                                                               : unit->gradient_bytes / 2;
            if (bytes > largest) largest = bytes;
            for (int32_t j = 0; j < i; j++)
                cr_assert(tenants[j].slot_buffer != b || tenants[j].last_event + linger < tenants[i].issue_event ||
                          tenants[i].last_event + linger < tenants[j].issue_event);
        }
        cr_assert_eq(plan->buffers[b].bytes, largest);
    }
    for (int32_t i = 0; i < count; i++) cr_assert_eq(plan->buffers[tenants[i].slot_buffer].kind, kind);
}

/* Rounded gradients begin where the caller's end. */
static void check_rounded(const shd_plan *plan) {
    cr_assert_eq(plan->rounded != NULL, plan->policy.reduce_dtype == SHERD_BF16);
    for (int32_t i = 0; plan->rounded && i < plan->gradient_count; i++) {
        int32_t last = plan->gradients[i].last_event;
        expect_residency(&plan->rounded[i], plan->gradients[i].unit_index, last, last, last);
        const shd_buffer *slot = &plan->buffers[plan->rounded[i].slot_buffer];
        cr_assert_eq(slot->dtype, SHERD_BF16);
        cr_assert_eq(slot->place, plan->policy.world_size > 1 ? SHD_PLACE_EXPORTED : SHD_PLACE_PRIVATE);
        cr_assert_eq(plan->buffers[plan->gradients[i].slot_buffer].place, SHD_PLACE_PRIVATE);
    }
}

Test(residency, covers_every_use_once_and_is_no_longer_than_needed) {
    model_box box;
    for (uint64_t seed = 1; seed <= 150; seed++) {
        box_random(&box, seed);
        for (int32_t prefetch = 0; prefetch <= 4; prefetch++)
            for (int32_t world_size = 1; world_size <= 3; world_size++)
                for (int shared = 0; shared <= (world_size > 1); shared++) {
                    shd_policy policy = policy_of(world_size, 3, shared, prefetch);
                    policy.gradient_slots = 1 + (int32_t)seed % 4;
                    policy.reduce_dtype = seed % 3 == 0 ? SHERD_BF16 : SHERD_FP32;
                    shd_plan *plan = plan_of(&box, policy);
                    check_gathers(&box, plan);
                    check_gradients(&box, plan);
                    check_rounded(plan);
                    check_slots(plan, plan->gradients, plan->gradient_count,
                                plan->rounded ? 0 : policy.gradient_slots - 1, SHD_BUFFER_GRADIENT_SLOT);
                    if (plan->rounded)
                        check_slots(plan, plan->rounded, plan->gradient_count, policy.gradient_slots - 1,
                                    SHD_BUFFER_ROUNDED_SLOT);
                    if (world_size > 1 && !shared)
                        check_slots(plan, plan->gathers, plan->gather_count, 0, SHD_BUFFER_GATHER_SLOT);
                    else
                        for (int32_t i = 0; i < plan->gather_count; i++) cr_assert_eq(plan->gathers[i].slot_buffer, -1);
                    shd_plan_destroy(plan);
                }
    }
}

Test(residency, comes_without_gathers_below_stage_3) {
    model_box box;
    box_three_units(&box);
    for (int32_t stage = 0; stage < 3; stage++) {
        shd_plan *plan = plan_of(&box, policy_of(2, stage, false, 1));
        cr_assert_eq(plan->gather_count, 0);
        check_gradients(&box, plan);
        shd_plan_destroy(plan);
    }
}

/* `unit_count` equal units (up to 32); with `tied`, the last reads the first too. */
static shd_plan *plan_equal_units(int32_t unit_count, bool tied, int32_t prefetch, int32_t gradient_slots) {
    static const int32_t zero = 0;
    static char names[32][8];
    sherd_tensor tensors[32] = {0};
    sherd_unit units[32] = {0};
    for (int32_t u = 0; u < unit_count; u++) {
        snprintf(names[u], sizeof *names, "b%d", u);
        tensors[u] = (sherd_tensor){.name = names[u], .dim_count = 1, .shape = {2048}};
        units[u] = (sherd_unit){.name = names[u], .first_tensor = u, .tensor_count = 1};
    }
    if (tied) units[unit_count - 1].shares = &zero, units[unit_count - 1].share_count = 1;
    model_box box = {.model = {.size = sizeof box.model,
                               .units = units,
                               .unit_count = unit_count,
                               .tensors = tensors,
                               .tensor_count = unit_count}};
    shd_policy policy = policy_of(4, 3, false, prefetch);
    policy.gradient_slots = gradient_slots;
    return plan_of(&box, policy);
}

Test(residency, needs_one_gather_slot_more_than_the_prefetch_and_one_for_a_tied_unit) {
    for (int32_t prefetch = 0; prefetch <= 4; prefetch++)
        for (int tied = 0; tied <= 1; tied++) {
            shd_plan *plan = plan_equal_units(32, tied, prefetch, 3);
            cr_assert_eq(plan->category_bytes[SHD_CATEGORY_GATHER_BUFFERS], (prefetch + 1 + tied) * 2048 * 4,
                         "prefetch %d, tied %d: %ld", prefetch, tied,
                         (long)plan->category_bytes[SHD_CATEGORY_GATHER_BUFFERS]);
            shd_plan_destroy(plan);
        }
}

Test(residency, needs_as_many_gradient_slots_as_asked_and_one_for_a_tied_unit) {
    for (int32_t slots = 1; slots <= 4; slots++)
        for (int tied = 0; tied <= 1; tied++) {
            shd_plan *plan = plan_equal_units(32, tied, 1, slots);
            cr_assert_eq(plan->category_bytes[SHD_CATEGORY_REDUCE_BUFFERS], (slots + tied) * 2048 * 4);
            shd_plan_destroy(plan);
        }
}
