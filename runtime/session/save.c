/* Saving: every rank of replica 0, which together have the whole state, writes its slices; all agree on every outcome,
 * rank 0 commits. */
#include "io/checkpoint.h"
#include "runtime/base/clock.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/session/internal.h"
#include "runtime/session/slices.h"

#include <stdio.h>
#include <string.h>

static void describe_session(const sherd_session *session, shd_checkpoint_manifest *out) {
    const shd_save *save = &session->save;
    *out = (shd_checkpoint_manifest){.step = save->step,
                                     .update_count = save->progress.update_count,
                                     .precision = session->options.precision,
                                     .world_size = shd_policy_split(&session->plan->policy),
                                     .replicas = session->options.replicas,
                                     .stage = session->options.stage,
                                     .layout_hash = shd_plan_layout_hash(session->plan),
                                     .optimizer = shd_optimizer_name(&session->options.optimizer),
                                     .state_count = shd_optimizer_states(&session->options.optimizer),
                                     .state_dtype = session->plan->policy.state_dtype,
                                     .tensor_count = session->plan->tensor_count,
                                     .tensors = session->plan->tensors,
                                     .note = save->note};
    if (session->options.precision == SHERD_FP16)
        out->loss_scale = (shd_checkpoint_scale){.scale = save->progress.loss_scale.scale,
                                                 .good_steps = save->progress.loss_scale.good_steps,
                                                 .hysteresis = save->progress.loss_scale.hysteresis};
    int32_t elementwise = session->plan->policy.state_count;
    for (int32_t s = 0; s < out->state_count; s++)
        out->state_names[s] = s < elementwise ? shd_optimizer_state_name(&session->options.optimizer, s)
                                              : shd_whole_state_name(&session->options.optimizer, s - elementwise);
}

/* --- saving ------------------------------------------------------------------------------------------------------- */

static sherd_status write_rank(sherd_session *session) {
    shd_mesh mesh = shd_policy_mesh(&session->plan->policy);
    shd_slice_list list;
    if (shd_mesh_replica(&mesh) > 0) return SHERD_OK;
    SHD_TRY(shd_slices_list(session, mesh.rank, &list));
    sherd_status status =
        shd_checkpoint_write_rank(session->save.dir, session->save.step, mesh.rank, list.slices, list.count);
    shd_slices_fini(&list);
    return status;
}

/* What a manifest says of the sizes of states: as io/checkpoint.h has it. Release with shd_free. */
static int64_t *list_state_elements(const shd_plan *plan, int32_t state_count) {
    int64_t *elements = shd_alloc((size_t)plan->tensor_count * (size_t)state_count, sizeof *elements);
    for (int32_t t = 0; elements && t < plan->tensor_count; t++) {
        const shd_tensor_place *place = &plan->places[t];
        int64_t *states = &elements[(int64_t)t * state_count];
        for (int32_t s = 0; s < state_count; s++) {
            int32_t owned = s - plan->policy.state_count;
            if (owned >= 0)
                states[s] = place->whole ? place->state_counts[owned] : 0;
            else if (!place->whole && !plan->tensors[t].frozen)
                states[s] = place->element_count;
        }
    }
    return elements;
}

static sherd_status commit(const sherd_session *session) {
    if (session->options.rank != 0) return SHERD_OK;
    shd_checkpoint_manifest manifest;
    int64_t *elements = NULL;
    describe_session(session, &manifest);
    if (session->plan->has_owners) {
        manifest.state_elements = elements = list_state_elements(session->plan, manifest.state_count);
        if (!elements) return shd_fail(SHERD_MEMORY, "no memory for a checkpoint's manifest");
    }
    sherd_status status = shd_checkpoint1_commit(session->save.dir, &manifest);
    shd_free(elements);
    return status;
}

/* --- a save's life ------------------------------------------------------------------------------------------------ */

static void forget(shd_save *save) {
    shd_free(save->dir);
    shd_free(save->note);
    save->dir = save->note = NULL;
    save->pending = false;
}

void shd_session_save_fini(sherd_session *session) { forget(&session->save); }

/* The save has ended with `status`, which all ranks have. */
static void end(sherd_session *session, sherd_status status) {
    shd_save *save = &session->save;
    snprintf(save->cause, sizeof save->cause, "%s", status == SHERD_OK ? "" : sherd_last_error());
    save->last = (sherd_save_result){.count = save->last.count + 1,
                                     .step = save->step,
                                     .status = status,
                                     .cause = save->cause,
                                     .wait_ms = save->wait_ms,
                                     .seconds = (shd_clock_ms() - save->since_ms) / 1e3};
    forget(save);
}

/* Fails as a save does that ends the session. */
static sherd_status finish(sherd_session *session) {
    shd_save *save = &session->save;
    double since_ms = shd_clock_ms();
    sherd_status ready = save->dir ? write_rank(session) : shd_fail(SHERD_MEMORY, "no memory for a checkpoint's note");
    sherd_status status = shd_session_agree(session, ready);
    if (status == SHERD_OK) status = shd_session_agree(session, commit(session));
    if (sherd_status_is_fatal(status)) return status;
    if (status != SHERD_OK && session->options.rank == 0 && save->dir) shd_checkpoint1_discard(save->dir, save->step);
    save->wait_ms += shd_clock_ms() - since_ms;
    end(session, status);
    return SHERD_OK;
}

sherd_status sherd_session_save_begin(sherd_session *session, const char *dir, const char *note) {
    SHD_TRY(shd_session_expect(session, SHD_PHASE_BOUNDARY, "sherd_session_save_begin"));
    if (!dir) return shd_fail(SHERD_ARGUMENT, "sherd_session_save_begin: the folder is NULL");
    shd_save *save = &session->save;
    if (save->pending)
        return shd_fail(SHERD_STATE, "sherd_session_save_begin: the save of step %lld has not ended",
                        (long long)save->step);
    save->pending = true;
    save->step = session->step_count;
    save->since_ms = shd_clock_ms();
    save->wait_ms = 0;
    shd_engine_progress(session->engine, &save->progress);
    save->dir = shd_strdup(dir);
    save->note = note ? shd_strdup(note) : NULL;
    if (note && !save->note) { /* told to all when it ends: this rank must go on with the others */
        shd_free(save->dir);
        save->dir = NULL;
    }
    return finish(session);
}

bool sherd_session_save_pending(const sherd_session *session) { return session->save.pending; }

sherd_status sherd_session_save_wait(sherd_session *session) {
    SHD_TRY(shd_session_expect(session, SHD_PHASE_BOUNDARY, "sherd_session_save_wait"));
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
