/* The wrapper over the backends: checks arguments, counts, compares what the ranks issue, spreads failures, waits.
 *
 * Invariant: once a failure is recorded with the backend, every later call that can fail returns it, on every rank. */
#include "runtime/comm/comm.h"

#include "runtime/base/arith.h"
#include "runtime/base/clock.h"
#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/comm/backend.h"
#include "runtime/comm/watch.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *shd_collective_text(shd_collective collective) {
    static const char *const texts[SHD_COLLECTIVES] = {
        [SHD_COLLECTIVE_GATHER] = "GATHER",     [SHD_COLLECTIVE_GATHER_GRADIENT] = "GATHER_GRADIENT",
        [SHD_COLLECTIVE_REDUCE] = "REDUCE",     [SHD_COLLECTIVE_REDUCE_REPLICAS] = "REDUCE_REPLICAS",
        [SHD_COLLECTIVE_EXCHANGE] = "EXCHANGE", [SHD_COLLECTIVE_PEEK] = "PEEK",
    };
    return collective >= 0 && collective < SHD_COLLECTIVES ? texts[collective] : "unknown collective";
}

/* --- life --------------------------------------------------------------------------------------------------------- */

static sherd_status check_config(const shd_comm_config *config) {
    if (config->world_size < 1 || config->world_size > SHD_COMM_MAX_RANKS)
        return shd_fail(SHERD_ARGUMENT, "world size %d is not between 1 and %d", config->world_size,
                        SHD_COMM_MAX_RANKS);
    if (config->rank < 0 || config->rank >= config->world_size)
        return shd_fail(SHERD_ARGUMENT, "rank %d is not between 0 and %d, the world size being %d", config->rank,
                        config->world_size - 1, config->world_size);
    if (config->replicas < 0 || (config->replicas && config->world_size % config->replicas))
        return shd_fail(SHERD_ARGUMENT, "%d replicas do not divide %d ranks", config->replicas, config->world_size);
    if (config->world_size > 1 && (!config->rendezvous || !*config->rendezvous))
        return shd_fail(SHERD_ARGUMENT, "%d ranks need a rendezvous name to meet under", config->world_size);
    if (config->exported_bytes < 0 || config->host_bytes < 0 || config->unit_count < 0)
        return shd_fail(SHERD_ARGUMENT, "negative sizes: exported %lld bytes, host %lld bytes, %d units",
                        (long long)config->exported_bytes, (long long)config->host_bytes, config->unit_count);
    if (!isfinite(config->timeout_s) || config->timeout_s <= 0 || !isfinite(config->start_timeout_s) ||
        config->start_timeout_s <= 0)
        return shd_fail(SHERD_ARGUMENT, "time-outs of %g s and, at the start, %g s: both must be positive and finite",
                        config->timeout_s, config->start_timeout_s);
    return SHERD_OK;
}

/* The backend's HOST arena holds those of all shard groups. */
static sherd_status open_backend(shd_comm *comm, const shd_comm_config *config) {
    shd_comm_config whole = *config;
    whole.replicas = comm->mesh.replicas;
    if (!shd_mul_checked(config->host_bytes, whole.replicas, &whole.host_bytes))
        return shd_fail(SHERD_ARGUMENT, "%d replicas of %lld bytes on the host: out of range", whole.replicas,
                        (long long)config->host_bytes);
    return comm->backend->open(&whole, &comm->state);
}

/* The recorder that the config or the backend has; else one that only this rank reaches. */
static sherd_status take_recorder(shd_comm *comm, const shd_comm_config *config) {
    int file;
    comm->recorder = config->recorder;
    if (!comm->recorder && comm->backend->recorder) comm->recorder = comm->backend->recorder(comm->state);
    if (comm->recorder) return SHERD_OK;
    SHD_TRY(shd_recorder_file(config->world_size, &file));
    sherd_status status = shd_recorder_open(file, config->rank, &comm->own_recorder);
    close(file);
    comm->recorder = comm->own_recorder;
    return status;
}

