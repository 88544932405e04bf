#include "runtime/comm/selftest.h"

#include "runtime/base/clock.h"
#include "runtime/base/dtype.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <string.h>

enum {
    FULL_COUNT = SHD_SELFTEST_BYTES / (int)sizeof(float), /* before it is cut to what ranks can share evenly */
    ALIGN_COUNT = 256,
    EXCHANGES = 50,
    REPEATS = 5,
};

typedef struct selftest {
    const shd_comm_config *config;
    shd_mesh mesh;
    shd_comm *comm;
    int64_t shard_count, full_count; /* floats */
    float *mine;                     /* exported, [full_count] */
    float *all;                      /* private, [full_count] */
    shd_selftest_result result;
} selftest;

/* Floats of magnitudes from 2⁻¹² to 2¹², no two ranks' or places' alike. */
static float value_of(int32_t rank, int64_t index) {
    uint64_t x = (uint64_t)(rank + 1) * 0x9e3779b97f4a7c15u + (uint64_t)index * 0xd1b54a32d192ed03u;
    x = (x ^ x >> 32) * 0xbf58476d1ce4e5b9u;
    x ^= x >> 29;
    float unit = (float)(int32_t)(x >> 40) / 16777216.0f - 0.5f;
    uint32_t bits = (uint32_t)(127 + (int)(x & 31) % 24 - 12) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return unit * scale;
}

static bool is_same(float a, float b) { return memcmp(&a, &b, sizeof a) == 0; }

/* Tells this rank and the others what is broken. */
static sherd_status accuse(selftest *t, const char *what, int64_t index, float found, float right) {
    sherd_status status = shd_fail(SHERD_INTERNAL, "%s is wrong on rank %d: element %lld is %.9g, and %.9g is right",
                                   what, t->mesh.rank, (long long)index, found, right);
    shd_comm_fail(t->comm, status, sherd_last_error());
    return status;
}

static sherd_status meet_all(selftest *t) {
    char all[SHD_COMM_MAX_RANKS];
    return shd_comm_exchange(t->comm, "", 1, all);
}

/* --- one collective after another --------------------------------------------------------------------------------- */

static sherd_status test_exchange(selftest *t) {
    float mine[4], all[4 * SHD_COMM_MAX_RANKS];
    double start_ms = shd_clock_ms();
    for (int n = 0; n < EXCHANGES; n++) {
        for (int i = 0; i < 4; i++) mine[i] = value_of(t->mesh.rank, 4 * n + i);
        SHD_TRY(shd_comm_exchange(t->comm, mine, sizeof mine, all));
        for (int i = 0; i < 4 * t->mesh.world_size; i++)
            if (!is_same(all[i], value_of(i / 4, 4 * n + i % 4)))
                return accuse(t, "an exchange", i, all[i], value_of(i / 4, 4 * n + i % 4));
    }
    t->result.exchange_us = (shd_clock_ms() - start_ms) / EXCHANGES * 1e3;
    return SHERD_OK;
}

/* Signals are seen by all, and what was written before them. */
static sherd_status test_signal(selftest *t) {
    shd_patience patience = {0};
    t->mine[0] = value_of(t->mesh.rank, -1);
    shd_comm_signal(t->comm, 0, 0);
    while (!shd_comm_reached(t->comm, SHD_SCOPE_ALL, 0, 0, 1)) SHD_TRY(shd_comm_pause(t->comm, &patience, "a signal"));
    for (int32_t place = 0; place < shd_mesh_split(&t->mesh); place++) {
        const float *theirs = shd_comm_peer(t->comm, place, t->mine, sizeof *t->mine);
        float right = value_of(shd_mesh_member(&t->mesh, SHD_SCOPE_GROUP, place), -1);
        if (!is_same(*theirs, right)) return accuse(t, "what peers share", 0, *theirs, right);
    }
    return meet_all(t);
}

static void fill(selftest *t) {
    for (int64_t i = 0; i < t->full_count; i++) t->mine[i] = value_of(t->mesh.rank, i);
}

static double rate_of(int64_t bytes, double ms) { return ms > 0 ? (double)(bytes * REPEATS) / ms * 1e3 : 0; }

static sherd_status test_gather(selftest *t) {
    const int64_t bytes = t->shard_count * (int64_t)sizeof(float);
    fill(t);
    SHD_TRY(meet_all(t));
    double start_ms = shd_clock_ms();
    for (int n = 0; n < REPEATS; n++) {
        SHD_TRY(shd_comm_announce(t->comm, SHD_COLLECTIVE_GATHER, 0, bytes));
        SHD_TRY(shd_comm_gather(t->comm, SHD_COLLECTIVE_GATHER, t->all, t->mine, bytes));
    }
    SHD_TRY(meet_all(t));
    t->result.gather_bytes_per_s = rate_of(t->full_count * (int64_t)sizeof(float), shd_clock_ms() - start_ms);
    for (int64_t i = 0; i < t->full_count; i++) {
        int32_t rank = shd_mesh_member(&t->mesh, SHD_SCOPE_GROUP, (int32_t)(i / t->shard_count));
        float right = value_of(rank, i % t->shard_count);
        if (!is_same(t->all[i], right)) return accuse(t, "a gather", i, t->all[i], right);
    }
    return SHERD_OK;
}

/* What is exchanged in `dtype`, as fp32. */
static float rounded(float value, sherd_dtype dtype) {
    return dtype == SHERD_BF16 ? shd_bf16_widen(shd_bf16_round(value)) : value;
}

