#include "tests/softcuda/soft_rig.h"

#include <string.h>
#include <unistd.h>

enum { BYTES = 1024, SEEDS = 20 };

/* A copy on the first stream makes what the second reads, then the first makes it anew: with the edges `has`, as bits. */
typedef enum edge { READY = 1, USED = 2, FILLED = 4, ALL = 7 } edge;

static void hand_over(uint64_t seed, softcuda_order order, int has) {
    soft_rig rig = begin_rig(seed, order);
    char *from = pinned_memory(BYTES), *buffer = device_memory(BYTES), *out = device_memory(BYTES);
    for (int turn = 0; turn < 3; turn++) {
        if (turn > 0 && has & FILLED) OK(cudaEventSynchronize(rig.event));
        softcuda_host_writes(from, BYTES);
        if (turn > 0 && has & USED) OK(cudaStreamWaitEvent(rig.first, rig.other, 0));
        OK(cudaMemcpyAsync(buffer, from, BYTES, cudaMemcpyHostToDevice, rig.first));
        OK(cudaEventRecord(rig.event, rig.first));
        if (has & READY) OK(cudaStreamWaitEvent(rig.second, rig.event, 0));
        OK(cudaMemcpyAsync(out, buffer, BYTES, cudaMemcpyDeviceToDevice, rig.second));
        OK(cudaEventRecord(rig.other, rig.second));
    }
    OK(cudaDeviceSynchronize());
    end_rig(&rig);
    OK(cudaFreeHost(from));
    OK(cudaFree(buffer));
    OK(cudaFree(out));
}

Test(softcuda, finds_every_missing_edge_whatever_the_schedule) {
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        softcuda_order order = (softcuda_order)(seed % 3);
        hand_over(seed, order, ALL);
        NOTHING_REPORTED();
        hand_over(seed, order, ALL - READY);
        REPORTED("race: read by a copy on the device");
        hand_over(seed, order, ALL - USED);
        REPORTED("race: write by a copy to the device");
        hand_over(seed, order, ALL - FILLED);
        REPORTED("race: write by the host");
    }
}

Test(softcuda, finds_hosts_that_read_too_early) {
    for (int is_early = 0; is_early < 2; is_early++) {
        soft_rig rig = begin_rig(1, SOFTCUDA_EAGER);
        char *device = device_memory(BYTES), *host = pinned_memory(BYTES);
        OK(cudaMemsetAsync(device, 1, BYTES, rig.first));
        OK(cudaMemcpyAsync(host, device, BYTES, cudaMemcpyDeviceToHost, rig.first));
        if (!is_early) OK(cudaStreamSynchronize(rig.first));
        softcuda_host_reads(host, BYTES);
        if (is_early)
            REPORTED("race: read by the host");
        else
            NOTHING_REPORTED();
    }
}

Test(softcuda, finds_two_writers_of_the_same_bytes_only) {
    for (int overlap = 0; overlap < 2; overlap++) {
        soft_rig rig = begin_rig(1, SOFTCUDA_RANDOM);
        char *device = device_memory(BYTES);
        OK(cudaMemsetAsync(device, 1, BYTES / 2 + overlap, rig.first));
        OK(cudaMemsetAsync(device + BYTES / 2, 2, BYTES / 2, rig.second));
        if (overlap)
            REPORTED("bytes [512, 513)");
        else
            NOTHING_REPORTED();
    }
}

Test(softcuda, lets_many_read_at_once_and_orders_the_next_write_after_all) {
    soft_rig rig = begin_rig(1, SOFTCUDA_RANDOM);
    char *device = device_memory(BYTES), *a = device_memory(BYTES), *b = device_memory(BYTES);
    OK(cudaMemsetAsync(device, 1, BYTES, rig.first));
    OK(cudaStreamSynchronize(rig.first));
    OK(cudaMemcpyAsync(a, device, BYTES, cudaMemcpyDefault, rig.first));
    OK(cudaMemcpyAsync(b, device, BYTES, cudaMemcpyDefault, rig.second));
    NOTHING_REPORTED();
    OK(cudaMemsetAsync(device, 2, BYTES, rig.first));
    REPORTED("race: write by a memset");
}