sherd_status shd_comm_create(const shd_comm_config *config, shd_comm **out) {
    SHD_TRY(check_config(config));
    shd_recorder_enter(config->recorder, SHD_ACTIVITY_MEETING, -1);
    shd_comm *comm = shd_alloc(1, sizeof *comm);
    if (!comm) return shd_fail(SHERD_MEMORY, "no memory for a communicator");
    comm->notes = shd_alloc(1, sizeof *comm->notes);
    if (!comm->notes) {
        shd_free(comm);
        return shd_fail(SHERD_MEMORY, "no memory for a communicator");
    }
    comm->backend = config->world_size == 1 ? &shd_backend_self : &shd_backend_shm;
    comm->rank = config->rank;
    comm->world_size = config->world_size;
    comm->mesh = (shd_mesh){
        .rank = config->rank, .world_size = config->world_size, .replicas = config->replicas ? config->replicas : 1};
    comm->unit_count = config->unit_count;
    comm->exported_bytes = config->exported_bytes;
    comm->host_bytes = config->host_bytes;
    comm->timeout_ms = config->timeout_s * 1e3;
    comm->spin_turns = shd_watch_spin_turns(config->world_size);
    sherd_status status = open_backend(comm, config);
    if (status == SHERD_OK) {
        status = take_recorder(comm, config);
        if (status != SHERD_OK) comm->backend->close(comm->state);
    }
    if (status != SHERD_OK) {
        shd_free(comm->notes);
        shd_free(comm);
        return status;
    }
    shd_recorder_enter(comm->recorder, SHD_ACTIVITY_SETTING, -1);
    shd_log(SHERD_LOG_DEBUG, "comm: rank %d of %d over %s, %lld bytes exported, %lld on the host", comm->rank,
            comm->world_size, comm->backend->name, (long long)config->exported_bytes, (long long)config->host_bytes);
    *out = comm;
    return SHERD_OK;
}

void shd_comm_decline(const shd_comm_config *config, const char *cause) {
    if (config->world_size > 1 && config->rendezvous) shd_backend_shm.decline(config, cause);
}

void shd_comm_destroy(shd_comm *comm) {
    if (!comm) return;
    shd_recorder_enter(comm->recorder, SHD_ACTIVITY_ENDING, -1);
    shd_recorder_close(comm->own_recorder);
    comm->backend->close(comm->state);
    shd_free(comm->notes);
    shd_free(comm);
}

shd_recorder *shd_comm_recorder(const shd_comm *comm) { return comm->recorder; }

void *shd_comm_exported(shd_comm *comm, int32_t rank) {
    assert(rank >= 0 && rank < comm->world_size);
    return comm->backend->exported(comm->state, rank);
}

void *shd_comm_host(shd_comm *comm) {
    unsigned char *all = comm->backend->host(comm->state);
    return all ? all + shd_mesh_replica(&comm->mesh) * comm->host_bytes : NULL;
}

/* --- counters ----------------------------------------------------------------------------------------------------- */

static bool counter_exists(const shd_comm *comm, int32_t kind, int32_t unit) {
    return kind >= 0 && kind < SHD_COMM_COUNTER_KINDS && unit >= 0 && unit < comm->unit_count;
}

void shd_comm_signal(shd_comm *comm, int32_t kind, int32_t unit) {
    assert(counter_exists(comm, kind, unit));
    comm->backend->signal(comm->state, kind, unit);
}

bool shd_comm_reached(const shd_comm *comm, shd_scope scope, int32_t kind, int32_t unit, int64_t target) {
    assert(counter_exists(comm, kind, unit));
    int32_t count = shd_mesh_count(&comm->mesh, scope);
    for (int32_t i = 0; i < count; i++) {
        int32_t rank = shd_mesh_member(&comm->mesh, scope, i);
        if (comm->backend->counter(comm->state, rank, kind, unit) >= target) continue;
        shd_watch_note(comm, &(shd_wait_note){.scope = scope, .kind = kind, .unit = unit, .target = target});
        return false;
    }
    return true;
}

/* --- collectives -------------------------------------------------------------------------------------------------- */

/* Counts one collective over `scope` in which each peer's part is `peer_bytes`, of all of which `moved_bytes` were
 * moved. */
static void count_call(shd_comm *comm, shd_collective collective, shd_scope scope, int64_t peer_bytes,
                       int64_t moved_bytes) {
    int32_t peers = shd_mesh_count(&comm->mesh, scope) - 1;
    int64_t bytes = peers * peer_bytes;
    comm->stats.calls[collective]++;
    comm->stats.logical_bytes[collective] += bytes;
    comm->stats.moved_bytes[collective] += moved_bytes;
    shd_log(SHERD_LOG_TRACE, "comm: rank %d: %s, %lld bytes from %d peers, %lld moved", comm->rank,
            shd_collective_text(collective), (long long)bytes, peers, (long long)moved_bytes);
}

void shd_comm_count(shd_comm *comm, shd_collective collective, shd_scope scope, int64_t peer_bytes) {
    count_call(comm, collective, scope, peer_bytes, (shd_mesh_count(&comm->mesh, scope) - 1) * peer_bytes);
}