/* The left fold in order of places, each sum rounded to fp32. */
static float fold(const selftest *t, int64_t index, sherd_dtype dtype) {
    float sum = rounded(value_of(shd_mesh_member(&t->mesh, SHD_SCOPE_GROUP, 0), index), dtype);
    for (int32_t place = 1; place < shd_mesh_split(&t->mesh); place++)
        sum += rounded(value_of(shd_mesh_member(&t->mesh, SHD_SCOPE_GROUP, place), index), dtype);
    return sum;
}

static sherd_status test_reduce(selftest *t, sherd_dtype dtype, const char *name, double *rate) {
    uint16_t *half = (uint16_t *)t->mine;
    const int64_t first = shd_mesh_place(&t->mesh) * t->shard_count;
    if (dtype == SHERD_FP32) fill(t);
    for (int64_t i = 0; dtype == SHERD_BF16 && i < t->full_count; i++)
        half[i] = shd_bf16_round(value_of(t->mesh.rank, i));
    SHD_TRY(meet_all(t));
    double start_ms = shd_clock_ms();
    for (int n = 0; n < REPEATS; n++) {
        SHD_TRY(shd_comm_announce(t->comm, SHD_COLLECTIVE_REDUCE, 0, t->shard_count));
        SHD_TRY(shd_comm_reduce(t->comm, t->all, t->mine, dtype, t->shard_count, true));
    }
    SHD_TRY(meet_all(t));
    *rate = rate_of(shd_span_bytes(dtype, t->full_count), shd_clock_ms() - start_ms);
    for (int64_t i = 0; i < t->shard_count; i++) {
        float right = fold(t, first + i, dtype);
        if (!is_same(t->all[i], right)) return accuse(t, name, first + i, t->all[i], right);
    }
    return SHERD_OK;
}

/* The sum of the replicas' values in their order, in every part of `mine`, in the end on every rank. */
static sherd_status test_replicas(selftest *t) {
    const int64_t count = t->full_count, part = count / t->mesh.replicas, bytes = count * (int64_t)sizeof(float);
    fill(t);
    SHD_TRY(meet_all(t));
    double start_ms = shd_clock_ms();
    SHD_TRY(shd_comm_reduce_replicas(t->comm, t->mine, count, part));
    SHD_TRY(meet_all(t));
    double middle_ms = shd_clock_ms();
    SHD_TRY(shd_comm_gather_replicas(t->comm, t->mine, count, part));
    SHD_TRY(meet_all(t));
    t->result.reduce_replicas_bytes_per_s = rate_of(bytes, middle_ms - start_ms) / REPEATS;
    t->result.gather_replicas_bytes_per_s = rate_of(bytes, shd_clock_ms() - middle_ms) / REPEATS;
    for (int64_t i = 0; i < count; i++) {
        float right = value_of(shd_mesh_member(&t->mesh, SHD_SCOPE_REPLICAS, 0), i);
        for (int32_t r = 1; r < t->mesh.replicas; r++)
            right += value_of(shd_mesh_member(&t->mesh, SHD_SCOPE_REPLICAS, r), i);
        if (!is_same(t->mine[i], right)) return accuse(t, "a sum over replicas", i, t->mine[i], right);
    }
    return meet_all(t);
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static sherd_status run(selftest *t) {
    t->mine = shd_comm_exported(t->comm, t->mesh.rank);
    SHD_TRY(test_exchange(t));
    SHD_TRY(test_signal(t));
    if (shd_mesh_split(&t->mesh) > 1) {
        SHD_TRY(test_gather(t));
        SHD_TRY(test_reduce(t, SHERD_FP32, "a reduce", &t->result.reduce_bytes_per_s));
        SHD_TRY(test_reduce(t, SHERD_BF16, "a reduce of bf16", &t->result.reduce_bf16_bytes_per_s));
    }
    return t->mesh.replicas > 1 ? test_replicas(t) : SHERD_OK;
}

sherd_status shd_comm_selftest(const shd_comm_config *config, shd_selftest_result *out) {
    shd_comm_config wanted = *config;
    if (wanted.replicas == 0) wanted.replicas = 1;
    selftest t = {.config = config,
                  .mesh = {.rank = config->rank, .world_size = config->world_size, .replicas = wanted.replicas}};
    const int64_t cuts = (int64_t)shd_mesh_split(&t.mesh) * t.mesh.replicas * ALIGN_COUNT;
    t.full_count = FULL_COUNT / cuts * cuts;
    t.shard_count = t.full_count / shd_mesh_split(&t.mesh);
    const int64_t bytes = t.full_count * (int64_t)sizeof(float);
    wanted.exported_bytes = bytes;
    wanted.host_bytes = 0;
    wanted.unit_count = 1;
    double start_ms = shd_clock_ms();
    SHD_TRY(shd_comm_create(&wanted, &t.comm));
    t.result.meet_ms = shd_clock_ms() - start_ms;
    t.all = shd_map(bytes);
    sherd_status status = t.all ? run(&t) : shd_fail(SHERD_MEMORY, "no memory for %lld bytes", (long long)bytes);
    if (!t.all) shd_comm_fail(t.comm, status, sherd_last_error());
    shd_comm_destroy(t.comm);
    shd_unmap(t.all, bytes);
    if (status == SHERD_OK) *out = t.result;
    return status;
}
