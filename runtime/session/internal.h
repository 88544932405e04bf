/* What the session's own files share. */
#ifndef SHD_SESSION_INTERNAL_H
#define SHD_SESSION_INTERNAL_H

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

/* What a rank tells all others when they agree: how it fared, and the cause, or what it found. */
typedef struct shd_ballot {
    sherd_status status;
    char text[2000];
} shd_ballot;

/* The save that has begun, and what became of the last one. */
typedef struct shd_save {
    bool pending;
    char *dir, *note; /* owned; `dir` is NULL when memory has run out, which the others are told when it ends */
    int64_t step;
    shd_progress progress; /* of the state that is saved */
    double since_ms, wait_ms;
    sherd_save_result last;
    char cause[sizeof((shd_ballot *)0)->text]; /* of `last` */
} shd_save;

struct sherd_session {
    sherd_options options; /* without rendezvous, groups and patterns, which were borrowed */
    shd_phase phase;
    shd_pool *pool;
    shd_plan *plan;
    shd_tensor_rule *rules; /* by tensor */
    shd_program *programs[SHD_PROGRAM_KINDS];
    shd_comm *comm;
    shd_engine *engine;
    int64_t step_count;
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

/* Runs PROLOGUE: afterwards the session is at a step boundary with every parameter in place. Collective. */
sherd_status shd_session_begin_life(sherd_session *session);

/* Sets all optimizer state that this rank has to zero. */
sherd_status shd_session_clear_states(sherd_session *session);

/* --- save.c ------------------------------------------------------------------------------------------------------- */

/* Gives up a pending save. */
void shd_session_save_fini(sherd_session *session);

#endif