sherd_status shd_comm_announce(shd_comm *comm, shd_collective collective, int32_t unit, int64_t bytes) {
    if (collective < 0 || collective >= SHD_COLLECTIVES)
        return shd_fail(SHERD_ARGUMENT, "there is no collective %d", (int)collective);
    SHD_TRY(shd_watch_failure(comm));
    comm->announced++;
    if (!comm->backend->announce) return SHERD_OK;
    comm->history_hash = SHD_HASH(comm->history_hash, collective, unit, bytes);
    shd_announcement announcement = {
        .hash = comm->history_hash, .bytes = bytes, .collective = (int32_t)collective, .unit = unit};
    comm->backend->announce(comm->state, &announcement);
    return SHERD_OK;
}

int64_t shd_comm_announced(const shd_comm *comm) { return comm->announced; }

/* True when [pointer, pointer + bytes) lies in the own EXPORTED arena. */
static bool lies_exported(const shd_comm *comm, const void *pointer, int64_t bytes) {
    uintptr_t base = (uintptr_t)comm->backend->exported(comm->state, comm->rank), at = (uintptr_t)pointer;
    return at >= base && bytes <= comm->exported_bytes && at - base <= (uintptr_t)(comm->exported_bytes - bytes);
}

/* The same, or nobody else of the shard group has to reach it. */
static bool is_exported(const shd_comm *comm, const void *pointer, int64_t bytes) {
    return shd_mesh_split(&comm->mesh) == 1 || lies_exported(comm, pointer, bytes);
}

static bool overlap(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes) {
    uintptr_t at = (uintptr_t)a, bt = (uintptr_t)b;
    return at < bt + (uintptr_t)b_bytes && bt < at + (uintptr_t)a_bytes;
}

/* The rules for `full` and `shard`; see shd_comm_gather. */
static sherd_status check_gather(const shd_comm *comm, shd_collective collective, const void *full, const void *shard,
                                 int64_t shard_bytes) {
    const char *name = shd_collective_text(collective);
    int64_t full_bytes;
    if (collective != SHD_COLLECTIVE_GATHER && collective != SHD_COLLECTIVE_GATHER_GRADIENT)
        return shd_fail(SHERD_ARGUMENT, "a gather cannot count as %s", name);
    if (shard_bytes < 0 || shard_bytes % 64 || !shd_mul_checked(shard_bytes, shd_mesh_split(&comm->mesh), &full_bytes))
        return shd_fail(SHERD_ARGUMENT, "%s of shards of %lld bytes: not a multiple of 64", name,
                        (long long)shard_bytes);
    if (shard_bytes == 0) return SHERD_OK;
    if (!is_exported(comm, shard, shard_bytes))
        return shd_fail(SHERD_ARGUMENT, "%s: the shard of %lld bytes is not in the exported arena", name,
                        (long long)shard_bytes);
    bool in_place = (uintptr_t)shard == (uintptr_t)full + (uintptr_t)(shd_mesh_place(&comm->mesh) * shard_bytes);
    if (in_place ? !is_exported(comm, full, full_bytes) : overlap(full, full_bytes, shard, shard_bytes))
        return shd_fail(SHERD_ARGUMENT,
                        "%s: the full buffer holds the shard, but not in its place of an exported buffer", name);
    return SHERD_OK;
}

sherd_status shd_comm_gather(shd_comm *comm, shd_collective collective, void *full, const void *shard,
                             int64_t shard_bytes) {
    SHD_TRY(check_gather(comm, collective, full, shard, shard_bytes));
    SHD_TRY(shd_watch_failure(comm));
    if (shard_bytes) SHD_TRY(comm->backend->gather(comm->state, full, shard, shard_bytes));
    shd_comm_count(comm, collective, SHD_SCOPE_GROUP, shard_bytes);
    return SHERD_OK;
}

const void *shd_comm_peer(shd_comm *comm, int32_t place, const void *own, int64_t bytes) {
    int32_t rank = shd_mesh_member(&comm->mesh, SHD_SCOPE_GROUP, place);
    if (rank == comm->rank) return own;
    assert(place >= 0 && place < shd_mesh_split(&comm->mesh) && lies_exported(comm, own, bytes));
    comm->stats.calls[SHD_COLLECTIVE_PEEK]++;
    comm->stats.logical_bytes[SHD_COLLECTIVE_PEEK] += bytes;
    comm->stats.moved_bytes[SHD_COLLECTIVE_PEEK] += bytes;
    const char *mine = comm->backend->exported(comm->state, comm->rank);
    const char *theirs = comm->backend->exported(comm->state, rank);
    return theirs + ((const char *)own - mine);
}

