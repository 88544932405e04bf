/* Collectives between the ranks of a job, over one table of operations per backend.
 *
 * This wrapper checks arguments, counts calls and bytes, compares what the ranks issue, and turns any failure of one
 * rank into an error on all. Backends: `self` (one rank, no communication), `shm` (ranks of one host over shared
 * memory).
 *
 * Ranks form a mesh (mesh.h): gathers and reduces are among those of a shard group, except where they are said to be
 * among its replicas.
 *
 * Memory that peers reach lies in two arenas which the comm owns: EXPORTED (one per rank, readable by all) and HOST
 * (one for all ranks of a shard group). Order between ranks is the caller's, by counters (program.h says which): a
 * collective touches memory at once. Threads: a comm belongs to its rank's thread. Ranks are processes, or threads of
 * one process, each with its own comm. */
#ifndef SHD_COMM_COMM_H
#define SHD_COMM_COMM_H

#include "runtime/base/mesh.h"
#include "runtime/comm/recorder.h"
#include "runtime/device/pool.h"

#include <sherd/dtype.h>
#include <sherd/status.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct shd_comm shd_comm;

enum { SHD_COMM_MAX_RANKS = 64, SHD_COMM_EXCHANGE_BYTES = 4096, SHD_COMM_COUNTER_KINDS = 6 };

typedef struct shd_comm_config {
    int32_t rank, world_size;
    int32_t replicas;       /* shard groups; divides world_size; 0 is taken for 1 */
    const char *rendezvous; /* name under which the ranks of this job meet; NULL allowed with one rank */
    uint64_t fingerprint;   /* must be equal on all ranks: a hash of all they must agree on */
    int64_t exported_bytes; /* per rank, equal on all */
    int64_t host_bytes;     /* once per shard group */
    int32_t unit_count;     /* counters are kept per (rank, kind, unit) */
    double timeout_s, start_timeout_s;
    shd_pool *pool;         /* for wide loops; borrowed for the comm's life */
    shd_recorder *recorder; /* borrowed likewise; NULL: the ranks make one when they meet */
} shd_comm_config;

/* Meets the other ranks and maps the arenas, zeroed. One rank: `self`; more: `shm`. Returns when every rank has arrived
 * with the same fingerprint. Collective. Fails: TIMEOUT (the missing ranks are named), MISMATCH (both ranks named),
 * PEER (a rank ended or failed meanwhile), MEMORY (the arenas are held against what the kernel says is available),
 * COMM, ARGUMENT. */
sherd_status shd_comm_create(const shd_comm_config *config, shd_comm **out);
/* In place of create, when this rank cannot take part: tells the others why, so that they fail with PEER and that cause
 * instead of waiting. Looks at `rank`, `world_size`, `rendezvous` and `start_timeout_s` alone. Takes a second at most;
 * whether anybody heard it is not told. */
void shd_comm_decline(const shd_comm_config *config, const char *cause);
/* Accepts NULL. Peers that wait for this rank, unless they left too, fail with PEER. */
void shd_comm_destroy(shd_comm *comm);

/* The flight recorder that holds this rank's part; never NULL. */
shd_recorder *shd_comm_recorder(const shd_comm *comm);

/* The arenas; NULL when their size is 0. shd_comm_exported(comm, own rank) is where this rank writes; HOST is that of its
 * shard group. */
void *shd_comm_exported(shd_comm *comm, int32_t rank);
void *shd_comm_host(shd_comm *comm);

/* --- counters: order between ranks -------------------------------------------------------------------------------- */

/* Raises this rank's counter by one and wakes peers that sleep in a pause; everything this rank wrote before is visible
 * to whoever sees it. */
void shd_comm_signal(shd_comm *comm, int32_t kind, int32_t unit);
/* True when the counter of every rank in `scope` is at least `target`. Never blocks. */
bool shd_comm_reached(const shd_comm *comm, shd_scope scope, int32_t kind, int32_t unit, int64_t target);

/* One turn of waiting for something another rank does: the caller checks its condition, calls this, checks again. Spins
 * with pause, then sched_yield, then sleeps until a peer signals or posts (or a short time is over). `turns` starts at
 * 0 for each wait. `what` names the wait in messages ("REDUCE h.3"). Fails: PEER (a rank failed or died: named, with
 * its cause), TIMEOUT (longer than timeout_s in this wait, not counting the time in which this process was
 * stopped: ranks that are behind are named with their last collective),
 * MISMATCH (ranks issued different collectives: both named). */
typedef struct shd_patience {
    int32_t turns;
    double since_ms, seen_ms;
    double nap_ms; /* set by a caller whose condition no peer signals (a device's event): the longest sleep of a turn */
} shd_patience;
sherd_status shd_comm_pause(shd_comm *comm, shd_patience *patience, const char *what);

/* --- collectives -------------------------------------------------------------------------------------------------- */

