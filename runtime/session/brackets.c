/* Steps and evaluations: the brackets that advance the step program, and the loop that runs it with callbacks. */
#include "runtime/base/status.h"
#include "runtime/session/internal.h"

#include <stdio.h>
#include <string.h>

/* --- the one way through a program -------------------------------------------------------------------------------- */

/* A step that has diverged ends every rank's session at the same place, where nobody needs to be told. A save that was
 * under way is of the state before that step: it is finished first. */
static sherd_status diverge(sherd_session *session) {
    char cause[SHD_BALLOT_TEXT_BYTES];
    snprintf(cause, sizeof cause, "%s", sherd_last_error());
    sherd_status saved = shd_session_save_rescue(session);
    if (!sherd_status_is_fatal(saved)) session->phase = SHD_PHASE_DEAD;
    return shd_fail(SHERD_NUMERIC, "%s", cause);
}

static sherd_status advance(sherd_session *session, const shd_instruction **due) {
    sherd_status status = shd_engine_advance(session->engine, due);
    if (status == SHERD_OK) return SHERD_OK;
    return status == SHERD_NUMERIC ? diverge(session) : shd_session_die(session, status);
}

/* "forward of unit 2 (h.1)" */
static void describe(const sherd_session *session, shd_op op, int32_t unit, char *out, size_t bytes) {
    const char *name = unit >= 0 && unit < session->plan->unit_count ? session->plan->unit_names[unit] : "no such unit";
    const char *what = op == SHD_OP_BACKWARD ? "backward" : op == SHD_OP_RECOMPUTE ? "forward once more" : "forward";
    snprintf(out, bytes, "%s of unit %d (%s)", what, unit, name);
}

/* A forward bracket serves both times a unit runs forward. */
static bool is_bracket_of(const shd_instruction *due, shd_op op, int32_t unit) {
    if (!due || due->unit_index != unit) return false;
    return due->op == op || (due->op == SHD_OP_RECOMPUTE && op == SHD_OP_FORWARD);
}

static sherd_status expect_program(const sherd_session *session, const char *call) {
    if (!session) return shd_fail(SHERD_ARGUMENT, "%s: the session is NULL", call);
    if (session->phase == SHD_PHASE_STEP || session->phase == SHD_PHASE_EVALUATION) return SHERD_OK;
    return shd_session_expect(session, SHD_PHASE_STEP, call);
}

static sherd_status open_bracket(sherd_session *session, shd_op op, int32_t unit, sherd_view *view, const char *call) {
    SHD_TRY(expect_program(session, call));
    if (!view) return shd_fail(SHERD_ARGUMENT, "%s: the view is NULL", call);
    if (session->bracket_open) return shd_fail(SHERD_STATE, "%s: the last bracket is still open", call);
    const shd_instruction *next = shd_engine_next_compute(session->engine);
    if (!is_bracket_of(next, op, unit)) {
        char given[96], expected[96];
        describe(session, op, unit, given, sizeof given);
        if (next)
            describe(session, next->op, next->unit_index, expected, sizeof expected);
        else
            snprintf(expected, sizeof expected, "the end of the %s",
                     session->phase == SHD_PHASE_STEP ? "step" : "evaluation");
        return shd_fail(SHERD_STATE, "%s: %s, but %s is due", call, given, expected);
    }
    SHD_TRY(advance(session, &next));
    shd_engine_view(session->engine, view);
    session->bracket_open = true;
    return SHERD_OK;
}

static sherd_status close_bracket(sherd_session *session, shd_op op, int32_t unit, const char *call) {
    SHD_TRY(expect_program(session, call));
    const shd_instruction *open = session->bracket_open ? shd_engine_next_compute(session->engine) : NULL;
    if (!is_bracket_of(open, op, unit))
        return shd_fail(SHERD_STATE, "%s: no such bracket is open (unit %d)", call, unit);
    session->bracket_open = false;
    sherd_status status = shd_engine_computed(session->engine);
    return status == SHERD_OK ? SHERD_OK : shd_session_die(session, status);
}

sherd_status sherd_forward_begin(sherd_session *session, int32_t unit, sherd_view *view) {
    return open_bracket(session, SHD_OP_FORWARD, unit, view, "sherd_forward_begin");
}

sherd_status sherd_forward_end(sherd_session *session, int32_t unit) {
    return close_bracket(session, SHD_OP_FORWARD, unit, "sherd_forward_end");
}

sherd_status sherd_backward_begin(sherd_session *session, int32_t unit, sherd_view *view) {
    return open_bracket(session, SHD_OP_BACKWARD, unit, view, "sherd_backward_begin");
}

sherd_status sherd_backward_end(sherd_session *session, int32_t unit) {
    return close_bracket(session, SHD_OP_BACKWARD, unit, "sherd_backward_end");
}

sherd_status sherd_add_loss(sherd_session *session, const double *terms, int64_t count) {
    SHD_TRY(expect_program(session, "sherd_add_loss"));
    if (count < 0 || (count > 0 && !terms))
        return shd_fail(SHERD_ARGUMENT, "sherd_add_loss: %lld terms at %p", (long long)count, (const void *)terms);
    shd_engine_add_loss(session->engine, terms, count);
    return SHERD_OK;
}

