/* What the session's own files share. */
#ifndef SHD_SESSION_INTERNAL_H
#define SHD_SESSION_INTERNAL_H

#include "io/checkpoint_writer.h"
#include "io/folder.h"
#include "runtime/engine/engine.h"
#include "runtime/session/setup.h"

#include <sherd/session.h>

/* Where a session is in its life; each public call states which phases it needs. */
typedef enum shd_phase {
    SHD_PHASE_EMPTY,    /* created, or a fill or load has failed; parameters undefined */
    SHD_PHASE_BOUNDARY, /* between steps */
    SHD_PHASE_STEP,
    SHD_PHASE_EVALUATION,
    SHD_PHASE_DEAD /* an earlier failure ended it */
} shd_phase;

enum { SHD_BALLOT_TEXT_BYTES = 2000 };

/* What a rank tells all others when they agree: how it fared, and the cause, or what it found. */
typedef struct shd_ballot {
    sherd_status status;
    char text[SHD_BALLOT_TEXT_BYTES];
} shd_ballot;

/* What this rank stores: slices, grouped by unit. Their memory does not move while the session lives. */
typedef struct shd_slice_list {
    shd_checkpoint_slice *slices;
    int32_t *tensors; /* [count]: whose slice it is */
    int64_t count, capacity;
} shd_slice_list;

/* Saves: how this rank writes, the one that has begun, and what became of the last. */
typedef struct shd_save {
    shd_storage storage; /* the engine's way here */
    shd_writer *writer;  /* its tickets are units; NULL on ranks that store nothing, those of replicas but the first */
    shd_slice_list stored; /* the writer's */
    int64_t *unit_ends;    /* [unit_count], of `stored` */
    uint64_t id;           /* of this session's folders, the same on every rank */

    bool pending;
    bool in_step; /* it was pending when the running step began */
    bool *taken;  /* [unit_count]: SAVE has been here */
    int32_t taken_count;
    char *dir, *note; /* owned; `dir` is NULL when memory has run out, which the others are told at the end */
    int64_t step;
    shd_progress progress; /* of the state that is saved */
    double since_ms, wait_ms;

    /* [settled_count], owned: the folders in which checkpoints of later steps than the session started from have been moved
     * aside, once each */
    shd_folder_id *settled;
    int64_t settled_count;
    sherd_save_result last;
    char cause[SHD_BALLOT_TEXT_BYTES]; /* of `last` */
} shd_save;

struct sherd_session {
    sherd_options options; /* without rendezvous, groups and patterns, which were borrowed */
    shd_phase phase;
    shd_pool *pool;
    shd_plan *plan;
    shd_tensor_rule *rules; /* by tensor */
    shd_program *programs[SHD_PROGRAM_KINDS];
    shd_comm *comm;
    shd_engine_place place; /* on a device */
    shd_recorder *recorder; /* as it was given; NULL: none was */
    shd_engine *engine;
    int64_t step_count;
    int64_t start_step; /* what the last fill or load set it to */
    bool bracket_open;
    shd_save save;
    shd_ballot *ballots; /* [world_size]: every rank's in the last vote; then room for the own one */
};

/* Fails with STATE, naming the call and where the session is, unless it is in `phase`. */
sherd_status shd_session_expect(const sherd_session *session, shd_phase phase, const char *call);

/* Ends the session after a failure inside a collective phase: peers are told, and only destroy is allowed. Returns
 * `status`. */
sherd_status shd_session_die(sherd_session *session, sherd_status status);

/* Fills session->ballots with every rank's status and text. Collective. Fails: COMM and worse. */
sherd_status shd_session_vote(sherd_session *session, sherd_status mine, const char *text);

/* What they have said: OK, or the status and cause of the lowest rank that failed. Below 100 the session lives on. */
sherd_status shd_session_outcome(sherd_session *session);

/* Runs PROLOGUE: afterwards the session is at a step boundary with every parameter in place. Collective. */
sherd_status shd_session_begin_life(sherd_session *session);

/* Sets all optimizer state that this rank has to zero. */
sherd_status shd_session_clear_states(sherd_session *session);

/* Where training begins, or goes on. */
void shd_session_set_start(sherd_session *session, int64_t step);

/* --- device_place.c: the device that a session computes on; on the CPU all of this does nothing ---------------------- */

/* What the comm must have for the link: host memory, and units of counters behind the plan's. */
int64_t shd_place_exported_bytes(const sherd_session *session);
int32_t shd_place_counter_units(const sherd_session *session);
/* Opens the device, with streams. Fails: CONFIG (why there is none), MEMORY (what the plan needs, and what there is),
 * DEVICE. */
sherd_status shd_place_open(sherd_session *session);
/* Opens the link between the ranks' devices. Collective. Fails: CONFIG, COMM and worse. */
sherd_status shd_place_link(sherd_session *session);
/* Ends the link; gives up transfers where the session is dead. Before the engine ends. */
void shd_place_unlink(sherd_session *session);
/* Ends the rest, after the engine. */
void shd_place_close(sherd_session *session);

/* --- save.c ------------------------------------------------------------------------------------------------------- */

shd_storage shd_session_storage(sherd_session *session);
/* Lists what this rank stores and starts its writer. Fails: MEMORY. */
sherd_status shd_session_save_init(sherd_session *session);
/* Gives up a pending save. Before the engine ends, whose memory is read. */
void shd_session_save_fini(sherd_session *session);
/* Refuses `call` while a save is pending. Fails: STATE. */
sherd_status shd_session_save_none(const sherd_session *session, const char *call);
/* Ends a pending save while the session ends, every rank's alike and at the same place: waits for what is being written, and
 * commits it. Collective. Fails: COMM and worse; what became of the save is in its result. */
sherd_status shd_session_save_rescue(sherd_session *session);
/* A run of a program is over that began while a save was pending: what it has waited for that. */
void shd_session_save_waited(sherd_session *session, double wait_ms);
/* The pending save has ended with `status`, whose cause is this thread's last error. */
void shd_session_save_end(sherd_session *session, sherd_status status, int64_t raw_bytes, int64_t stored_bytes);

/* --- commit.c ----------------------------------------------------------------------------------------------------- */

/* shd_storage.commit; `user` is the session. */
sherd_status shd_session_commit(void *user);

#endif
