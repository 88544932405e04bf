/* Saving: what a rank stores, and the life of a save, which SAVE instructions feed and a COMMIT ends. */
#include "io/checkpoint_folder.h"
#include "runtime/base/clock.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/session/internal.h"
#include "runtime/session/slices.h"

#include <stdio.h>
#include <string.h>

/* --- what the engine calls ---------------------------------------------------------------------------------------- */

/* Whether this rank writes for the pending save. */
static bool writes(const shd_save *save) { return save->pending && save->writer && save->dir; }

static void take(void *user, int32_t unit) {
    sherd_session *session = user;
    shd_save *save = &session->save;
    if (!save->pending || save->taken[unit]) return;
    save->taken[unit] = true;
    save->taken_count++;
    if (!writes(save)) return;
    shd_writer_submit(save->writer, unit);
    if (save->taken_count == session->plan->unit_count) shd_writer_finish(save->writer);
}

static bool wants(void *user, int32_t unit) {
    const shd_save *save = &((const sherd_session *)user)->save;
    return writes(save) && !save->taken[unit];
}

static bool is_taken(void *user, int32_t unit) {
    const shd_save *save = &((const sherd_session *)user)->save;
    return !writes(save) || shd_writer_done(save->writer, unit);
}

static shd_save_state find_state(void *user) {
    const shd_save *save = &((const sherd_session *)user)->save;
    if (!save->pending) return SHD_SAVE_NONE;
    return writes(save) && shd_writer_state_of(save->writer) == SHD_WRITER_WRITING ? SHD_SAVE_WRITING : SHD_SAVE_ENDED;
}

shd_storage shd_session_storage(sherd_session *session) {
    return (shd_storage){.user = session,
                         .save = take,
                         .wants = wants,
                         .saved = is_taken,
                         .state = find_state,
                         .commit = shd_session_commit};
}

/* --- life --------------------------------------------------------------------------------------------------------- */

static sherd_status start_writer(sherd_session *session) {
    shd_save *save = &session->save;
    const sherd_checkpoint *options = &session->options.checkpoint;
    SHD_TRY(shd_slices_stored(session, &save->stored, save->unit_ends));
    const shd_writer_config config = {
        .slices = save->stored.slices,
        .slice_count = save->stored.count,
        .ticket_ends = save->unit_ends,
        .ticket_count = session->plan->unit_count,
        .compression = options->compression,
        .threads = options->threads,
        .memory = shd_engine_staging(session->engine),
    };
    return shd_writer_create(&config, &save->writer);
}

sherd_status shd_session_save_init(sherd_session *session) {
    shd_save *save = &session->save;
    const shd_mesh mesh = shd_policy_mesh(&session->plan->policy);
    size_t units = (size_t)session->plan->unit_count;
    save->taken = shd_alloc(units, sizeof *save->taken);
    save->unit_ends = shd_alloc(units, sizeof *save->unit_ends);
    if (!save->taken || !save->unit_ends) return shd_fail(SHERD_MEMORY, "no memory for a table of saves");
    return shd_mesh_replica(&mesh) == 0 ? start_writer(session) : SHERD_OK;
}

static void forget(shd_save *save) {
    shd_free(save->dir);
    shd_free(save->note);
    save->dir = save->note = NULL;
    save->pending = false;
}

void shd_session_save_fini(sherd_session *session) {
    shd_save *save = &session->save;
    shd_writer_destroy(save->writer);
    save->writer = NULL;
    /* Ranks that still write or commit keep it from being removed: the last one does. */
    if (save->pending && save->dir) shd_checkpoint_abandon(save->dir, save->step, save->id);
    forget(save);
    shd_free(save->settled);
    shd_slices_fini(&save->stored);
    shd_free(save->unit_ends);
    shd_free(save->taken);
}

sherd_status shd_session_save_none(const sherd_session *session, const char *call) {
    if (!session->save.pending) return SHERD_OK;
    return shd_fail(SHERD_STATE, "%s: the save of step %lld has not ended (sherd_session_save_wait)", call,
                    (long long)session->save.step);
}

void shd_session_save_waited(sherd_session *session, double wait_ms) {
    shd_save *save = &session->save;
    *(save->pending ? &save->wait_ms : &save->last.wait_ms) += wait_ms;
}

