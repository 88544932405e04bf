/* What gather, reduce and exchange compute, on ranks that are threads and on ranks that are processes. */
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

/* Two micro-steps: the first sets the accumulator, the second adds to it. */
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
    char all[RANKS_MAX];
    if (shd_comm_exchange(comm, "", 1, all)) return 2;
    if (shd_comm_reduce(comm, sum, gradients, SHERD_FP32, count, true)) return 3;
    if (shd_comm_reduce(comm, sum, gradients + count * world, SHERD_FP32, count, false)) return 4;
    for (int64_t i = 0; i < count; i++) {
        volatile float expected = 0;
        for (int64_t step = 0; step < 2; step++)
            for (int32_t r = 0; r < world; r++) {
                int64_t at = step * count * world + rank * count + i;
                float term = at == 1 && world * count > 2 ? -0.0f : value_of(r, at);
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
        for (int s = 0; s < 5; s++) both_styles(worlds[w], reduce_body, &(job){.shard = shards[s]});
}
