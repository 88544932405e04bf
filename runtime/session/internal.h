/* What the session's own files share, and what the job loop may reach. */
#ifndef SHD_SESSION_INTERNAL_H
#define SHD_SESSION_INTERNAL_H

#include "runtime/engine/engine.h"

#include <sherd/session.h>

/* Where a session is in its life; each public call states which phases it needs. */
typedef enum shd_phase {
    SHD_PHASE_EMPTY,    /* created; parameters undefined */
    SHD_PHASE_BOUNDARY, /* between steps */
    SHD_PHASE_STEP,
    SHD_PHASE_EVALUATION,
    SHD_PHASE_DEAD /* an earlier failure ended it */
} shd_phase;

struct sherd_session {
    sherd_options options; /* rendezvous is not kept */
    shd_phase phase;
    shd_pool *pool;
    shd_plan *plan;
    shd_program *programs[SHD_PROGRAM_KINDS];
    shd_comm *comm;
    shd_engine *engine;
    int64_t step_count;
    bool bracket_open;
    int64_t verified_peak_bytes; /* what the verifier found for the training program */
};

/* Fails with STATE, naming the call and where the session is, unless it is in `phase`. */
sherd_status shd_session_expect(const sherd_session *session, shd_phase phase, const char *call);

/* Ends the session after a failure inside a collective phase: peers are told, and only destroy is allowed. Returns
 * `status`. */
sherd_status shd_session_die(sherd_session *session, sherd_status status);

/* The same when every rank knows the failure already, and fails alike. Returns `status`. */
sherd_status shd_session_die_together(sherd_session *session, sherd_status status);

/* One status for all ranks: that of the lowest rank that failed, with its cause. Collective. */
sherd_status shd_session_agree(sherd_session *session, sherd_status mine);

/* Runs PROLOGUE: afterwards the session is at a step boundary with every parameter in place. Collective. */
sherd_status shd_session_begin_life(sherd_session *session);

#endif
