/* Slots: memory that one tenant leaves and the next one takes. */
#include "shard/plan.h"

#include "runtime/base/arith.h"

#include <assert.h>

/* When the last tenant of `slot` among the first `count` leaves: the latest, since tenants of a slot come in turn. */
static int32_t free_since(int32_t slot, int32_t count, const int32_t *last, const int32_t *slot_of) {
    int32_t i = count - 1;
    while (slot_of[i] != slot) i--;
    return last[i];
}

int32_t shd_assign_slots(int32_t count, const int32_t *first, const int32_t *last, const int64_t *bytes,
                         int32_t *slot_of, int64_t *slot_bytes) {
    int32_t slot_count = 0;
    for (int32_t i = 0; i < count; i++) {
        assert(first[i] <= last[i] && (i == 0 || first[i - 1] <= first[i]));
        int32_t best = -1, best_since = 0;
        int64_t best_growth = 0;
        for (int32_t slot = 0; slot < slot_count; slot++) {
            int32_t since = free_since(slot, i, last, slot_of);
            if (since >= first[i]) continue;
            int64_t growth = shd_max(bytes[i] - slot_bytes[slot], 0);
            if (best < 0 || growth < best_growth || (growth == best_growth && since < best_since))
                best = slot, best_growth = growth, best_since = since;
        }
        if (best < 0) {
            best = slot_count++;
            slot_bytes[best] = 0;
        }
        slot_of[i] = best;
        slot_bytes[best] = shd_max(slot_bytes[best], bytes[i]);
    }
    return slot_count;
}
