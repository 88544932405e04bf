/* The wrapper's inside: the comm itself, and how one rank watches the others while it works and waits (watch.c). */
#ifndef SHD_COMM_WATCH_H
#define SHD_COMM_WATCH_H

#include "runtime/comm/backend.h"

/* A condition that was found not to hold: counter (kind, unit) below target somewhere in scope, or exchange `target` not
 * posted by all. */
enum { SHD_WAIT_EXCHANGE = -1, SHD_WAIT_NOTES = 8 };
typedef struct shd_wait_note {
    shd_scope scope;
    int32_t kind, unit; /* kind SHD_WAIT_EXCHANGE: an exchange */
    int64_t target;
} shd_wait_note;

/* What was found missing since the last turn of waiting: tells which ranks this one waits for. */
typedef struct shd_wait_notes {
    int32_t count; /* how many were noted; the last SHD_WAIT_NOTES are kept */
    shd_wait_note notes[SHD_WAIT_NOTES];
} shd_wait_notes;

struct shd_comm {
    const shd_backend *backend;
    void *state;
    int32_t rank, world_size, unit_count;
    shd_mesh mesh;
    int64_t exported_bytes, host_bytes; /* of one rank, and of one shard group */
    double timeout_ms;
    int32_t spin_turns; /* of a wait, before it yields */
    double watched_ms;  /* when the peers were last looked after */

    int64_t announced; /* by this rank */
    uint64_t history_hash;

    int64_t exchanges, exchange_bytes; /* posted by this rank; bytes of the last one */
    bool open_exchange;                /* posted and not yet collected */
    uint64_t nonfinite;                /* shd_comm_take_nonfinite */

    shd_recorder *recorder;
    shd_recorder *own_recorder; /* the same when the comm has made it, else NULL */

    shd_wait_notes *notes; /* apart, so that const checks may leave a note */
    shd_comm_stats stats;
};

/* How long it pays to spin when `world_size` ranks share what this process may run on. */
int32_t shd_watch_spin_turns(int32_t world_size);

void shd_watch_note(const shd_comm *comm, const shd_wait_note *note);

/* The recorded failure, if there is one: OK otherwise. One load, for the start of every collective. */
sherd_status shd_watch_failure(const shd_comm *comm);

/* Records a failure for all ranks and returns the one that stands, which may be an earlier one. It is of the ranks'
 * being together, one hangs, is lost or does something else: an alarm too, after which ranks leave dumps. */
sherd_status shd_watch_fail(shd_comm *comm, sherd_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));

/* The same of what a rank found in itself: no alarm. */
sherd_status shd_watch_pass_on(shd_comm *comm, const shd_comm_failure *failure);

/* Compares this rank's announcements with every peer's. Fails: MISMATCH, both ranks and both collectives named. */
sherd_status shd_watch_compare(shd_comm *comm);

#endif
