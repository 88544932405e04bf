/* Residencies: when each unit is gathered (stage 3), and when each unit's gradient is alive.
 *
 * With U units, unit v runs forward in event v and backward in event 2U-1-v; it uses its own tensors and those of the
 * units it shares. */
#include "shard/parts.h"

#include "runtime/base/arith.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <stdlib.h>

/* A unit that uses the tensors of another, or its own. */
typedef struct use {
    int32_t unit_index, user_index;
} use;

static int compare_uses(const void *a, const void *b) {
    const use *x = a, *y = b;
    if (x->unit_index != y->unit_index) return x->unit_index < y->unit_index ? -1 : 1;
    return (x->user_index > y->user_index) - (x->user_index < y->user_index);
}

/* By issue, then by first use, as shd_plan.gathers is. */
static int compare_gathers(const void *a, const void *b) {
    const shd_residency *x = a, *y = b;
    if (x->issue_event != y->issue_event) return x->issue_event < y->issue_event ? -1 : 1;
    if (x->first_event != y->first_event) return x->first_event < y->first_event ? -1 : 1;
    return (x->unit_index > y->unit_index) - (x->unit_index < y->unit_index);
}

/* Every unit's users in rising order, unit by unit: unit u's are uses[starts[u]] up to starts[u + 1]. */
typedef struct use_list {
    use *uses;
    int32_t *starts;
} use_list;

static void list_uses(const shd_plan *plan, use_list list) {
    int32_t count = 0;
    for (int32_t u = 0; u < plan->unit_count; u++) {
        list.uses[count++] = (use){.unit_index = u, .user_index = u};
        for (int32_t i = 0; i < plan->units[u].share_count; i++)
            list.uses[count++] = (use){.unit_index = plan->units[u].shares[i], .user_index = u};
    }
    qsort(list.uses, (size_t)count, sizeof *list.uses, compare_uses);
    for (int32_t u = 0, i = 0; u < plan->unit_count; u++) {
        list.starts[u] = i;
        while (i < count && list.uses[i].unit_index == u) i++;
        list.starts[u + 1] = i;
    }
}

/* The i-th of the 2n events in which n users use a unit: forwards in rising order, then backwards in falling order. */
static int32_t use_event(const shd_plan *plan, const use *uses, int32_t n, int32_t i) {
    return i < n ? uses[i].user_index : 2 * plan->unit_count - 1 - uses[2 * n - 1 - i].user_index;
}

/* Appends unit u's residencies, in order of time. Uses at most one event apart are one. */
static void add_gathers(shd_plan *plan, int32_t u, const use *uses, int32_t use_count) {
    int32_t free_event = 0; /* when the one before is over */
    shd_residency *open = NULL;
    for (int32_t i = 0; i < 2 * use_count; i++) {
        int32_t event = use_event(plan, uses, use_count, i);
        if (open && event - open->last_event <= 1) {
            open->last_event = event;
            continue;
        }
        if (open) free_event = open->last_event + 1;
        open = &plan->gathers[plan->gather_count++];
        *open = (shd_residency){.unit_index = u,
                                .slot_buffer = -1,
                                .issue_event =
                                    (int32_t)shd_max(shd_max((int64_t)event - plan->policy.prefetch, 0), free_event),
                                .first_event = event,
                                .last_event = event};
    }
}

/* The gradient of unit u: begun by the highest user, whose backward comes first, and ended by u's own backward. */
static void add_gradient(shd_plan *plan, int32_t u, int32_t highest_user) {
    int32_t first = 2 * plan->unit_count - 1 - highest_user;
    plan->gradients[plan->gradient_count++] = (shd_residency){.unit_index = u,
                                                              .slot_buffer = -1,
                                                              .issue_event = first,
                                                              .first_event = first,
                                                              .last_event = 2 * plan->unit_count - 1 - u};
}

static void find_residencies(shd_plan *plan, use_list list) {
    for (int32_t u = 0; u < plan->unit_count; u++) {
        if (plan->policy.stage == 3 && plan->units[u].gathered_bytes > 0)
            add_gathers(plan, u, &list.uses[list.starts[u]], list.starts[u + 1] - list.starts[u]);
    }
    qsort(plan->gathers, (size_t)plan->gather_count, sizeof *plan->gathers, compare_gathers);
    for (int32_t u = plan->unit_count - 1; u >= 0; u--) /* backward goes down: in order of last_event */
        if (plan->units[u].gradient_bytes > 0) add_gradient(plan, u, list.uses[list.starts[u + 1] - 1].user_index);
    for (int32_t i = 0; plan->rounded && i < plan->gradient_count; i++) {
        shd_residency *rounded = &plan->rounded[i];
        *rounded = plan->gradients[i];
        rounded->issue_event = rounded->first_event = rounded->last_event;
    }
}

sherd_status shd_plan_residencies(shd_plan *plan) {
    size_t use_count = (size_t)plan->unit_count;
    for (int32_t u = 0; u < plan->unit_count; u++) use_count += (size_t)plan->units[u].share_count;
    if (use_count > INT32_MAX / 4)
        return shd_fail(SHERD_ARGUMENT, "the model's units share one another %zu times", use_count);

    use_list list = {.uses = shd_alloc(use_count, sizeof *list.uses),
                     .starts = shd_alloc((size_t)plan->unit_count + 1, sizeof *list.starts)};
    plan->gathers = shd_alloc(plan->policy.stage == 3 ? 2 * use_count : 0, sizeof *plan->gathers);
    plan->gradients = shd_alloc((size_t)plan->unit_count, sizeof *plan->gradients);
    bool rounds = plan->policy.reduce_dtype != SHERD_FP32;
    if (rounds) plan->rounded = shd_alloc((size_t)plan->unit_count, sizeof *plan->rounded);
    sherd_status status = SHERD_OK;
    if (list.uses && list.starts && plan->gathers && plan->gradients && (plan->rounded || !rounds)) {
        list_uses(plan, list);
        find_residencies(plan, list);
    } else {
        status = shd_fail(SHERD_MEMORY, "no memory for the plan's residencies");
    }
    shd_free(list.uses);
    shd_free(list.starts);
    return status;
}