sherd_status sherd_add_metric(sherd_session *session, int32_t metric, const double *terms, int64_t count) {
    SHD_TRY(expect_program(session, "sherd_add_metric"));
    if (metric < 0 || metric >= SHERD_METRICS)
        return shd_fail(SHERD_ARGUMENT, "sherd_add_metric: metric %d; there are 0 to %d", metric, SHERD_METRICS - 1);
    if (count < 0 || (count > 0 && !terms))
        return shd_fail(SHERD_ARGUMENT, "sherd_add_metric: %lld terms at %p", (long long)count, (const void *)terms);
    shd_engine_add_metric(session->engine, metric, terms, count);
    return SHERD_OK;
}

sherd_status sherd_raise(sherd_session *session, uint32_t flags) {
    if (!session) return shd_fail(SHERD_ARGUMENT, "sherd_raise: the session is NULL");
    if (session->phase == SHD_PHASE_DEAD) return shd_session_expect(session, SHD_PHASE_BOUNDARY, "sherd_raise");
    shd_engine_raise(session->engine, flags);
    return SHERD_OK;
}

/* So many that the sum over all ranks does not overflow. */
static sherd_status check_targets(int64_t count, const char *call) {
    if (count >= 0 && count <= INT64_MAX / SHD_COMM_MAX_RANKS) return SHERD_OK;
    return shd_fail(SHERD_ARGUMENT, "%s: %lld targets", call, (long long)count);
}

/* Runs what is left of the program; nothing of the caller's may be due. */
static sherd_status close_program(sherd_session *session, const char *call) {
    if (session->bracket_open) return shd_fail(SHERD_STATE, "%s: the last bracket is still open", call);
    const shd_instruction *next = shd_engine_next_compute(session->engine);
    if (next) {
        char expected[96];
        describe(session, next->op, next->unit_index, expected, sizeof expected);
        return shd_fail(SHERD_STATE, "%s: %s is still due", call, expected);
    }
    SHD_TRY(advance(session, &next));
    session->phase = SHD_PHASE_BOUNDARY;
    return SHERD_OK;
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

sherd_status sherd_step_begin(sherd_session *session, int64_t target_count) {
    SHD_TRY(shd_session_expect(session, SHD_PHASE_BOUNDARY, "sherd_step_begin"));
    SHD_TRY(check_targets(target_count, "sherd_step_begin"));
    shd_engine_begin(session->engine, SHD_PROGRAM_TRAIN, session->step_count, target_count);
    session->save.in_step = session->save.pending;
    session->phase = SHD_PHASE_STEP;
    return SHERD_OK;
}

sherd_status sherd_step(sherd_session *session, sherd_step_result *result) {
    SHD_TRY(shd_session_expect(session, SHD_PHASE_STEP, "sherd_step"));
    SHD_TRY(close_program(session, "sherd_step"));
    if (session->save.in_step) shd_session_save_waited(session, shd_engine_save_wait_ms(session->engine));
    if (result) {
        shd_engine_result(session->engine, result);
        result->step = session->step_count;
    }
    session->step_count++;
    return SHERD_OK;
}

static sherd_status run_callback(sherd_session *session, const shd_instruction *due, const sherd_callbacks *callbacks) {
    sherd_view view;
    shd_engine_view(session->engine, &view);
    sherd_status status =
        (due->op == SHD_OP_BACKWARD ? callbacks->backward : callbacks->forward)(callbacks->user, &view);
    if (status == SHERD_OK) status = shd_engine_computed(session->engine);
    return status == SHERD_OK ? SHERD_OK : shd_session_die(session, status);
}

sherd_status sherd_run_step(sherd_session *session, int64_t target_count, const sherd_callbacks *callbacks,
                            sherd_step_result *result) {
    if (!callbacks || callbacks->size != sizeof *callbacks || !callbacks->forward || !callbacks->backward)
        return shd_fail(SHERD_ARGUMENT, "sherd_run_step needs callbacks with their size and both functions set");
    SHD_TRY(sherd_step_begin(session, target_count));
    for (;;) {
        const shd_instruction *due;
        SHD_TRY(advance(session, &due));
        if (!due) break;
        SHD_TRY(run_callback(session, due, callbacks));
    }
    return sherd_step(session, result);
}

/* --- evaluations -------------------------------------------------------------------------------------------------- */

sherd_status sherd_evaluate_begin(sherd_session *session) {
    SHD_TRY(shd_session_expect(session, SHD_PHASE_BOUNDARY, "sherd_evaluate_begin"));
    if (!session->programs[SHD_PROGRAM_EVALUATE])
        return shd_fail(SHERD_STATE, "sherd_evaluate_begin: the session was created with eval_micro_steps 0");
    shd_engine_begin(session->engine, SHD_PROGRAM_EVALUATE, session->step_count, 0);
    session->phase = SHD_PHASE_EVALUATION;
    return SHERD_OK;
}

sherd_status sherd_evaluate_end(sherd_session *session, int64_t target_count, sherd_evaluation *result) {
    SHD_TRY(shd_session_expect(session, SHD_PHASE_EVALUATION, "sherd_evaluate_end"));
    if (!result) return shd_fail(SHERD_ARGUMENT, "sherd_evaluate_end: the result is NULL");
    SHD_TRY(check_targets(target_count, "sherd_evaluate_end"));
    shd_engine_set_targets(session->engine, target_count);
    SHD_TRY(close_program(session, "sherd_evaluate_end"));
    sherd_step_result found;
    shd_engine_result(session->engine, &found);
    *result = (sherd_evaluation){.loss = found.loss, .target_count = found.target_count};
    memcpy(result->metrics, found.metrics, sizeof result->metrics);
    return SHERD_OK;
}
