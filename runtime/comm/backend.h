/* What a comm backend provides. comm.c is its only caller: it has checked the arguments, and adds counting, comparing,
 * spreading of failures and patience, so that a backend only moves bytes and passes flags.
 *
 * Every slot is required unless it names its default. `state` is what `open` made; it belongs to its rank's thread. */
#ifndef SHD_COMM_BACKEND_H
#define SHD_COMM_BACKEND_H

#include "runtime/base/dtype.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/recorder.h"

enum {
    SHD_COMM_CAUSE_BYTES = 768,
    SHD_COMM_RING = 256, /* announcements of a rank that its peers can still look at */
};

/* One collective as a rank announced it. `hash` covers it and all before it, so that equal hashes mean equal
 * histories. */
typedef struct shd_announcement {
    uint64_t hash;
    int64_t bytes;
    int32_t collective, unit;
} shd_announcement;

/* Why the job is dead; the same text on every rank. */
typedef struct shd_comm_failure {
    sherd_status status;
    char text[SHD_COMM_CAUSE_BYTES];
} shd_comm_failure;

typedef enum shd_peer {
    SHD_PEER_HERE,
    SHD_PEER_LEFT, /* closed its comm; what it signalled and posted before can be seen */
    SHD_PEER_DEAD  /* ended without closing its comm */
} shd_peer;

typedef struct shd_backend {
    const char *name;

    /* Meets the peers and maps the arenas, zeroed. Fails as shd_comm_create. */
    sherd_status (*open)(const shd_comm_config *config, void **state);
    /* As shd_comm_decline. Optional: by default there is nobody to tell. */
    void (*decline)(const shd_comm_config *config, const char *cause);
    /* Says goodbye and releases everything. */
    void (*close)(void *state);

    /* The arenas; NULL when their size is 0. HOST holds those of all shard groups, one after another: comm.c has made its
     * config's host_bytes their sum. */
    void *(*exported)(void *state, int32_t rank);
    void *(*host)(void *state);

    /* The flight recorder of ranks that came without one; NULL when config has one. Optional: by default each rank has its
     * own, which peers cannot read. */
    shd_recorder *(*recorder)(void *state);

    /* Raises the own counter and wakes peers that doze; what was written before is visible to whoever sees the new
     * value. */
    void (*signal)(void *state, int32_t kind, int32_t unit);
    int64_t (*counter)(const void *state, int32_t rank, int32_t kind, int32_t unit);

    /* The movement of shd_comm_gather and shd_comm_reduce. *nonfinite: a bit for each place of the shard group whose
     * contribution holds a number that is not finite; a backend that does not see contributions says 0. */
    sherd_status (*gather)(void *state, void *full, const void *shard, int64_t shard_bytes);
    sherd_status (*reduce)(void *state, float *accumulator, const void *contribution, sherd_dtype dtype,
                           int64_t shard_count, bool first, uint64_t *nonfinite);
    /* That of shd_comm_reduce_replicas and shd_comm_gather_replicas. Optional, both, for backends without replicas. */
    sherd_status (*reduce_replicas)(void *state, float *values, int64_t count, int64_t part_count);
    sherd_status (*gather_replicas)(void *state, float *values, int64_t count, int64_t part_count);

    /* Exchanges are numbered from 1. post hands in the own bytes and wakes peers that doze; posted says how many
     * exchanges `rank` has posted; mail lends what `rank` posted as number `number`, the latest or the one before. */
    void (*post)(void *state, int64_t number, const void *mine, int64_t bytes);
    int64_t (*posted)(const void *state, int32_t rank);
    const void *(*mail)(void *state, int32_t rank, int64_t number, int64_t *bytes);

    /* Announcements are numbered from 0. announce publishes the next one; announced says how many `rank` has published;
     * announcement reads one, false when it is no longer (or not yet) there.
     * Optional, all three: by default the ranks' collectives are not compared. */
    void (*announce)(void *state, const shd_announcement *announcement);
    int64_t (*announced)(const void *state, int32_t rank);
    bool (*announcement)(const void *state, int32_t rank, int64_t number, shd_announcement *out);

    /* Records why the job is dead and wakes every peer. The first record of all ranks stands; failed reads it (out may
     * be NULL). */
    void (*fail)(void *state, const shd_comm_failure *failure);
    bool (*failed)(const void *state, shd_comm_failure *out);

    /* How every rank is: out[world_size]. Optional: by default all are HERE. */
    void (*peers)(void *state, shd_peer *out);

    /* Sleeping: after arm, every signal, post or failure of a peer ends the next doze at once, even if it comes before
     * the doze begins. So the caller arms, checks its condition, and dozes; nothing is lost. Optional, both: by default
     * a doze is a short sleep. */
    void (*arm)(void *state);
    void (*doze)(void *state, double milliseconds);
} shd_backend;

/* One rank: no peers, no communication. */
extern const shd_backend shd_backend_self;
/* The ranks of one host, over shared memory. */
extern const shd_backend shd_backend_shm;

#endif
