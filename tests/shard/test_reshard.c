/* Intervals against marks on every element, and what plans store against where each element lies. */
#include "shard/reshard.h"
#include "tests/shard/models.h"

#include <criterion/criterion.h>
#include <stdlib.h>

enum { ELEMENTS = 48, INTERVALS = 14 };

/* Some intervals over ELEMENTS, of a few lengths, so that ends often meet. */
static int64_t random_intervals(uint64_t *random, shd_interval *list) {
    int64_t count = random_below(random, INTERVALS + 1), longest = 1 + random_below(random, ELEMENTS);
    for (int64_t i = 0; i < count; i++) {
        int64_t first = random_below(random, ELEMENTS + 1), length = random_below(random, (uint32_t)longest + 1);
        if (first + length > ELEMENTS) length = ELEMENTS - first;
        list[i] = (shd_interval){.first = first, .count = length, .source = 100 + random_below(random, 4)};
    }
    return count;
}

static bool has(const shd_interval *interval, int64_t element) {
    return element >= interval->first && element < interval->first + interval->count;
}

static bool any_has(const shd_interval *list, int64_t count, int64_t element) {
    for (int64_t i = 0; i < count; i++)
        if (has(&list[i], element)) return true;
    return false;
}

static bool comes_before(const shd_interval *a, const shd_interval *b) {
    return a->first != b->first   ? a->first < b->first
           : a->count != b->count ? a->count > b->count
                                  : a->source <= b->source;
}

/* Sorts by insertion, and drops what every element of is in one that stays before it. */
static int64_t sort_plainly(const shd_interval *list, int64_t count, shd_interval *out) {
    shd_interval sorted[INTERVALS];
    int64_t length = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = i;
        for (; at > 0 && !comes_before(&sorted[at - 1], &list[i]); at--) sorted[at] = sorted[at - 1];
        sorted[at] = list[i];
    }
    for (int64_t i = 0; i < count; i++) {
        bool adds = false;
        for (int64_t e = 0; e < ELEMENTS; e++) adds = adds || (has(&sorted[i], e) && !any_has(out, length, e));
        if (adds) out[length++] = sorted[i];
    }
    return length;
}

static void check_gap(const shd_interval *list, int64_t count, int64_t element_count) {
    int64_t first = 0, end;
    while (first < element_count && any_has(list, count, first)) first++;
    for (end = first; end < element_count && !any_has(list, count, end);) end++;
    shd_interval gap = {.count = -1};
    bool found = shd_intervals_gap(list, count, element_count, &gap);
    cr_assert_eq(found, first < element_count);
    if (found)
        cr_assert(gap.first == first && gap.count == end - first);
    else
        cr_assert_eq(gap.count, -1, "an output without success");
}

static void check_cut(const shd_interval *list, int64_t list_count, int64_t first, int64_t count, int64_t capacity) {
    shd_interval pieces[ELEMENTS + 1], untouched = {.first = -7, .count = -7, .source = -7};
    for (int64_t i = 0; i <= ELEMENTS; i++) pieces[i] = untouched;
    int64_t piece_count = -1, expected_count = 0;
    bool whole = true;
    for (int64_t e = first; e < first + count; e++) whole = whole && any_has(list, list_count, e);
    cr_assert_eq(shd_intervals_cut(list, list_count, first, count, pieces, capacity, &piece_count), whole);
    for (int64_t i = capacity; i <= ELEMENTS; i++) cr_assert_eq(pieces[i].count, -7, "written beyond the capacity");
    if (!whole) {
        cr_assert_eq(piece_count, -1);
        return;
    }
    /* Element by element: the earliest that has it; a piece ends where that changes. */
    int64_t before = -1;
    for (int64_t e = first; e < first + count; e++) {
        int64_t from = 0;
        while (!has(&list[from], e)) from++;
        if (from != before) expected_count++;
        before = from;
        if (expected_count > capacity) continue;
        const shd_interval *piece = &pieces[expected_count - 1];
        cr_assert(has(piece, e) && piece->source == list[from].source && has(&list[from], piece->first) &&
                  has(&list[from], piece->first + piece->count - 1));
    }
    cr_assert_eq(piece_count, expected_count);
    for (int64_t i = 1; i < expected_count && i < capacity; i++)
        cr_assert_eq(pieces[i].first, pieces[i - 1].first + pieces[i - 1].count);
    if (expected_count > 0 && capacity > 0) cr_assert_eq(pieces[0].first, first);
    if (expected_count > 0 && capacity >= expected_count)
        cr_assert_eq(pieces[expected_count - 1].first + pieces[expected_count - 1].count, first + count);
}