void shd_session_save_end(sherd_session *session, sherd_status status, int64_t raw_bytes, int64_t stored_bytes) {
    shd_save *save = &session->save;
    snprintf(save->cause, sizeof save->cause, "%s", status == SHERD_OK ? "" : sherd_last_error());
    save->last = (sherd_save_result){.count = save->last.count + 1,
                                     .step = save->step,
                                     .status = status,
                                     .cause = save->cause,
                                     .wait_ms = save->wait_ms,
                                     .seconds = (shd_clock_ms() - save->since_ms) / 1e3,
                                     .raw_bytes = raw_bytes,
                                     .stored_bytes = stored_bytes};
    if (save->writer && shd_writer_state_of(save->writer) != SHD_WRITER_IDLE) shd_writer_close(save->writer);
    forget(save);
}

sherd_status shd_session_save_rescue(sherd_session *session) {
    shd_save *save = &session->save;
    if (!save->pending) return SHERD_OK;
    sherd_status status = shd_engine_finish_saves(session->engine);
    if (status != SHERD_OK) return shd_session_die(session, status);
    if (writes(save)) shd_writer_wait(save->writer);
    return shd_session_commit(session);
}

/* --- what callers do ---------------------------------------------------------------------------------------------- */

/* Runs SAVE: afterwards none is pending. */
static sherd_status finish(sherd_session *session) {
    const shd_instruction *due;
    shd_engine_begin(session->engine, SHD_PROGRAM_SAVE, session->step_count, 0);
    sherd_status status = shd_engine_advance(session->engine, &due);
    if (status != SHERD_OK) return shd_session_die(session, status);
    shd_session_save_waited(session, shd_engine_save_wait_ms(session->engine));
    return SHERD_OK;
}

/* Keeps what the save is of. */
static void begin(sherd_session *session, const char *dir, const char *note) {
    shd_save *save = &session->save;
    save->pending = true;
    save->taken_count = 0;
    memset(save->taken, 0, (size_t)session->plan->unit_count * sizeof *save->taken);
    save->step = session->step_count;
    save->since_ms = shd_clock_ms();
    save->wait_ms = 0;
    shd_engine_progress(session->engine, &save->progress);
    save->dir = shd_strdup(dir);
    save->note = note ? shd_strdup(note) : NULL;
    if (!note || save->note) return;
    shd_free(save->dir); /* this rank goes on with the others, and tells them at the end */
    save->dir = NULL;
}

sherd_status sherd_session_save_begin(sherd_session *session, const char *dir, const char *note) {
    SHD_TRY(shd_session_expect(session, SHD_PHASE_BOUNDARY, "sherd_session_save_begin"));
    if (!dir) return shd_fail(SHERD_ARGUMENT, "sherd_session_save_begin: the folder is NULL");
    SHD_TRY(shd_session_save_none(session, "sherd_session_save_begin"));
    char path[SHD_PATH_BYTES];
    SHD_TRY(shd_checkpoint_partial_path(path, dir, session->step_count, session->save.id));
    begin(session, dir, note);
    if (writes(&session->save))
        shd_writer_begin(session->save.writer, path, session->step_count, session->options.rank);
    return session->options.checkpoint.async ? SHERD_OK : finish(session);
}

bool sherd_session_save_pending(const sherd_session *session) { return session->save.pending; }

sherd_status sherd_session_save_wait(sherd_session *session) {
    SHD_TRY(shd_session_expect(session, SHD_PHASE_BOUNDARY, "sherd_session_save_wait"));
    if (session->save.pending) SHD_TRY(finish(session));
    const sherd_save_result *last = &session->save.last;
    return last->status == SHERD_OK ? SHERD_OK : shd_fail(last->status, "%s", last->cause);
}

void sherd_session_save_result(const sherd_session *session, sherd_save_result *out) {
    *out = session->save.last;
    if (!out->cause) out->cause = "";
}

sherd_status sherd_session_save(sherd_session *session, const char *dir, const char *note) {
    SHD_TRY(sherd_session_save_begin(session, dir, note));
    return sherd_session_save_wait(session);
}
