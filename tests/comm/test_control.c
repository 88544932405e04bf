/* The control block by itself: doorbells, and announcements that are read while they are written. */
#include "runtime/base/clock.h"
#include "runtime/comm/control.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>

enum { THREADS = 8, ROUNDS = 4000 };

typedef struct bell_run {
    void *block;
    int32_t rank, world_size;
} bell_run;

static bool all_reached(const shd_control *control, int64_t target) {
    for (int32_t r = 0; r < control->world_size; r++)
        if (shd_control_counter(control, r, 1, 2) < target) return false;
    return true;
}

/* Every wait goes to sleep at once and for half a minute: a single lost wake-up would be seen. */
static void *ring_and_sleep(void *argument) {
    bell_run *run = argument;
    shd_control control;
    shd_control_init(&control, run->block, run->rank, run->world_size, 3);
    for (int64_t round = 1; round <= ROUNDS; round++) {
        shd_control_signal(&control, 1, 2);
        for (;;) {
            shd_control_arm(&control);
            if (all_reached(&control, round)) break;
            shd_control_doze(&control, 30000);
        }
    }
    return NULL;
}

Test(control, no_wake_up_is_lost_in_thousands_of_barriers_of_sleepers, .timeout = 60) {
    static const int32_t worlds[] = {2, THREADS};
    for (int w = 0; w < 2; w++) {
        void *block = aligned_alloc(4096, (size_t)(shd_control_bytes(worlds[w], 3) + 4095) / 4096 * 4096);
        memset(block, 0, (size_t)shd_control_bytes(worlds[w], 3));
        pthread_t threads[THREADS];
        bell_run runs[THREADS];
        double start_ms = shd_clock_ms();
        for (int32_t r = 0; r < worlds[w]; r++) {
            runs[r] = (bell_run){.block = block, .rank = r, .world_size = worlds[w]};
            pthread_create(&threads[r], NULL, ring_and_sleep, &runs[r]);
        }
        for (int32_t r = 0; r < worlds[w]; r++) pthread_join(threads[r], NULL);
        cr_assert_lt(shd_clock_ms() - start_ms, 25000, "somebody slept through");
        free(block);
    }
}

Test(control, a_doze_ends_by_itself) {
    void *block = aligned_alloc(4096, (size_t)(shd_control_bytes(1, 1) + 4095) / 4096 * 4096);
    memset(block, 0, (size_t)shd_control_bytes(1, 1));
    shd_control control;
    shd_control_init(&control, block, 0, 1, 1);
    shd_control_arm(&control);
    double start_ms = shd_clock_ms();
    shd_control_doze(&control, 20);
    cr_assert_geq(shd_clock_ms() - start_ms, 19);
    free(block);
}

enum { ANNOUNCED = 200000 };

static void *announce_all(void *argument) {
    shd_control control;
    shd_control_init(&control, argument, 1, 2, 1);
    for (int64_t n = 0; n < ANNOUNCED; n++) {
        shd_announcement announcement = {
            .hash = (uint64_t)n * 3, .bytes = n, .collective = (int32_t)(n % 4), .unit = (int32_t)(n % 1000)};
        shd_control_announce(&control, &announcement);
    }
    return NULL;
}

Test(control, an_announcement_is_read_whole_or_not_at_all, .timeout = 60) {
    void *block = aligned_alloc(4096, (size_t)(shd_control_bytes(2, 1) + 4095) / 4096 * 4096);
    memset(block, 0, (size_t)shd_control_bytes(2, 1));
    shd_control control;
    shd_control_init(&control, block, 0, 2, 1);
    pthread_t writer;
    pthread_create(&writer, NULL, announce_all, block);
    int64_t seen = 0, torn = 0;
    for (int64_t end = 0; end < ANNOUNCED;) {
        end = shd_control_announced(&control, 1);
        /* the oldest that are still there, which are about to be written over */
        for (int64_t n = end - SHD_COMM_RING; n < end; n += 17) {
            shd_announcement found;
            if (n < 0 || !shd_control_announcement(&control, 1, n, &found)) continue;
            seen++;
            torn += found.hash != (uint64_t)n * 3 || found.bytes != n || found.collective != n % 4 ||
                    found.unit != n % 1000;
        }
    }
    pthread_join(writer, NULL);
    shd_announcement found;
    cr_assert_gt(seen, 0);
    cr_assert_eq(torn, 0);
    cr_assert_not(shd_control_announcement(&control, 1, ANNOUNCED, &found), "not announced yet");
    cr_assert_not(shd_control_announcement(&control, 1, ANNOUNCED - SHD_COMM_RING - 1, &found), "no longer there");
    cr_assert(shd_control_announcement(&control, 1, ANNOUNCED - 1, &found));
    free(block);
}

Test(control, only_the_first_failure_stands) {
    void *block = aligned_alloc(4096, (size_t)(shd_control_bytes(2, 1) + 4095) / 4096 * 4096);
    memset(block, 0, (size_t)shd_control_bytes(2, 1));
    shd_control zero, one;
    shd_control_init(&zero, block, 0, 2, 1);
    shd_control_init(&one, block, 1, 2, 1);
    shd_comm_failure failure;
    cr_assert_not(shd_control_failed(&zero, &failure));
    shd_control_fail(&one, &(shd_comm_failure){.status = SHERD_PEER, .text = "first"});
    shd_control_fail(&zero, &(shd_comm_failure){.status = SHERD_TIMEOUT, .text = "second"});
    shd_control_fail(&one, &(shd_comm_failure){.status = SHERD_TIMEOUT, .text = "third"});
    cr_assert(shd_control_failed(&zero, &failure));
    cr_assert_eq(failure.status, SHERD_PEER);
    cr_assert_str_eq(failure.text, "first");
    free(block);
}