typedef enum shd_collective {
    SHD_COLLECTIVE_GATHER,
    SHD_COLLECTIVE_GATHER_GRADIENT,
    SHD_COLLECTIVE_REDUCE,
    SHD_COLLECTIVE_REDUCE_REPLICAS,
    SHD_COLLECTIVE_EXCHANGE,
    SHD_COLLECTIVE_PEEK, /* shd_comm_peer: no collective, but counted as one */
    SHD_COLLECTIVES
} shd_collective;
const char *shd_collective_text(shd_collective collective);

/* Says which collective this rank issues next, in program order; every rank fails with MISMATCH, both sides named, when
 * another issues something else at the same place. Compared while waiting and whenever an exchange is collected. `unit`
 * -1: none. */
sherd_status shd_comm_announce(shd_comm *comm, shd_collective collective, int32_t unit, int64_t bytes);
/* How many this rank has announced: the number of the next one. */
int64_t shd_comm_announced(const shd_comm *comm);

/* full[g·shard_bytes …] = the `shard` of place g, for every g of the shard group. `shard` lies in this rank's EXPORTED
 * arena; either `full` does not touch it, and peers' shards are at the same offset; or in place: `full` is exported
 * too, at the same offset on every rank, and every rank's shard is at its place of its `full` (the own part is left
 * alone). shard_bytes: a multiple of 64, ≥ 0. Counts the collective as `collective` (GATHER or GATHER_GRADIENT). Fails:
 * ARGUMENT; what is recorded as in shd_comm_pause. */
sherd_status shd_comm_gather(shd_comm *comm, shd_collective collective, void *full, const void *shard,
                             int64_t shard_bytes);
/* A gather that needs no copy because the parameters live once for the shard group: counts it, moves nothing. */
sherd_status shd_comm_gather_shared(shd_comm *comm, int64_t shard_bytes);

/* accumulator[i] = (first ? 0th rank's : accumulator[i] + 0th rank's) + 1st rank's + …, each addition rounded to fp32,
 * in order of the shard group's places, for this rank's shard: elements [place·shard_count, (place+1)·shard_count) of
 * `contribution`, of type `dtype` (FP32 or BF16), which lies in the EXPORTED arena, peers' at the same offset. */
sherd_status shd_comm_reduce(shd_comm *comm, float *accumulator, const void *contribution, sherd_dtype dtype,
                             int64_t shard_count, bool first);

/* A bit for each place of the shard group whose contribution to a reduce of this rank, since this was last asked, held a
 * number that is not finite: what the reduce has come across, at no cost while sums are finite. */
uint64_t shd_comm_take_nonfinite(shd_comm *comm);

/* The sum over replicas in two halves. Every rank has `count` values in its EXPORTED arena, at the same offset; replica
 * r's part is shd_part_of(count, part_count, r). reduce: values[i] of the own part = replica 0's + replica 1's + …, each
 * addition rounded to fp32, in order of replicas. gather: the other parts become those of the replicas whose own they
 * are. Counted as REDUCE_REPLICAS, and as GATHER_GRADIENT; logical bytes are those of the largest part. Fails:
 * ARGUMENT; what is recorded as in shd_comm_pause. */
sherd_status shd_comm_reduce_replicas(shd_comm *comm, float *values, int64_t count, int64_t part_count);
sherd_status shd_comm_gather_replicas(shd_comm *comm, float *values, int64_t count, int64_t part_count);

/* Counts a collective over `scope` that a link (link.h) has moved; each peer's part is `peer_bytes`. */
void shd_comm_count(shd_comm *comm, shd_collective collective, shd_scope scope, int64_t peer_bytes);

/* Where the rank at `place` of the shard group has what this rank has at `own`, in its EXPORTED arena: the caller reads
 * `bytes` there, once, and counters are its order. For this rank's own place it is `own`, and counts as nothing. */
const void *shd_comm_peer(shd_comm *comm, int32_t place, const void *own, int64_t bytes);

/* A small all-gather in two halves. post: hands in `bytes` (≤ SHD_COMM_EXCHANGE_BYTES, equal on all ranks), never
 * blocks; posted: true once every rank has; collect: copies all ranks' bytes, in rank order, to `all`. An exchange is
 * collected before the next one is posted. */
sherd_status shd_comm_post(shd_comm *comm, const void *mine, int64_t bytes);
bool shd_comm_posted(const shd_comm *comm);
sherd_status shd_comm_collect(shd_comm *comm, void *all);
/* post, announce as EXCHANGE of unit -1, wait, collect; with a record of it. With 0 bytes a barrier. */
sherd_status shd_comm_exchange(shd_comm *comm, const void *mine, int64_t bytes, void *all);

/* Tells every peer that this rank fails, with its cause; their waits and collectives end with PEER. The first failure
 * of all ranks stands. */
void shd_comm_fail(shd_comm *comm, sherd_status status, const char *cause);

typedef struct shd_comm_stats {
    int64_t calls[SHD_COLLECTIVES];
    /* What a copying backend would receive: bytes of peers' shards. */
    int64_t logical_bytes[SHD_COLLECTIVES];
    /* Bytes copied or read from peers' memory; a rank's own part counts nowhere. */
    int64_t moved_bytes[SHD_COLLECTIVES];
} shd_comm_stats;
void shd_comm_get_stats(const shd_comm *comm, shd_comm_stats *out);

#endif
