/* The test of the collectives: what is right passes it, on any mesh; what is broken it finds, names, and tells all ranks. */
#include "runtime/comm/selftest.h"
#include "tests/comm/ranks.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* What is broken, in every process: the calls of selftest.c come here first (the linker's --wrap). */
typedef enum breakage { NOTHING, GATHER, REDUCE, ORDER, REPLICAS, EXCHANGE } breakage;

typedef struct meeting {
    char name[64];
    int32_t replicas;
    breakage broken;
} meeting;

static breakage broken;
static int32_t own_rank;

sherd_status __real_shd_comm_gather(shd_comm *comm, shd_collective collective, void *full, const void *shard,
                                    int64_t shard_bytes);
sherd_status __wrap_shd_comm_gather(shd_comm *comm, shd_collective collective, void *full, const void *shard,
                                    int64_t shard_bytes);
sherd_status __wrap_shd_comm_gather(shd_comm *comm, shd_collective collective, void *full, const void *shard,
                                    int64_t shard_bytes) {
    sherd_status status = __real_shd_comm_gather(comm, collective, full, shard, shard_bytes);
    /* The last byte of all, of one rank alone. */
    if (broken == GATHER && own_rank == 1) ((unsigned char *)full)[2 * shard_bytes - 1] ^= 1;
    return status;
}

sherd_status __real_shd_comm_reduce(shd_comm *comm, float *accumulator, const void *contribution, sherd_dtype dtype,
                                    int64_t shard_count, bool first);
sherd_status __wrap_shd_comm_reduce(shd_comm *comm, float *accumulator, const void *contribution, sherd_dtype dtype,
                                    int64_t shard_count, bool first);
sherd_status __wrap_shd_comm_reduce(shd_comm *comm, float *accumulator, const void *contribution, sherd_dtype dtype,
                                    int64_t shard_count, bool first) {
    sherd_status status = __real_shd_comm_reduce(comm, accumulator, contribution, dtype, shard_count, first);
    if (broken == REDUCE && own_rank == 0) accumulator[shard_count / 2] *= 1.0000002f;
    /* The same numbers in another order: 2 ranks cannot tell, 3 can. */
    if (broken == ORDER && own_rank == 2 && dtype == SHERD_FP32)
        for (int64_t i = 0; i < shard_count; i++) {
            const int64_t at = 2 * shard_count + i;
            float sum = ((const float *)shd_comm_exported(comm, 2))[at];
            sum += ((const float *)shd_comm_exported(comm, 1))[at];
            accumulator[i] = sum + ((const float *)shd_comm_exported(comm, 0))[at];
        }
    return status;
}

sherd_status __real_shd_comm_reduce_replicas(shd_comm *comm, float *values, int64_t count, int64_t part_count);
sherd_status __wrap_shd_comm_reduce_replicas(shd_comm *comm, float *values, int64_t count, int64_t part_count);
sherd_status __wrap_shd_comm_reduce_replicas(shd_comm *comm, float *values, int64_t count, int64_t part_count) {
    sherd_status status = __real_shd_comm_reduce_replicas(comm, values, count, part_count);
    if (broken == REPLICAS && own_rank == 0) values[0] += values[0];
    return status;
}

sherd_status __real_shd_comm_exchange(shd_comm *comm, const void *mine, int64_t bytes, void *all);
sherd_status __wrap_shd_comm_exchange(shd_comm *comm, const void *mine, int64_t bytes, void *all);
sherd_status __wrap_shd_comm_exchange(shd_comm *comm, const void *mine, int64_t bytes, void *all) {
    sherd_status status = __real_shd_comm_exchange(comm, mine, bytes, all);
    if (broken == EXCHANGE && own_rank == 1 && bytes > 1) ((unsigned char *)all)[0] ^= 0x80;
    return status;
}

static int body(int32_t rank, int32_t world, void *argument) {
    const meeting *told = argument;
    shd_selftest_result found;
    shd_comm_config config = ranks_config(rank, world, told->name, 0);
    config.replicas = told->replicas;
    broken = told->broken;
    own_rank = rank;
    sherd_status status = shd_comm_selftest(&config, &found);
    if (status != SHERD_OK) return (int)status % 100;
    if (found.exchange_us <= 0 || (found.gather_bytes_per_s > 0) != (world > told->replicas)) return 90;
    return (found.reduce_replicas_bytes_per_s > 0) == (told->replicas > 1) ? 0 : 91;
}

static ranks_result run(int32_t world, int32_t replicas, breakage what) {
    meeting told = {.replicas = replicas, .broken = what};
    ranks_new_name(told.name, sizeof told.name);
    return ranks_run(AS_PROCESSES, world, body, &told, 60);
}

Test(selftest, passes_on_every_mesh, .timeout = 120) {
    static const int32_t meshes[][2] = {{1, 1}, {2, 1}, {3, 1}, {8, 1}, {2, 2}, {4, 2}};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        ranks_result result = run(meshes[i][0], meshes[i][1], NOTHING);
        for (int32_t r = 0; r < meshes[i][0]; r++)
            cr_expect_eq(result.code[r], 0, "%d ranks, %d replicas, rank %d: %s", meshes[i][0], meshes[i][1], r,
                         result.text[r]);
    }
}

/* One rank says what is wrong with what; the others say that this one failed, and why. */
static void expect_found(int32_t world, int32_t replicas, breakage what, int32_t culprit, const char *words) {
    ranks_result result = run(world, replicas, what);
    for (int32_t r = 0; r < world; r++) {
        cr_expect_eq(result.code[r], r == culprit ? SHERD_INTERNAL : SHERD_PEER % 100, "rank %d ended with %d: %s", r,
                     result.code[r], result.text[r]);
        cr_expect(strstr(result.text[r], words), "rank %d does not say '%s': %s", r, words, result.text[r]);
    }
}

Test(selftest, finds_one_wrong_bit_of_a_gather_on_one_rank, .timeout = 60) {
    expect_found(2, 1, GATHER, 1, "a gather is wrong on rank 1");
}

Test(selftest, finds_one_wrong_element_of_a_reduce_on_one_rank, .timeout = 60) {
    expect_found(2, 1, REDUCE, 0, "a reduce is wrong on rank 0");
}

Test(selftest, finds_a_sum_in_another_order, .timeout = 60) {
    expect_found(3, 1, ORDER, 2, "a reduce is wrong on rank 2");
}

Test(selftest, finds_a_wrong_sum_over_replicas, .timeout = 60) {
    /* Every rank gathers it; which of them speaks first is chance. */
    ranks_result result = run(2, 2, REPLICAS);
    int said = 0;
    for (int32_t r = 0; r < 2; r++) {
        cr_expect_neq(result.code[r], 0);
        said += strstr(result.text[r], "a sum over replicas is wrong") != NULL;
    }
    cr_expect_gt(said, 0);
}

Test(selftest, finds_a_wrong_exchange, .timeout = 60) {
    expect_found(2, 1, EXCHANGE, 1, "an exchange is wrong on rank 1");
}
