/* Interval arithmetic of checkpoints, and what of a plan goes into one. */
#include "shard/reshard.h"

#include "runtime/base/arith.h"
#include "runtime/base/status.h"

#include <stdlib.h>

/* --- intervals ---------------------------------------------------------------------------------------------------- */

static int64_t end_of(const shd_interval *interval) { return interval->first + interval->count; }

static int ascending(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int compare_intervals(const void *left, const void *right) {
    const shd_interval *a = left, *b = right;
    if (a->first != b->first) return ascending(a->first, b->first);
    if (a->count != b->count) return ascending(b->count, a->count);
    return ascending(a->source, b->source);
}

void shd_intervals_sort(shd_interval *list, int64_t count, int64_t *kept) {
    int64_t length = 0, end = 0;
    if (count > 0) qsort(list, (size_t)count, sizeof *list, compare_intervals);
    for (int64_t i = 0; i < count; i++) {
        if (list[i].count <= 0 || end_of(&list[i]) <= end) continue;
        end = end_of(&list[i]);
        list[length++] = list[i];
    }
    *kept = length;
}

bool shd_intervals_gap(const shd_interval *sorted, int64_t count, int64_t element_count, shd_interval *gap) {
    int64_t covered = 0;
    for (int64_t i = 0; i <= count && covered < element_count; i++) {
        int64_t next = i < count ? shd_min(sorted[i].first, element_count) : element_count;
        if (next > covered) {
            *gap = (shd_interval){.first = covered, .count = next - covered, .source = -1};
            return true;
        }
        covered = end_of(&sorted[i]);
    }
    return false;
}

/* The earliest interval that ends behind `element`; interval_count when none does. */
static int64_t find_end_behind(const shd_interval *sorted, int64_t interval_count, int64_t element) {
    int64_t low = 0, high = interval_count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (end_of(&sorted[middle]) > element)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

bool shd_intervals_cut(const shd_interval *sorted, int64_t interval_count, int64_t first, int64_t count,
                       shd_interval *out, int64_t capacity, int64_t *piece_count) {
    const int64_t end = first + count;
    int64_t pieces = 0, next = first;
    if (count > 0)
        for (int64_t i = find_end_behind(sorted, interval_count, first); next < end; i++) {
            if (i == interval_count || sorted[i].first > next) return false;
            int64_t until = shd_min(end_of(&sorted[i]), end);
            if (pieces < capacity)
                out[pieces] = (shd_interval){.first = next, .count = until - next, .source = sorted[i].source};
            pieces++;
            next = until;
        }
    *piece_count = pieces;
    return true;
}

/* --- what a plan stores ------------------------------------------------------------------------------------------- */

typedef sherd_status (*stored_visit)(void *user, const shd_stored_range *range);

/* Of what each element has: its parameter, or one state. */
static sherd_status visit_elements(const shd_plan *plan, int32_t place, int32_t state_index, stored_visit visit,
                                   void *user) {
    for (int32_t t = 0; t < plan->tensor_count; t++) {
        const shd_tensor_place *tensor = &plan->places[t];
        const shd_group *group = &plan->groups[tensor->group_index];
        if (state_index >= 0 && (tensor->whole || !group->trainable)) continue;
        shd_stored_range range = {.tensor_index = t, .unit_index = tensor->unit_index, .state_index = state_index};
        if (state_index >= 0)
            range.dtype = plan->policy.state_dtype;
        else
            range.dtype = group->trainable ? SHERD_FP32 : plan->policy.parameter_dtype;
        if (shd_plan_intersect(plan, t, place * group->shard_count, group->shard_count, &range.first, &range.count))
            SHD_TRY(visit(user, &range));
    }
    return SHERD_OK;
}

static sherd_status visit_owned(const shd_plan *plan, int32_t place, int32_t state_index, stored_visit visit,
                                void *user) {
    for (int32_t t = 0; t < plan->tensor_count; t++) {
        const shd_tensor_place *tensor = &plan->places[t];
        if (!tensor->whole || tensor->owner != place || tensor->state_counts[state_index] == 0) continue;
        const shd_stored_range range = {.tensor_index = t,
                                        .unit_index = tensor->unit_index,
                                        .state_index = state_index,
                                        .whole = true,
                                        .count = tensor->state_counts[state_index],
                                        .dtype = SHERD_FP32};
        SHD_TRY(visit(user, &range));
    }
    return SHERD_OK;
}

sherd_status shd_plan_visit_stored(const shd_plan *plan, int32_t place, stored_visit visit, void *user) {
    for (int32_t s = -1; s < plan->policy.state_count; s++) SHD_TRY(visit_elements(plan, place, s, visit, user));
    for (int32_t s = 0; s < SHD_MAX_OWNED_STATES; s++) SHD_TRY(visit_owned(plan, place, s, visit, user));
    return SHERD_OK;
}
