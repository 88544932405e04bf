#include "runtime/train/stragglers.h"

#include <assert.h>

/* How much of a mean the newest step makes up. */
static const double SMOOTHING = 0.1;

static void take_rank(shd_stragglers *stragglers, int32_t rank, double step_ms, double median_ms) {
    bool slow = step_ms > stragglers->factor * median_ms && step_ms - median_ms >= SHD_STRAGGLER_LEAST_MS;
    double share = stragglers->slow[rank] == 0 ? 1 : SMOOTHING;
    stragglers->work_ms[rank] += share * (step_ms - stragglers->work_ms[rank]);
    stragglers->slow[rank] = slow ? stragglers->slow[rank] + 1 : 0;
    stragglers->quick[rank] = slow ? 0 : stragglers->quick[rank] + 1;
    if (stragglers->slow[rank] >= stragglers->steps) stragglers->named |= (uint64_t)1 << rank;
    if (stragglers->quick[rank] >= stragglers->steps) stragglers->named &= ~((uint64_t)1 << rank);
}

bool shd_stragglers_take(shd_stragglers *stragglers, const double *step_ms, double median_ms) {
    assert(stragglers->rank_count <= SHD_STRAGGLER_RANKS);
    if (stragglers->factor == 0 || stragglers->rank_count < 2) return false;
    uint64_t before = stragglers->named;
    stragglers->median_ms += (stragglers->median_ms == 0 ? 1 : SMOOTHING) * (median_ms - stragglers->median_ms);
    for (int32_t r = 0; r < stragglers->rank_count; r++) take_rank(stragglers, r, step_ms[r], median_ms);
    return stragglers->named != before;
}
