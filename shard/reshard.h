/* Reshard: from the ranges of elements that files hold to those that a rank wants. Interval arithmetic over one tensor
 * (or one of its states), whatever layouts wrote and read. Pure. */
#ifndef SHD_SHARD_RESHARD_H
#define SHD_SHARD_RESHARD_H

#include "shard/plan.h"

#include <sherd/status.h>
#include <stdbool.h>
#include <stdint.h>

/* Elements [first, first + count) of a tensor, and where they are: `source` is the caller's (a block, a file). */
typedef struct shd_interval {
    int64_t first, count;
    int64_t source;
} shd_interval;

/* Sorts by first, then by falling count, then by source, and leaves out what adds no element: what is left rises in both
 * ends. *kept is how many are left. Empty intervals are left out too. */
void shd_intervals_sort(shd_interval *list, int64_t count, int64_t *kept);

/* The first run of elements of [0, element_count) that sorted intervals do not cover; false: all are covered. */
bool shd_intervals_gap(const shd_interval *sorted, int64_t count, int64_t element_count, shd_interval *gap);

/* What of sorted intervals makes up [first, first + count): pieces in rising order, each element once, from the earliest
 * interval that has it. *out (the shortest list) has room for `capacity`; *piece_count is how many there are, which may be
 * more: then the first `capacity` were written. A piece's `source` is its interval's.
 * False: some element is in none of them. */
bool shd_intervals_cut(const shd_interval *sorted, int64_t interval_count, int64_t first, int64_t count,
                       shd_interval *out, int64_t capacity, int64_t *piece_count);

/* What the rank at `place` of a shard group stores under `plan`, made for any rank of it: calls `visit` for its part of
 * every tensor's parameter (state_index -1), then of every state, in the order in which a session saves them. `whole`:
 * state_index counts the states of whole tensors. Stops at the first failure of `visit`. */
typedef struct shd_stored_range {
    int32_t tensor_index, unit_index;
    int32_t state_index;
    bool whole;
    int64_t first, count; /* elements; of a whole tensor's state, its values */
    sherd_dtype dtype;
} shd_stored_range;
sherd_status shd_plan_visit_stored(const shd_plan *plan, int32_t place,
                                   sherd_status (*visit)(void *user, const shd_stored_range *range), void *user);

#endif