sherd_status shd_comm_gather_shared(shd_comm *comm, int64_t shard_bytes) {
    if (shard_bytes < 0)
        return shd_fail(SHERD_ARGUMENT, "GATHER of shards of %lld bytes: negative", (long long)shard_bytes);
    SHD_TRY(shd_watch_failure(comm));
    count_call(comm, SHD_COLLECTIVE_GATHER, SHD_SCOPE_GROUP, shard_bytes, 0);
    return SHERD_OK;
}

sherd_status shd_comm_reduce(shd_comm *comm, float *accumulator, const void *contribution, sherd_dtype dtype,
                             int64_t shard_count, bool first) {
    int64_t sum_bytes, shard_bytes, full_bytes;
    if (dtype != SHERD_FP32 && dtype != SHERD_BF16)
        return shd_fail(SHERD_ARGUMENT, "REDUCE of %s: fp32 and bf16 can be reduced", shd_dtype_text(dtype));
    if (shard_count < 0 || !shd_mul_checked(shard_count, (int64_t)sizeof(float), &sum_bytes) ||
        !shd_mul_checked(shard_count, shd_dtype_bytes(dtype), &shard_bytes) ||
        !shd_mul_checked(shard_bytes, shd_mesh_split(&comm->mesh), &full_bytes))
        return shd_fail(SHERD_ARGUMENT, "REDUCE of shards of %lld elements: out of range", (long long)shard_count);
    if (shard_count && !is_exported(comm, contribution, full_bytes))
        return shd_fail(SHERD_ARGUMENT, "REDUCE: the contribution of %lld bytes is not in the exported arena",
                        (long long)full_bytes);
    if (shard_count && overlap(accumulator, sum_bytes, contribution, full_bytes))
        return shd_fail(SHERD_ARGUMENT, "REDUCE: the accumulator overlaps the contribution");
    SHD_TRY(shd_watch_failure(comm));
    uint64_t nonfinite = 0;
    if (shard_count)
        SHD_TRY(comm->backend->reduce(comm->state, accumulator, contribution, dtype, shard_count, first, &nonfinite));
    comm->nonfinite |= nonfinite;
    shd_comm_count(comm, SHD_COLLECTIVE_REDUCE, SHD_SCOPE_GROUP, shard_bytes);
    return SHERD_OK;
}

uint64_t shd_comm_take_nonfinite(shd_comm *comm) {
    uint64_t places = comm->nonfinite;
    comm->nonfinite = 0;
    return places;
}

/* --- over the replicas -------------------------------------------------------------------------------------------- */

static sherd_status check_parts(const shd_comm *comm, shd_collective collective, const float *values, int64_t count,
                                int64_t part_count) {
    const char *name = shd_collective_text(collective);
    int64_t bytes, room;
    if (count < 0 || part_count < 0 || !shd_mul_checked(count, (int64_t)sizeof(float), &bytes) ||
        !shd_mul_checked(part_count, comm->mesh.replicas, &room) || room < count)
        return shd_fail(SHERD_ARGUMENT, "%s of %lld values in parts of %lld: %d replicas do not cover them", name,
                        (long long)count, (long long)part_count, comm->mesh.replicas);
    if (count && comm->mesh.replicas > 1 && !lies_exported(comm, values, bytes))
        return shd_fail(SHERD_ARGUMENT, "%s: the %lld values are not in the exported arena", name, (long long)count);
    return shd_watch_failure(comm);
}

sherd_status shd_comm_reduce_replicas(shd_comm *comm, float *values, int64_t count, int64_t part_count) {
    SHD_TRY(check_parts(comm, SHD_COLLECTIVE_REDUCE_REPLICAS, values, count, part_count));
    shd_part own = shd_part_of(count, part_count, shd_mesh_replica(&comm->mesh));
    if (own.count && comm->mesh.replicas > 1)
        SHD_TRY(comm->backend->reduce_replicas(comm->state, values, count, part_count));
    count_call(comm, SHD_COLLECTIVE_REDUCE_REPLICAS, SHD_SCOPE_REPLICAS, part_count * (int64_t)sizeof(float),
               (comm->mesh.replicas - 1) * own.count * (int64_t)sizeof(float));
    return SHERD_OK;
}

sherd_status shd_comm_gather_replicas(shd_comm *comm, float *values, int64_t count, int64_t part_count) {
    SHD_TRY(check_parts(comm, SHD_COLLECTIVE_GATHER_GRADIENT, values, count, part_count));
    shd_part own = shd_part_of(count, part_count, shd_mesh_replica(&comm->mesh));
    if (own.count < count) SHD_TRY(comm->backend->gather_replicas(comm->state, values, count, part_count));
    count_call(comm, SHD_COLLECTIVE_GATHER_GRADIENT, SHD_SCOPE_REPLICAS, part_count * (int64_t)sizeof(float),
               (count - own.count) * (int64_t)sizeof(float));
    return SHERD_OK;
}

