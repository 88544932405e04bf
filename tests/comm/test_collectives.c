/* What gather, reduce and exchange compute, on ranks that are threads and on ranks that are processes. */
#include "runtime/base/dtype.h"
#include "runtime/device/pool.h"
#include "tests/comm/ranks.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int32_t worlds[] = {1, 2, 3, 4, 8};
enum { WORLDS = sizeof worlds / sizeof *worlds };

typedef struct job {
    char name[64];
    int64_t shard; /* elements */
    int32_t replicas;
    bool flag;
} job;

/* A value that any rank can work out, of wildly differing size so that the order of additions shows in the bits. */
static float value_of(int32_t rank, int64_t index) {
    uint64_t x = (uint64_t)(rank + 1) * 0x9e3779b97f4a7c15 + (uint64_t)index * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 31) * 0x94d049bb133111eb;
    x ^= x >> 29;
    double unit = (double)(x >> 11) / 9007199254740992.0 - 0.5;
    return (float)ldexp(unit, (int)(x % 23) - 11);
}

static bool same_bits(float a, float b) { return !memcmp(&a, &b, sizeof a); }

static void both_styles(int32_t world, rank_fn body, job *work) {
    for (int style = AS_THREADS; style <= AS_PROCESSES; style++) {
        ranks_new_name(work->name, sizeof work->name);
        ranks_result result = ranks_run((rank_style)style, world, body, work, 30);
        cr_assert(ranks_all_ok(&result, world), "world size %d, style %d, shard %lld", world, style,
                  (long long)work->shard);
    }
}

/* Odd ranks work with three threads, even ones alone. */
static sherd_status meet(int32_t rank, int32_t world, const job *work, int64_t exported_bytes, shd_pool **pool,
                         shd_comm **comm) {
    shd_comm_config config = ranks_config(rank, world, work->name, exported_bytes);
    *pool = NULL;
    if (rank % 2 && shd_pool_create(3, pool)) return SHERD_MEMORY;
    config.pool = *pool;
    return shd_comm_create(&config, comm);
}

static void part(shd_pool *pool, shd_comm *comm) {
    shd_comm_destroy(comm);
    shd_pool_destroy(pool);
}

/* --- gather ------------------------------------------------------------------------------------------------------- */

/* `flag`: in place of an exported full buffer; otherwise into private memory. */
static int gather_body(int32_t rank, int32_t world, void *argument) {
    const job *work = argument;
    int64_t count = work->shard, bytes = count * 4;
    shd_pool *pool;
    shd_comm *comm;
    if (meet(rank, world, work, 192 + (work->flag ? world : 1) * bytes, &pool, &comm)) return 1;
    float *base = (float *)((char *)shd_comm_exported(comm, rank) + 192);
    float *shard = base + (work->flag ? rank * count : 0);
    float *full = work->flag ? base : malloc((size_t)(world * bytes) + 64);
    for (int64_t i = 0; i < count; i++) shard[i] = value_of(rank, i);
    char all[RANKS_MAX];
    if (shd_comm_exchange(comm, "", 1, all)) return 4;
    if (shd_comm_gather(comm, SHD_COLLECTIVE_GATHER, full, shard, bytes)) return 5;
    for (int32_t r = 0; r < world; r++)
        for (int64_t i = 0; i < count; i++)
            if (!same_bits(full[r * count + i], value_of(r, i))) return 6;
    if (shd_comm_exchange(comm, "", 1, all)) return 7;
    if (full != base) free(full);
    part(pool, comm);
    return 0;
}

Test(collectives, a_gather_brings_every_ranks_shard_to_its_place, .timeout = 60) {
    static const int64_t shards[] = {0, 16, 17 * 257 / 16 * 16, 3 * 65536 + 16};
    for (int w = 0; w < WORLDS; w++)
        for (int s = 0; s < 4; s++)
            for (int in_place = 0; in_place < 2; in_place++)
                both_styles(worlds[w], gather_body, &(job){.shard = shards[s], .flag = in_place});
}

/* --- reduce ------------------------------------------------------------------------------------------------------- */