Test(reshard, intervals_are_cut_as_element_by_element, .timeout = 60) {
    uint64_t random = 20261;
    for (int turn = 0; turn < 20000; turn++) {
        shd_interval list[INTERVALS], expected[INTERVALS];
        int64_t count = random_intervals(&random, list), kept = -1,
                expected_count = sort_plainly(list, count, expected);
        shd_intervals_sort(list, count, &kept);
        cr_assert_eq(kept, expected_count);
        for (int64_t i = 0; i < kept; i++)
            cr_assert(list[i].first == expected[i].first && list[i].count == expected[i].count &&
                      list[i].source == expected[i].source);
        check_gap(list, kept, ELEMENTS);
        check_gap(list, kept, random_below(&random, ELEMENTS + 1));
        for (int k = 0; k < 4; k++) {
            int64_t first = random_below(&random, ELEMENTS), most = ELEMENTS - first;
            check_cut(list, kept, first, random_below(&random, (uint32_t)most + 1), k < 2 ? ELEMENTS : k - 2);
        }
    }
}

Test(reshard, intervals_may_be_of_any_size) {
    const int64_t far = INT64_MAX / 2;
    shd_interval list[] = {{far, INT64_MAX - far, 1}, {0, far, 2}}, pieces[2], gap;
    int64_t count = 0;
    shd_intervals_sort(list, 2, &count);
    cr_assert_eq(count, 2);
    cr_assert_not(shd_intervals_gap(list, count, INT64_MAX, &gap));
    cr_assert(shd_intervals_cut(list, count, far - 1, 2, pieces, 2, &count));
    cr_assert(count == 2 && pieces[0].source == 2 && pieces[0].count == 1 && pieces[1].source == 1);
    cr_assert_not(shd_intervals_gap(NULL, 0, 0, &gap));
    cr_assert(shd_intervals_gap(NULL, 0, 5, &gap) && gap.first == 0 && gap.count == 5);
    shd_intervals_sort(NULL, 0, &count);
    cr_assert_eq(count, 0);
}

/* --- what plans store --------------------------------------------------------------------------------------------- */

typedef struct visits {
    shd_stored_range ranges[1024];
    int32_t count, fails_at;
} visits;

static sherd_status note_range(void *user, const shd_stored_range *range) {
    visits *seen = user;
    if (seen->count == seen->fails_at) return SHERD_DATA;
    cr_assert_lt(seen->count, 1024);
    seen->ranges[seen->count++] = *range;
    return SHERD_OK;
}

/* Where the walk has to be: parameters, states of elements, those of whole tensors; tensor by tensor, rising. */
static int64_t rank_of(const shd_stored_range *range) {
    return ((int64_t)range->whole * 8 + range->state_index + 1) * 1000 + range->tensor_index;
}

/* Which of a tensor's elements each place visits, from where the element lies in its group. */
static void check_elements(const shd_plan *plan, const visits *seen, int32_t place, int32_t state_index) {
    for (int32_t t = 0; t < plan->tensor_count; t++) {
        const shd_tensor_place *tensor = &plan->places[t];
        const shd_group *group = &plan->groups[tensor->group_index];
        const shd_stored_range *range = NULL;
        for (int32_t i = 0; i < seen->count; i++)
            if (!seen->ranges[i].whole && seen->ranges[i].state_index == state_index &&
                seen->ranges[i].tensor_index == t)
                range = &seen->ranges[i];
        for (int64_t e = 0; e < tensor->element_count; e++) {
            bool has_it = state_index < 0 || (!tensor->whole && !plan->tensors[t].frozen);
            bool here = has_it && (tensor->offset_count + e) / group->shard_count == place;
            cr_assert_eq(here, range && e >= range->first && e < range->first + range->count);
        }
        if (!range) continue;
        cr_assert(range->count > 0 && range->unit_index == tensor->unit_index);
        sherd_dtype kept = plan->tensors[t].frozen ? plan->policy.parameter_dtype : SHERD_FP32;
        cr_assert_eq(range->dtype, state_index < 0 ? kept : plan->policy.state_dtype);
        if (range->dtype == SHERD_INT8) cr_assert_eq(range->first % 256, 0);
    }
}

