#include "shard/plan.h"
#include "tests/shard/models.h"

#include <criterion/criterion.h>

enum { TENANTS = 40, EVENTS = 30 };

static void check_assignment(int32_t count, const int32_t *first, const int32_t *last, const int64_t *bytes) {
    int32_t slot_of[TENANTS];
    int64_t slot_bytes[TENANTS], largest[TENANTS] = {0};
    int32_t slot_count = shd_assign_slots(count, first, last, bytes, slot_of, slot_bytes);
    for (int32_t i = 0; i < count; i++) {
        cr_assert(slot_of[i] >= 0 && slot_of[i] < slot_count);
        if (bytes[i] > largest[slot_of[i]]) largest[slot_of[i]] = bytes[i];
        for (int32_t j = 0; j < i; j++)
            if (slot_of[i] == slot_of[j]) cr_assert(last[j] < first[i] || last[i] < first[j], "%d and %d meet", j, i);
    }
    for (int32_t s = 0; s < slot_count; s++) cr_assert_eq(slot_bytes[s], largest[s]);
    /* No more slots than tenants that are there at once. */
    int32_t most = 0;
    for (int32_t e = 0; e < 2 * EVENTS; e++) {
        int32_t present = 0;
        for (int32_t i = 0; i < count; i++) present += first[i] <= e && e <= last[i];
        if (present > most) most = present;
    }
    cr_assert_eq(slot_count, most);
}

Test(slots, keep_tenants_apart_and_are_no_more_than_needed) {
    uint64_t random = 12345;
    for (int round = 0; round < 2000; round++) {
        int32_t count = (int32_t)random_below(&random, TENANTS + 1), first[TENANTS], last[TENANTS], begin = 0;
        int64_t bytes[TENANTS];
        for (int32_t i = 0; i < count; i++) {
            if (begin < EVENTS - 1) begin += (int32_t)random_below(&random, 3);
            first[i] = begin;
            last[i] = begin + (int32_t)random_below(&random, 6);
            bytes[i] = random_below(&random, 5) * 1024;
        }
        check_assignment(count, first, last, bytes);
    }
}

Test(slots, are_chosen_by_least_growth_then_by_longest_rest_then_by_number) {
    /*                        slots 0, 1, 2 opened  | 700 fits 1 and grows 0 by 600, 2 by 200 */
    const int32_t first[] = {0, 0, 0, /* */ 3, /* */ 4, /* */ 6, 6, 6};
    const int32_t last[] = {2, 1, 0, /* */ 3, /* */ 4, /* */ 6, 6, 6};
    const int64_t bytes[] = {100, 900, 500, /* */ 700, /* */ 600, /* */ 50, 50, 50};
    /* 600 at 4 fits 1 again. Then all three hold 50 and all are free: 2 (since 0), 0 (since 2), 1 (since 4). */
    const int32_t expected[] = {0, 1, 2, 1, 1, 2, 0, 1};
    int32_t slot_of[8];
    int64_t slot_bytes[8];
    cr_assert_eq(shd_assign_slots(8, first, last, bytes, slot_of, slot_bytes), 3);
    for (int i = 0; i < 8; i++) cr_assert_eq(slot_of[i], expected[i], "tenant %d in slot %d", i, slot_of[i]);
    cr_assert(slot_bytes[0] == 100 && slot_bytes[1] == 900 && slot_bytes[2] == 500);
}

Test(slots, grow_when_nothing_fits) {
    const int32_t first[] = {0, 0, 1}, last[] = {0, 0, 1};
    const int64_t bytes[] = {100, 300, 350};
    int32_t slot_of[3];
    int64_t slot_bytes[3];
    cr_assert_eq(shd_assign_slots(3, first, last, bytes, slot_of, slot_bytes), 2);
    cr_assert_eq(slot_of[2], 1);
    cr_assert(slot_bytes[0] == 100 && slot_bytes[1] == 350);
    cr_assert_eq(shd_assign_slots(0, NULL, NULL, NULL, NULL, NULL), 0);
}
