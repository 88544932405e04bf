/* The end of a save: all ranks agree on what they have written, rank 0 makes the checkpoint complete, all agree on that.
 * What fails on one rank fails on all, does away with what has been written, and leaves older checkpoints alone. */
#include "io/checkpoint_folder.h"
#include "runtime/base/log.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/session/internal.h"
#include "runtime/session/slices.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- the manifest ------------------------------------------------------------------------------------------------- */

/* What it says of the sizes of states: as io/checkpoint.h has it. Release with shd_free. */
static int64_t *list_state_elements(const shd_plan *plan, int32_t state_count) {
    int64_t *elements = shd_alloc((size_t)plan->tensor_count * (size_t)state_count, sizeof *elements);
    for (int32_t t = 0; elements && t < plan->tensor_count; t++)
        for (int32_t s = 0; s < state_count; s++) elements[(int64_t)t * state_count + s] = shd_state_values(plan, t, s);
    return elements;
}

static void describe(const sherd_session *session, shd_checkpoint_manifest *out) {
    const shd_save *save = &session->save;
    const sherd_optimizer *optimizer = &session->options.optimizer;
    *out = (shd_checkpoint_manifest){.step = save->step,
                                     .update_count = save->progress.update_count,
                                     .precision = session->options.precision,
                                     .world_size = shd_policy_split(&session->plan->policy),
                                     .replicas = session->options.replicas,
                                     .stage = session->options.stage,
                                     .optimizer = shd_optimizer_name(optimizer),
                                     .state_count = shd_optimizer_states(optimizer),
                                     .state_dtype = session->plan->policy.state_dtype,
                                     .tensor_count = session->plan->tensor_count,
                                     .tensors = session->plan->tensors,
                                     .note = save->note};
    if (session->options.precision == SHERD_FP16)
        out->loss_scale = (shd_checkpoint_scale){.scale = save->progress.loss_scale.scale,
                                                 .good_steps = save->progress.loss_scale.good_steps,
                                                 .hysteresis = save->progress.loss_scale.hysteresis};
    for (int32_t s = 0; s < out->state_count; s++) out->state_names[s] = shd_optimizer_states_name(optimizer, s);
}

/* --- rank 0 ------------------------------------------------------------------------------------------------------- */

/* Whether the session has saved there before, whatever name the folder had then. */
static bool is_settled(const shd_save *save, const shd_folder_id *folder) {
    for (int64_t i = 0; i < save->settled_count; i++)
        if (save->settled[i].device == folder->device && save->settled[i].inode == folder->inode) return true;
    return false;
}

/* Checkpoints of later steps than this session began with are of a branch that it has left: moved aside before its own
 * first one is there, so that nobody goes on with the wrong one. */
static sherd_status settle(sherd_session *session) {
    shd_save *save = &session->save;
    shd_folder_id folder;
    SHD_TRY(shd_folder_identify(save->dir, &folder));
    if (is_settled(save, &folder)) return SHERD_OK;
    shd_folder_id *grown = shd_realloc(save->settled, (size_t)(save->settled_count + 1) * sizeof *grown);
    if (!grown) return shd_fail(SHERD_MEMORY, "no memory for the list of folders with checkpoints");
    save->settled = grown;
    int32_t moved = 0;
    SHD_TRY(shd_checkpoint_move_aside(save->dir, session->start_step, save->id, &moved));
    if (moved > 0)
        shd_log(SHERD_LOG_INFO,
                "%s: %d checkpoint%s of more than %lld steps, which this run did not go on from: renamed to "
                "step-*.aside-%016" PRIx64,
                save->dir, moved, moved == 1 ? "" : "s", (long long)session->start_step, save->id);
    save->settled[save->settled_count++] = folder;
    return SHERD_OK;
}

static sherd_status complete(sherd_session *session) {
    if (session->options.rank != 0) return SHERD_OK;
    shd_checkpoint_manifest manifest;
    describe(session, &manifest);
    int64_t *elements = list_state_elements(session->plan, manifest.state_count);
    if (!elements) return shd_fail(SHERD_MEMORY, "no memory for a checkpoint's manifest");
    manifest.state_elements = elements;
    sherd_status status = settle(session);
    if (status == SHERD_OK) status = shd_checkpoint_commit(session->save.dir, session->save.id, &manifest);
    shd_free(elements);
    return status;
}

static void retain(const sherd_session *session) {
    const shd_save *save = &session->save;
    const shd_checkpoint_retention retention = {.keep = session->options.checkpoint.keep,
                                                .keep_every = session->options.checkpoint.keep_every};
    if (session->options.rank == 0 && retention.keep > 0)
        shd_checkpoint_retain(save->dir, &retention, save->step, save->id);
}

/* --- all ranks ---------------------------------------------------------------------------------------------------- */

/* How this rank has fared; `text`: its bytes, or why. */
static sherd_status own_result(const shd_save *save, char text[SHD_BALLOT_TEXT_BYTES]) {
    sherd_status status = !save->dir     ? shd_fail(SHERD_MEMORY, "no memory to begin a save")
                          : save->writer ? shd_writer_result(save->writer)
                                         : SHERD_OK;
    shd_writer_totals totals = {0};
    if (status == SHERD_OK && save->writer) totals = shd_writer_totals_of(save->writer);
    snprintf(text, SHD_BALLOT_TEXT_BYTES, "%" PRId64 " %" PRId64, totals.raw_bytes, totals.file_bytes);
    if (status != SHERD_OK) snprintf(text, SHD_BALLOT_TEXT_BYTES, "%s", sherd_last_error());
    return status;
}

/* What all ranks have written; their ballots have texts of own_result. */
static void sum_bytes(const sherd_session *session, int64_t *raw_bytes, int64_t *stored_bytes) {
    *raw_bytes = *stored_bytes = 0;
    for (int32_t r = 0; r < session->options.world_size; r++) {
        int64_t raw = 0, stored = 0;
        if (sscanf(session->ballots[r].text, "%" SCNd64 " %" SCNd64, &raw, &stored) != 2) continue;
        *raw_bytes += raw;
        *stored_bytes += stored;
    }
}

/* Nobody holds its file any longer when it is removed, if it can be. */
static sherd_status discard(sherd_session *session, char *dir, int64_t step) {
    SHD_TRY(shd_session_vote(session, SHERD_OK, ""));
    if (session->options.rank == 0 && dir) shd_checkpoint_discard(dir, step, session->save.id);
    return SHERD_OK;
}

sherd_status shd_session_commit(void *user) {
    sherd_session *session = user;
    shd_save *save = &session->save;
    char text[SHD_BALLOT_TEXT_BYTES];
    sherd_status mine = own_result(save, text);
    SHD_TRY(shd_session_vote(session, mine, text));
    sherd_status status = shd_session_outcome(session);
    int64_t raw_bytes = 0, stored_bytes = 0;
    if (status == SHERD_OK) {
        sum_bytes(session, &raw_bytes, &stored_bytes);
        status = shd_session_agree(session, complete(session));
    }
    if (sherd_status_is_fatal(status)) return status;
    if (status == SHERD_OK) retain(session);
    char *dir = save->dir;
    save->dir = NULL;
    shd_session_save_end(session, status, raw_bytes, stored_bytes);
    sherd_status discarded = status == SHERD_OK ? SHERD_OK : discard(session, dir, save->step);
    shd_free(dir);
    return discarded;
}