static void check_owned(const shd_plan *plan, const visits *seen, int32_t place) {
    int32_t expected = 0, found = 0;
    for (int32_t t = 0; t < plan->tensor_count; t++)
        for (int s = 0; s < SHD_MAX_OWNED_STATES; s++)
            expected += plan->places[t].owner == place && plan->places[t].state_counts[s] > 0;
    for (int32_t i = 0; i < seen->count; i++) {
        const shd_stored_range *range = &seen->ranges[i];
        if (!range->whole) continue;
        const shd_tensor_place *tensor = &plan->places[range->tensor_index];
        found++;
        cr_assert(tensor->owner == place && range->first == 0 && range->dtype == SHERD_FP32);
        cr_assert_eq(range->count, tensor->state_counts[range->state_index]);
        cr_assert_eq(range->unit_index, tensor->unit_index);
    }
    cr_assert_eq(found, expected);
}

static void check_plan(const shd_plan *plan) {
    for (int32_t place = 0; place < shd_policy_split(&plan->policy); place++) {
        static visits seen;
        seen = (visits){.fails_at = -1};
        cr_assert_eq(shd_plan_visit_stored(plan, place, note_range, &seen), SHERD_OK);
        for (int32_t i = 1; i < seen.count; i++) cr_assert_lt(rank_of(&seen.ranges[i - 1]), rank_of(&seen.ranges[i]));
        for (int32_t s = -1; s < plan->policy.state_count; s++) check_elements(plan, &seen, place, s);
        check_owned(plan, &seen, place);
    }
}

/* Matrices are whole where `demands` has room. */
static void demand(const sherd_model *model, int seed, shd_demand *demands) {
    for (int32_t t = 0; t < model->tensor_count; t++) {
        const int64_t *shape = model->tensors[t].shape;
        demands[t] = (shd_demand){0};
        if (model->tensors[t].dim_count != 2) continue;
        demands[t].whole = true;
        demands[t].state_counts[seed % 2] = shape[0] * shape[1];
        demands[t].state_counts[2] = seed % 2 ? 0 : shape[0];
    }
}

Test(reshard, what_places_store_is_every_element_once, .timeout = 60) {
    static const int32_t world_sizes[] = {1, 2, 3, 4, 8};
    model_box box;
    shd_demand demands[MAX_UNITS * MAX_UNIT_TENSORS];
    for (int seed = 1; seed <= 60; seed++) {
        box_random(&box, (uint64_t)seed);
        demand(&box.model, seed, demands);
        for (int w = 0; w < 5; w++)
            for (int32_t stage = 0; stage <= 3; stage++) {
                shd_policy policy = policy_of(world_sizes[w], stage, false, 1);
                shd_plan *plan = NULL;
                policy.demands = seed % 3 == 0 ? demands : NULL;
                policy.state_count = seed % 3;
                policy.state_dtype = seed % 2 && !policy.demands ? SHERD_INT8 : SHERD_FP32;
                policy.parameter_dtype = stage % 2 ? SHERD_BF16 : SHERD_FP32;
                policy.replicas = stage > 0 && world_sizes[w] % 2 == 0 ? 2 : 1;
                policy.rank = seed % world_sizes[w];
                cr_assert_eq(shd_plan_create(&box.model, &policy, &plan), SHERD_OK, "%s", sherd_last_error());
                check_plan(plan);
                shd_plan_destroy(plan);
            }
    }
}

Test(reshard, a_walk_over_what_is_stored_ends_at_the_first_failure) {
    model_box box;
    shd_plan *plan = NULL;
    box_three_units(&box);
    shd_policy policy = policy_of(2, 3, false, 1);
    cr_assert_eq(shd_plan_create(&box.model, &policy, &plan), SHERD_OK);
    static visits all = {.fails_at = -1}, some;
    cr_assert_eq(shd_plan_visit_stored(plan, 0, note_range, &all), SHERD_OK);
    cr_assert_gt(all.count, 3);
    for (int32_t i = 0; i < all.count; i++) {
        some = (visits){.fails_at = i};
        cr_assert_eq(shd_plan_visit_stored(plan, 0, note_range, &some), SHERD_DATA);
        cr_assert_eq(some.count, i);
    }
    shd_plan_destroy(plan);
}