Test(softcuda, an_event_stands_for_what_was_recorded_last) {
    soft_rig rig = begin_rig(1, SOFTCUDA_RANDOM);
    char *device = device_memory(BYTES), *other = device_memory(BYTES);
    OK(cudaEventRecord(rig.event, rig.first));
    OK(cudaMemsetAsync(device, 1, BYTES, rig.first)); /* behind the record */
    OK(cudaStreamWaitEvent(rig.second, rig.event, 0));
    OK(cudaMemcpyAsync(other, device, BYTES, cudaMemcpyDefault, rig.second));
    REPORTED("race: read by");
    softcuda_forget_reports();
    OK(cudaEventRecord(rig.event, rig.first));
    OK(cudaStreamWaitEvent(rig.second, rig.event, 0));
    OK(cudaMemcpyAsync(other, device, BYTES, cudaMemcpyDefault, rig.second));
    NOTHING_REPORTED();
}

Test(softcuda, a_query_that_succeeds_is_an_edge_and_one_that_does_not_is_none) {
    soft_rig rig = begin_rig(1, SOFTCUDA_LAZY);
    char *device = device_memory(BYTES), *host = pinned_memory(BYTES);
    OK(cudaMemsetAsync(device, 1, BYTES, rig.first));
    OK(cudaMemcpyAsync(host, device, BYTES, cudaMemcpyDeviceToHost, rig.first));
    OK(cudaEventRecord(rig.event, rig.first));
    cr_assert_eq(cudaEventQuery(rig.event), cudaErrorNotReady);
    cr_assert_eq(cudaGetLastError(), cudaErrorNotReady, "as on a device, it is an error that stays");
    while (cudaEventQuery(rig.event) == cudaErrorNotReady) {}
    softcuda_host_reads(host, BYTES);
    cr_assert_eq(host[BYTES - 1], 1);
    NOTHING_REPORTED();
}

Test(softcuda, a_skipped_wait_is_a_race) {
    for (uint64_t skipped = 1; skipped <= 5; skipped++) { /* three of READY, two of USED */
        softcuda_skip_wait(skipped);
        hand_over(skipped, SOFTCUDA_RANDOM, ALL);
        REPORTED("race: ");
    }
    softcuda_skip_wait(6);
    hand_over(1, SOFTCUDA_RANDOM, ALL);
    NOTHING_REPORTED();
}

Test(softcuda, schedules_are_the_seeds) {
    uint64_t seen[SEEDS];
    int different = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        uint64_t schedules[2];
        for (int i = 0; i < 2; i++) {
            hand_over(seed, SOFTCUDA_RANDOM, 0); /* edges would leave little to choose */
            schedules[i] = softcuda_schedule();
        }
        cr_assert_eq(schedules[0], schedules[1]);
        seen[seed] = schedules[0];
        bool is_new = true;
        for (uint64_t i = 0; i < seed; i++) is_new &= seen[i] != seen[seed];
        different += is_new;
    }
    cr_assert_gt(different, 3);
}

Test(softcuda, reports_the_default_stream_blocking_streams_and_unrecorded_events) {
    soft_rig rig = begin_rig(1, SOFTCUDA_RANDOM);
    cudaStream_t blocking;
    cr_assert_eq(cudaMemsetAsync(device_memory(8), 0, 8, NULL), cudaErrorInvalidResourceHandle);
    REPORTED("default stream: a memset");
    OK(cudaStreamCreateWithPriority(&blocking, cudaStreamDefault, 0));
    REPORTED("blocking stream");
    OK(cudaStreamWaitEvent(rig.first, rig.event, 0));
    REPORTED("unrecorded event: first");
}

Test(softcuda, calls_fail_when_they_are_told_to) {
    soft_rig rig = begin_rig(1, SOFTCUDA_RANDOM);
    void *memory;
    softcuda_fail_at("cudaMalloc", 2, cudaErrorMemoryAllocation);
    OK(cudaMalloc(&memory, 8));
    cr_assert_eq(cudaMalloc(&memory, 8), cudaErrorMemoryAllocation);
    OK(cudaMalloc(&memory, 8));
    softcuda_fail_at("*", 1, cudaErrorLaunchFailure);
    cr_assert_eq(cudaMemsetAsync(memory, 0, 8, rig.first), cudaErrorLaunchFailure);
    OK(cudaMemsetAsync(memory, 0, 8, rig.first));
    cr_assert_eq(softcuda_calls("cudaMalloc"), 3);
}