/* What `value` is in the type that is exchanged. */
static float exchanged(sherd_dtype dtype, float value) {
    return dtype == SHERD_BF16 ? shd_bf16_widen(shd_bf16_round(value)) : value;
}

/* Two micro-steps: the first sets the accumulator, the second adds to it. With the flag gradients are bf16. */
static int reduce_body(int32_t rank, int32_t world, void *argument) {
    const job *work = argument;
    int64_t count = work->shard;
    shd_pool *pool;
    shd_comm *comm;
    if (meet(rank, world, work, 128 + 2 * 4 * count * world, &pool, &comm)) return 1;
    float *gradients = (float *)((char *)shd_comm_exported(comm, rank) + 128);
    float *sum = malloc((size_t)count * 4 + 64);
    for (int64_t i = 0; i < count + 16; i++) sum[i] = NAN; /* the first must set, and nothing beyond may change */
    for (int64_t i = 0; i < 2 * count * world; i++) gradients[i] = value_of(rank, i);
    if (world * count > 2) gradients[1] = -0.0f;
    sherd_dtype dtype = work->flag ? SHERD_BF16 : SHERD_FP32;
    uint16_t *halves = (uint16_t *)gradients;
    for (int64_t i = 0; work->flag && i < 2 * count * world; i++) halves[i] = shd_bf16_round(gradients[i]);
    const char *second = (const char *)gradients + count * world * shd_dtype_bytes(dtype);
    char all[RANKS_MAX];
    if (shd_comm_exchange(comm, "", 1, all)) return 2;
    if (shd_comm_reduce(comm, sum, gradients, dtype, count, true)) return 3;
    if (shd_comm_reduce(comm, sum, second, dtype, count, false)) return 4;
    for (int64_t i = 0; i < count; i++) {
        volatile float expected = 0;
        for (int64_t step = 0; step < 2; step++)
            for (int32_t r = 0; r < world; r++) {
                int64_t at = step * count * world + rank * count + i;
                float term = exchanged(dtype, at == 1 && world * count > 2 ? -0.0f : value_of(r, at));
                expected = step == 0 && r == 0 ? term : expected + term;
            }
        if (!same_bits(sum[i], expected)) return 5;
    }
    for (int64_t i = count; i < count + 16; i++)
        if (!isnan(sum[i])) return 6;
    if (shd_comm_exchange(comm, "", 1, all)) return 7;
    free(sum);
    part(pool, comm);
    return 0;
}

Test(collectives, a_reduce_is_the_rank_ordered_fold_bit_for_bit, .timeout = 60) {
    static const int64_t shards[] = {0, 1, 17, 17 * 257, 65536 + 2048 + 5};
    for (int w = 0; w < WORLDS; w++)
        for (int s = 0; s < 5; s++)
            for (int half = 0; half <= 1; half++)
                both_styles(worlds[w], reduce_body, &(job){.shard = shards[s], .flag = half});
}

/* --- replicas ----------------------------------------------------------------------------------------------------- */

static sherd_status meet_replicas(int32_t rank, int32_t world, const job *work, shd_comm **comm) {
    shd_comm_config config = ranks_config(rank, world, work->name, 128 + 2 * 4 * work->shard + 64);
    config.replicas = work->replicas;
    config.host_bytes = 64;
    return shd_comm_create(&config, comm);
}

/* Whole blocks of 256 for each replica; where the part of replica `p` begins. */
static int64_t part_size(const job *work) {
    return ((work->shard + work->replicas - 1) / work->replicas + 255) / 256 * 256;
}
static int64_t part_begin(const job *work, int32_t p) {
    int64_t begin = p * part_size(work);
    return begin < work->shard ? begin : work->shard;
}

static float replica_sum(int32_t place, int32_t split, int32_t replicas, int64_t i) {
    volatile float sum = value_of(place, i);
    for (int32_t p = 1; p < replicas; p++) sum = sum + value_of(p * split + place, i);
    return sum;
}

