#include "tests/softcuda/soft_rig.h"
#include "tests/softcuda/test_kernels.h"

#include <math.h>
#include <string.h>

enum { N = 5000, STRETCH = 700 };

Test(softcuda, runs_kernels_in_grid_strides) {
    soft_rig rig = begin_rig(1, SOFTCUDA_RANDOM);
    float *x = pinned_memory(N * 4), *out = pinned_memory(N * 4), *result = pinned_memory(N * 4);
    float *device_x = device_memory(N * 4), *device_out = device_memory(N * 4);
    for (int i = 0; i < N; i++) {
        x[i] = (float)i;
        out[i] = 0.5f;
    }
    OK(cudaMemcpyAsync(device_x, x, N * 4, cudaMemcpyHostToDevice, rig.first));
    OK(cudaMemcpyAsync(device_out, out, N * 4, cudaMemcpyHostToDevice, rig.first));
    OK(launch_scale_and_add(rig.first, device_x, device_out, N, 3));
    copy_now(rig.first, result, device_out, N * 4);
    for (int i = 0; i < N; i++) cr_assert_eq(result[i], 3 * (float)i + 0.5f);
    NOTHING_REPORTED();
}

Test(softcuda, sums_through_shuffles_and_shared_memory_the_same_under_every_seed) {
    enum { BLOCKS = (N + STRETCH - 1) / STRETCH };
    soft_rig rig = begin_rig(1, SOFTCUDA_RANDOM);
    float *x = pinned_memory(N * 4), *sums = pinned_memory(BLOCKS * 4), first[BLOCKS];
    float *device_x = device_memory(N * 4), *device_sums = device_memory(BLOCKS * 4);
    for (int i = 0; i < N; i++) x[i] = sinf((float)i);
    copy_now(rig.first, device_x, x, N * 4);
    for (uint64_t seed = 1; seed < 10; seed++) {
        softcuda_restart(seed, SOFTCUDA_RANDOM);
        OK(launch_sum_blocks(rig.first, device_x, device_sums, N, STRETCH));
        copy_now(rig.first, sums, device_sums, BLOCKS * 4);
        for (int b = 0; b < BLOCKS; b++) {
            double exact = 0;
            for (int i = b * STRETCH; i < (b + 1) * STRETCH && i < N; i++) exact += x[i];
            cr_assert_float_eq(sums[b], exact, 1e-4);
        }
        if (seed == 1) memcpy(first, sums, sizeof first);
        cr_assert_eq(memcmp(first, sums, sizeof first), 0);
        NOTHING_REPORTED();
    }
}

/* Runs it under some seeds: in how many the result is right. */
static int turned_around(int has_barrier) {
    enum { BLOCKS = 3, COUNT = 256 * BLOCKS, SEEDS = 10 };
    soft_rig rig = begin_rig(1, SOFTCUDA_LAZY);
    int *x = pinned_memory(COUNT * 4), *out = pinned_memory(COUNT * 4), right = 0;
    int *device_x = device_memory(COUNT * 4), *device_out = device_memory(COUNT * 4);
    for (int i = 0; i < COUNT; i++) x[i] = i;
    copy_now(rig.first, device_x, x, COUNT * 4);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        softcuda_restart(seed, SOFTCUDA_RANDOM);
        OK(launch_turn_around(rig.first, device_x, device_out, BLOCKS, has_barrier));
        copy_now(rig.first, out, device_out, COUNT * 4);
        bool is_right = true;
        for (int i = 0; i < COUNT; i++) is_right &= out[i] == i / 256 * 256 + 255 - i % 256;
        right += is_right;
    }
    return right;
}

Test(softcuda, keeps_barriers) { cr_assert_eq(turned_around(1), 10); }
Test(softcuda, makes_a_missing_barrier_wrong) { cr_assert_eq(turned_around(0), 0); }

Test(softcuda, shuffles_votes_and_atomics_are_as_on_a_device) {
    soft_rig rig = begin_rig(1, SOFTCUDA_RANDOM);
    unsigned *out = pinned_memory(32), *device_out = device_memory(32);
    OK(cudaMemsetAsync(device_out, 0, 32, rig.first));
    OK(launch_warp_facts(rig.first, device_out));
    copy_now(rig.first, out, device_out, 32);
    const unsigned expected[] = {0xaaaaaaaau, 4, 6, 30, 128, 63, ~0u, 0x3f800000u + 1};
    for (int i = 0; i < 8; i++) cr_assert_eq(out[i], expected[i], "%d: %u", i, out[i]);
    NOTHING_REPORTED();
}

static cudaError_t launch_alone(wrong_kernel which) {
    soft_rig rig = begin_rig(3, SOFTCUDA_LAZY);
    int *out = device_memory(256);
    cudaError_t code = launch_wrong(rig.first, which, out);
    OK(cudaStreamSynchronize(rig.first));
    return code;
}

Test(softcuda, reports_barriers_that_part_a_block) {
    OK(launch_alone(PART_AT_BARRIERS));
    REPORTED("barrier: threads of a block of part_at_barriers meet");
}

Test(softcuda, reports_threads_that_leave_before_a_barrier) {
    OK(launch_alone(LEAVE_BEFORE_BARRIER));
    REPORTED("barrier: 1 threads of leave_before_barrier have left it");
}

Test(softcuda, reports_lanes_that_leave_before_a_shuffle_and_goes_on) {
    OK(launch_alone(LEAVE_BEFORE_SHUFFLE));
    REPORTED("barrier: 31 of 32 threads of a block of leave_before_shuffle never go on");
    soft_rig rig = begin_rig(1, SOFTCUDA_EAGER);
    OK(launch_warp_facts(rig.first, device_memory(32)));
    NOTHING_REPORTED();
}

Test(softcuda, reports_masks_without_all_lanes) {
    OK(launch_alone(USE_HALF_A_MASK));
    REPORTED("warp: an operation of use_half_a_mask");
}

Test(softcuda, refuses_launches_that_a_device_refuses) {
    cr_assert_eq(launch_alone(NO_BLOCKS), cudaErrorInvalidConfiguration);
    cr_assert_eq(launch_alone(ODD_BLOCK), cudaErrorInvalidConfiguration);
    REPORTED("warp: write_at is launched with 40 threads");
    cr_assert_eq(launch_alone(MUCH_SHARED), cudaErrorInvalidValue);
    OK(allow_much_shared());
    OK(launch_alone(MUCH_SHARED));
}

#ifdef __SANITIZE_ADDRESS__
Test(softcuda, ends_kernels_that_touch_what_they_do_not_declare, .exit_code = 1) { launch_alone(UNDECLARED); }
#endif