Test(softcuda, a_machine_without_devices_leaves_the_count_alone) {
    int count = 77;
    softcuda_set_devices(0);
    cr_assert_eq(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
    cr_assert_eq(count, 77);
    softcuda_set_devices(3);
    OK(cudaGetDeviceCount(&count));
    cr_assert_eq(count, 3);
    cr_assert_eq(cudaSetDevice(3), cudaErrorInvalidDevice);
    OK(cudaSetDevice(2));
}

static softcuda_progress wait_for_ever(void *state) {
    (void)state;
    return SOFTCUDA_WAITING;
}

static softcuda_progress count_down(void *state) {
    return --*(volatile uint64_t *)state ? SOFTCUDA_WAITING : SOFTCUDA_DONE;
}

Test(softcuda, reports_where_streams_are_when_nothing_goes_on, .timeout = 20) {
    soft_rig rig = begin_rig(1, SOFTCUDA_RANDOM);
    softcuda_set_patience(0.1);
    OK(softcuda_enqueue(rig.first, &(softcuda_operation){.name = "a lonely gather", .run = wait_for_ever}));
    OK(cudaEventRecord(rig.event, rig.first));
    OK(cudaStreamWaitEvent(rig.second, rig.event, 0));
    cr_assert_eq(cudaStreamSynchronize(rig.second), cudaErrorLaunchTimeout);
    REPORTED("deadlock: cudaStreamSynchronize waits");
    REPORTED("first is at a lonely gather");
    REPORTED("second is at cudaStreamWaitEvent");
}

static softcuda_progress wait_a_while(void *state) {
    volatile uint64_t *turns = state;
    usleep(1000);
    return ++*turns < 300 ? SOFTCUDA_WAITING : SOFTCUDA_DONE;
}

Test(softcuda, waiting_is_no_deadlock_while_others_make_progress, .timeout = 20) {
    soft_rig rig = begin_rig(1, SOFTCUDA_RANDOM);
    static volatile uint64_t turns;
    softcuda_set_patience(0.1);
    softcuda_watch_progress(&turns);
    OK(softcuda_enqueue(rig.first,
                        &(softcuda_operation){.name = "a gather", .run = wait_a_while, .state = (void *)&turns}));
    OK(cudaStreamSynchronize(rig.first));
    softcuda_unwatch_progress(&turns);
    NOTHING_REPORTED();
}

Test(softcuda, an_operation_polls_while_other_streams_go_on) {
    soft_rig rig = begin_rig(1, SOFTCUDA_LAZY);
    char *device = device_memory(BYTES);
    uint64_t turns = 5;
    OK(softcuda_enqueue(rig.first, &(softcuda_operation){.name = "a gather", .run = count_down, .state = &turns}));
    OK(cudaMemsetAsync(device, 0, BYTES, rig.second));
    OK(cudaStreamSynchronize(rig.second));
    OK(cudaStreamSynchronize(rig.first));
    cr_assert_eq(turns, 0);
}

/* As many operations as a long run has, over buffers that are cut differently: the history stays as small as they are. */
Test(softcuda, checks_a_long_run_quickly, .timeout = 30) {
    enum { PIECES = 1000, ROUNDS = 100, PIECE = 64 };
    soft_rig rig = begin_rig(1, SOFTCUDA_EAGER);
    char *device = device_memory(PIECES * PIECE), *out = device_memory(PIECES * PIECE);
    for (int round = 0; round < ROUNDS; round++) {
        OK(cudaMemsetAsync(device, round, PIECES * PIECE, rig.first));
        for (int i = 0; i < PIECES; i++)
            OK(cudaMemcpyAsync(out + i * PIECE, device + i * PIECE, PIECE, cudaMemcpyDefault, rig.first));
    }
    NOTHING_REPORTED();
}