/* --- exchanges ---------------------------------------------------------------------------------------------------- */

sherd_status shd_comm_post(shd_comm *comm, const void *mine, int64_t bytes) {
    if (bytes < 0 || bytes > SHD_COMM_EXCHANGE_BYTES)
        return shd_fail(SHERD_ARGUMENT, "an exchange of %lld bytes; it takes up to %d", (long long)bytes,
                        SHD_COMM_EXCHANGE_BYTES);
    if (comm->open_exchange)
        return shd_fail(SHERD_STATE, "exchange %lld has not been collected yet", (long long)comm->exchanges);
    SHD_TRY(shd_watch_failure(comm));
    comm->exchanges++;
    comm->open_exchange = true;
    comm->exchange_bytes = bytes;
    comm->backend->post(comm->state, comm->exchanges, mine, bytes);
    return SHERD_OK;
}

bool shd_comm_posted(const shd_comm *comm) {
    for (int32_t rank = 0; rank < comm->world_size; rank++) {
        if (comm->backend->posted(comm->state, rank) >= comm->exchanges) continue;
        shd_watch_note(comm,
                       &(shd_wait_note){.scope = SHD_SCOPE_ALL, .kind = SHD_WAIT_EXCHANGE, .target = comm->exchanges});
        return false;
    }
    return true;
}

sherd_status shd_comm_collect(shd_comm *comm, void *all) {
    if (!comm->open_exchange) return shd_fail(SHERD_STATE, "no exchange has been posted");
    SHD_TRY(shd_watch_failure(comm));
    if (!shd_comm_posted(comm))
        return shd_fail(SHERD_STATE, "exchange %lld has not been posted by every rank", (long long)comm->exchanges);
    SHD_TRY(shd_watch_compare(comm));
    for (int32_t rank = 0; rank < comm->world_size; rank++) {
        int64_t bytes;
        const void *mail = comm->backend->mail(comm->state, rank, comm->exchanges, &bytes);
        if (bytes != comm->exchange_bytes)
            return shd_watch_fail(
                comm, SHERD_MISMATCH, "rank %d posted %lld bytes where rank %d posted %lld bytes, exchange %lld", rank,
                (long long)bytes, comm->rank, (long long)comm->exchange_bytes, (long long)comm->exchanges);
        if (bytes) memcpy((unsigned char *)all + rank * bytes, mail, (size_t)bytes);
    }
    comm->open_exchange = false;
    shd_comm_count(comm, SHD_COLLECTIVE_EXCHANGE, SHD_SCOPE_ALL, comm->exchange_bytes);
    return SHERD_OK;
}

sherd_status shd_comm_exchange(shd_comm *comm, const void *mine, int64_t bytes, void *all) {
    int64_t now_ns = shd_clock_ns();
    int64_t number = shd_recorder_add(comm->recorder, &(shd_record){.queued_ns = now_ns,
                                                                    .started_ns = now_ns,
                                                                    .bytes = bytes,
                                                                    .step = shd_recorder_step(comm->recorder),
                                                                    .collective = comm->announced,
                                                                    .unit = -1,
                                                                    .micro_step = -1,
                                                                    .kind = SHD_RECORD_EXCHANGE});
    SHD_TRY(shd_comm_post(comm, mine, bytes));
    SHD_TRY(shd_comm_announce(comm, SHD_COLLECTIVE_EXCHANGE, -1, bytes));
    shd_patience patience = {0};
    while (!shd_comm_posted(comm)) SHD_TRY(shd_comm_pause(comm, &patience, "EXCHANGE"));
    SHD_TRY(shd_comm_collect(comm, all));
    shd_recorder_end(comm->recorder, number, shd_clock_ns());
    return SHERD_OK;
}

/* --- failures and books ------------------------------------------------------------------------------------------- */

void shd_comm_fail(shd_comm *comm, sherd_status status, const char *cause) {
    shd_comm_failure failure = {.status = SHERD_PEER};
    snprintf(failure.text, sizeof failure.text, "rank %d failed (%s): %s", comm->rank, sherd_status_text(status),
             cause && *cause ? cause : "no cause given");
    (void)shd_watch_pass_on(comm, &failure);
}

void shd_comm_get_stats(const shd_comm *comm, shd_comm_stats *out) { *out = comm->stats; }