/* First the own part alone is changed, then all of it is there. */
static int replicas_body(int32_t rank, int32_t world, void *argument) {
    const job *work = argument;
    int32_t split = world / work->replicas, own = rank / split;
    int64_t count = work->shard, part = part_size(work);
    shd_comm *comm;
    if (meet_replicas(rank, world, work, &comm)) return 1;
    float *values = (float *)((char *)shd_comm_exported(comm, rank) + 128);
    for (int64_t i = 0; i < count; i++) values[i] = value_of(rank, i);
    char all[RANKS_MAX];
    if (shd_comm_exchange(comm, "", 1, all)) return 2;
    if (shd_comm_reduce_replicas(comm, values, count, part)) return 3;
    for (int64_t i = 0; i < count; i++) {
        bool mine = i >= part_begin(work, own) && i < part_begin(work, own + 1);
        float expected = mine ? replica_sum(rank % split, split, work->replicas, i) : value_of(rank, i);
        if (!same_bits(values[i], expected)) return 4;
    }
    if (shd_comm_exchange(comm, "", 1, all)) return 5;
    if (shd_comm_gather_replicas(comm, values, count, part)) return 6;
    for (int64_t i = 0; i < count; i++)
        if (!same_bits(values[i], replica_sum(rank % split, split, work->replicas, i))) return 7;
    if (shd_comm_exchange(comm, "", 1, all)) return 8;
    shd_comm_destroy(comm);
    return 0;
}

Test(collectives, replicas_add_up_their_parts_in_order_and_copy_the_others, .timeout = 60) {
    static const int32_t meshes[][2] = {{2, 1}, {2, 2}, {3, 3}, {4, 2}, {6, 2}, {6, 3}, {8, 4}}; /* ranks, replicas */
    static const int64_t counts[] = {0, 256, 1024, 17 * 256, 3 * 65536 + 512};
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
        for (int s = 0; s < 5; s++)
            both_styles(meshes[m][0], replicas_body, &(job){.shard = counts[s], .replicas = meshes[m][1]});
}

/* Gathers, reduces, awaits and HOST memory are those of a shard group: two replicas of two ranks, of which the second
 * has not come to signal. */
static int groups_body(int32_t rank, int32_t world, void *argument) {
    const job *work = argument;
    shd_comm *comm;
    if (meet_replicas(rank, world, work, &comm)) return 1;
    int32_t split = world / work->replicas, place = rank % split, first = rank - place;
    char all[RANKS_MAX];
    int32_t *host = shd_comm_host(comm);
    if (place == 0) *host = rank;
    float *shard = (float *)((char *)shd_comm_exported(comm, rank) + 128), full[2 * 16], sum[16];
    for (int64_t i = 0; i < 32; i++) shard[i] = value_of(rank, i);
    if (first == 0) shd_comm_signal(comm, 1, 0);
    if (shd_comm_exchange(comm, "", 1, all)) return 2;
    if (*host != first) return 3;
    if (shd_comm_gather(comm, SHD_COLLECTIVE_GATHER, full, shard, 64)) return 4;
    for (int64_t i = 0; i < 32; i++)
        if (!same_bits(full[i], value_of(first + (int32_t)(i / 16), i % 16))) return 5;
    if (shd_comm_reduce(comm, sum, shard, SHERD_FP32, 16, true)) return 6;
    for (int64_t i = 0; i < 16; i++)
        if (!same_bits(sum[i], value_of(first, place * 16 + i) + value_of(first + 1, place * 16 + i))) return 7;
    if (shd_comm_reached(comm, SHD_SCOPE_GROUP, 1, 0, 1) != (first == 0)) return 8;
    if (shd_comm_reached(comm, SHD_SCOPE_REPLICAS, 1, 0, 1) || shd_comm_reached(comm, SHD_SCOPE_ALL, 1, 0, 1)) return 9;
    if (shd_comm_exchange(comm, "", 1, all)) return 10;
    if (rank == 2) shd_comm_signal(comm, 1, 0);
    if (shd_comm_exchange(comm, "", 1, all)) return 11;
    if (shd_comm_reached(comm, SHD_SCOPE_REPLICAS, 1, 0, 1) != (place == 0)) return 12;
    if (shd_comm_exchange(comm, "", 1, all)) return 13;
    shd_comm_destroy(comm);
    return 0;
}

Test(collectives, a_shard_group_keeps_to_itself, .timeout = 60) {
    both_styles(4, groups_body, &(job){.shard = 64, .replicas = 2});
}
