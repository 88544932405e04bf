/* Saving and loading: every rank reads its own slices, those of replica 0, which are the whole state, write theirs, all
 * agree on every outcome, rank 0 commits. */
#include "io/checkpoint.h"

#include "runtime/base/dtype.h"
#include "runtime/base/log.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/session/internal.h"
#include "runtime/session/setup.h"

#include <stdio.h>
#include <string.h>

/* --- what there is to store --------------------------------------------------------------------------------------- */

/* The slices of one rank: its shards of the parameters of every tensor and of each optimizer state, and the states of
 * the tensors that it owns. */
typedef struct slice_list {
    const shd_plan *plan;
    const char *state;
    shd_checkpoint_slice *slices;
    int64_t count, capacity;
} slice_list;

static sherd_status append_slice(void *user, const shd_slice *slice) {
    slice_list *list = user;
    if (list->count == list->capacity) {
        int64_t capacity = list->capacity ? 2 * list->capacity : 64;
        shd_checkpoint_slice *grown = shd_realloc(list->slices, (size_t)capacity * sizeof *grown);
        if (!grown)
            return shd_fail(SHERD_MEMORY, "no memory for the list of %lld checkpoint slices", (long long)capacity);
        list->slices = grown;
        list->capacity = capacity;
    }
    list->slices[list->count++] = (shd_checkpoint_slice){.tensor = list->plan->tensor_names[slice->tensor],
                                                         .state = list->state,
                                                         .first = slice->first,
                                                         .count = slice->count,
                                                         .values = slice->values,
                                                         .dtype = slice->dtype};
    return SHERD_OK;
}

static sherd_status list_slices(sherd_session *session, int32_t rank, slice_list *out) {
    slice_list list = {.plan = session->plan};
    sherd_status status = SHERD_OK;
    for (int32_t s = -1; s < session->plan->policy.state_count && status == SHERD_OK; s++) {
        list.state = s < 0 ? SHD_CHECKPOINT_PARAMETER : shd_optimizer_state_name(&session->options.optimizer, s);
        status = shd_engine_visit(session->engine, s, rank, append_slice, &list);
    }
    for (int32_t s = 0; s < shd_whole_state_count(&session->options.optimizer) && status == SHERD_OK; s++) {
        list.state = shd_whole_state_name(&session->options.optimizer, s);
        status = shd_engine_visit_owned(session->engine, s, rank, append_slice, &list);
    }
    if (status == SHERD_OK)
        *out = list;
    else
        shd_free(list.slices);
    return status;
}

static const char *optimizer_name(const sherd_options *options) {
    switch (options->optimizer.kind) {
    case SHERD_ADAMW: return "adamw";
    case SHERD_SGD: return "sgd";
    case SHERD_LION: return "lion";
    case SHERD_ADAM: return "adam";
    case SHERD_ADAFACTOR: return "adafactor";
    case SHERD_MUON: return "muon";
    }
    return "";
}

/* States that any tensor has. */
static int32_t count_states(const sherd_optimizer *optimizer) {
    return shd_optimizer_state_count(optimizer) + shd_whole_state_count(optimizer);
}

static shd_mesh mesh_of(const sherd_session *session) { return shd_policy_mesh(&session->plan->policy); }

static void describe_session(const sherd_session *session, const char *note, shd_checkpoint_manifest *out) {
    shd_progress progress;
    shd_engine_progress(session->engine, &progress);
    *out = (shd_checkpoint_manifest){.step = session->step_count,
                                     .update_count = progress.update_count,
                                     .precision = session->options.precision,
                                     .world_size = shd_policy_split(&session->plan->policy),
                                     .replicas = session->options.replicas,
                                     .stage = session->options.stage,
                                     .layout_hash = shd_plan_layout_hash(session->plan),
                                     .optimizer = optimizer_name(&session->options),
                                     .state_count = count_states(&session->options.optimizer),
                                     .state_dtype = session->plan->policy.state_dtype,
                                     .tensor_count = session->plan->tensor_count,
                                     .tensors = session->plan->tensors,
                                     .note = note};
    if (session->options.precision == SHERD_FP16)
        out->loss_scale = (shd_checkpoint_scale){.scale = progress.loss_scale.scale,
                                                 .good_steps = progress.loss_scale.good_steps,
                                                 .hysteresis = progress.loss_scale.hysteresis};
    int32_t elementwise = session->plan->policy.state_count;
    for (int32_t s = 0; s < out->state_count; s++)
        out->state_names[s] = s < elementwise ? shd_optimizer_state_name(&session->options.optimizer, s)
                                              : shd_whole_state_name(&session->options.optimizer, s - elementwise);
}

/* --- saving ------------------------------------------------------------------------------------------------------- */

static sherd_status write_rank(sherd_session *session, const char *dir) {
    shd_mesh mesh = mesh_of(session);
    slice_list list;
    if (shd_mesh_replica(&mesh) > 0) return SHERD_OK;
    SHD_TRY(list_slices(session, mesh.rank, &list));
    sherd_status status = shd_checkpoint_write_rank(dir, session->step_count, mesh.rank, list.slices, list.count);
    shd_free(list.slices);
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

static sherd_status commit(const sherd_session *session, const char *dir, const char *note) {
    if (session->options.rank != 0) return SHERD_OK;
    shd_checkpoint_manifest manifest;
    int64_t *elements = NULL;
    describe_session(session, note, &manifest);
    if (session->plan->has_owners) {
        manifest.state_elements = elements = list_state_elements(session->plan, manifest.state_count);
        if (!elements) return shd_fail(SHERD_MEMORY, "no memory for a checkpoint's manifest");
    }
    sherd_status status = shd_checkpoint1_commit(dir, &manifest);
    shd_free(elements);
    return status;
}

sherd_status sherd_session_save(sherd_session *session, const char *dir, const char *note) {
    SHD_TRY(shd_session_expect(session, SHD_PHASE_BOUNDARY, "sherd_session_save"));
    if (!dir) return shd_fail(SHERD_ARGUMENT, "sherd_session_save: the folder is NULL");
    sherd_status status = shd_session_agree(session, write_rank(session, dir));
    if (status == SHERD_OK) status = shd_session_agree(session, commit(session, dir, note));
    if (status != SHERD_OK && session->options.rank == 0) shd_checkpoint1_discard(dir, session->step_count);
    return status;
}

/* --- loading ------------------------------------------------------------------------------------------------------ */

enum { PATH_BYTES = sizeof((shd_ballot *)0)->text };

/* The checkpoint that `dir` means, of which `path` has room for the name. */
static sherd_status find(const char *dir, char path[PATH_BYTES]) {
    char *found = NULL;
    SHD_TRY(shd_checkpoint_find(dir, &found));
    if (!found) return shd_fail(SHERD_DATA, "%s: no complete checkpoint is there", dir);
    int length = snprintf(path, PATH_BYTES, "%s", found);
    shd_free(found);
    if (length >= PATH_BYTES)
        return shd_fail(SHERD_ARGUMENT, "%s: the path is longer than %d bytes", dir, PATH_BYTES - 1);
    return SHERD_OK;
}

/* Rank 0 looks for all, so that a folder that changes meanwhile cannot divide the ranks. */
static sherd_status find_together(sherd_session *session, const char *dir, char path[PATH_BYTES]) {
    sherd_status mine = SHERD_OK;
    path[0] = 0;
    if (session->options.rank == 0) mine = find(dir, path);
    SHD_TRY(shd_session_vote(session, mine, mine == SHERD_OK ? path : sherd_last_error()));
    const shd_ballot *found = &session->ballots[0];
    if (found->status != SHERD_OK) return shd_fail(found->status, "%s", found->text);
    memcpy(path, found->text, PATH_BYTES);
    return SHERD_OK;
}

sherd_status shd_checkpoint_fits(const shd_checkpoint *checkpoint, const sherd_options *options, const shd_plan *plan) {
    const shd_checkpoint_manifest *saved = shd_checkpoint_content(checkpoint);
    const char *path = shd_checkpoint_path(checkpoint), *optimizer = optimizer_name(options);
    if (strcmp(saved->optimizer, optimizer) != 0)
        return shd_fail(
            SHERD_DATA,
            "%s: saved with optimizer.name: %s, but this job has %s; go on with optimizer.name: %s, or start "
            "anew with checkpoint.resume: never",
            path, saved->optimizer, optimizer, saved->optimizer);
    int32_t split = shd_policy_split(&plan->policy), ranks = saved->world_size * options->replicas;
    if (saved->world_size != split || saved->stage != options->stage)
        return shd_fail(SHERD_DATA,
                        "%s: saved by %d rank%s at stage %d, but this job has %d%s at stage %d; go on with "
                        "run.ranks %d and shard.stage %d (-n %d --set shard.stage=%d)",
                        path, saved->world_size, saved->world_size == 1 ? "" : "s", saved->stage, split,
                        options->replicas > 1 ? " in each replica" : "", options->stage, ranks, saved->stage, ranks,
                        saved->stage);
    if (saved->state_count != count_states(&options->optimizer))
        return shd_fail(SHERD_DATA,
                        "%s: saved with %d values of optimizer state for each parameter, but this job has %d; set "
                        "optimizer.momentum as it was",
                        path, saved->state_count, count_states(&options->optimizer));
    if (saved->state_dtype != plan->policy.state_dtype)
        return shd_fail(SHERD_DATA,
                        "%s: saved with optimizer.state_dtype: %s, but this job has %s; set it as it was (--set "
                        "optimizer.state_dtype=%s)",
                        path, shd_dtype_text(saved->state_dtype), shd_dtype_text(plan->policy.state_dtype),
                        shd_dtype_text(saved->state_dtype));
    if (saved->layout_hash != shd_plan_layout_hash(plan))
        return shd_fail(
            SHERD_DATA,
            "%s: saved by another model: the names, shapes, order or frozen ones of its tensors differ "
            "from this job's%s",
            path, options->optimizer.kind == SHERD_MUON ? ", or which of them optimizer.groups give to muon" : "");
    return SHERD_OK;
}

static sherd_status read_shards(sherd_session *session, const shd_checkpoint *checkpoint, int32_t rank) {
    slice_list list;
    SHD_TRY(list_slices(session, rank, &list));
    sherd_status status = shd_checkpoint_read_rank(checkpoint, rank, list.slices, list.count);
    shd_free(list.slices);
    return status;
}

static sherd_status open_fitting(const sherd_session *session, const char *path, shd_checkpoint **out) {
    shd_checkpoint *checkpoint;
    SHD_TRY(shd_checkpoint_open(path, &checkpoint));
    sherd_status status = shd_checkpoint_fits(checkpoint, &session->options, session->plan);
    if (status == SHERD_OK)
        *out = checkpoint;
    else
        shd_checkpoint_close(checkpoint);
    return status;
}

/* Everything this rank holds; at stage 0 that is every rank's part. */
static sherd_status read_checkpoint(sherd_session *session, const shd_checkpoint *checkpoint, char **note) {
    bool all = session->options.stage == 0;
    shd_mesh mesh = mesh_of(session);
    for (int32_t place = 0; place < shd_mesh_split(&mesh); place++)
        if (all || place == shd_mesh_place(&mesh)) SHD_TRY(read_shards(session, checkpoint, place));
    shd_engine_copy_masters(session->engine);
    const char *stored = shd_checkpoint_content(checkpoint)->note;
    *note = shd_strdup(stored ? stored : "{}");
    return *note ? SHERD_OK : shd_fail(SHERD_MEMORY, "no memory for the checkpoint's note");
}

/* Goes on where the checkpoint stopped. One that was not saved in fp16 has no loss scale: it starts anew. */
static void restore_progress(sherd_session *session, const shd_checkpoint_manifest *saved) {
    shd_progress progress = shd_engine_start(session->engine);
    const shd_checkpoint_scale *scale = &saved->loss_scale;
    progress.update_count = saved->update_count;
    if (session->options.precision == SHERD_FP16 && scale->scale > 0)
        progress.loss_scale =
            (shd_loss_scale){.scale = scale->scale, .good_steps = scale->good_steps, .hysteresis = scale->hysteresis};
    shd_engine_set_progress(session->engine, &progress);
    session->step_count = saved->step;
    if (saved->replicas != session->options.replicas && session->options.rank == 0)
        shd_log(SHERD_LOG_INFO,
                "saved with %d replica%s, going on with %d: gradients are added up in another order, so the last bits "
                "will differ",
                saved->replicas, saved->replicas == 1 ? "" : "s", session->options.replicas);
    if (saved->precision != session->options.precision && session->options.rank == 0)
        shd_log(SHERD_LOG_DEBUG, "saved with train.precision: %s, goes on with %s", shd_dtype_text(saved->precision),
                shd_dtype_text(session->options.precision));
}

/* All ranks read, or none has begun to. */
static sherd_status load_together(sherd_session *session, const char *path, char **note) {
    shd_checkpoint *checkpoint = NULL;
    sherd_status status = shd_session_agree(session, open_fitting(session, path, &checkpoint));
    if (status == SHERD_OK) {
        session->phase = SHD_PHASE_EMPTY;
        status = shd_session_agree(session, read_checkpoint(session, checkpoint, note));
    }
    if (status == SHERD_OK) restore_progress(session, shd_checkpoint_content(checkpoint));
    shd_checkpoint_close(checkpoint);
    return status == SHERD_OK ? shd_session_begin_life(session) : status;
}

sherd_status sherd_session_load(sherd_session *session, const char *dir, char **note) {
    if (!session || !dir) return shd_fail(SHERD_ARGUMENT, "sherd_session_load needs a session and a folder");
    if (session->phase != SHD_PHASE_EMPTY)
        SHD_TRY(shd_session_expect(session, SHD_PHASE_BOUNDARY, "sherd_session_load"));
    char path[PATH_BYTES], *stored = NULL;
    SHD_TRY(find_together(session, dir, path));
    sherd_status status = load_together(session, path, &stored);
    if (status == SHERD_OK) shd_log(SHERD_LOG_INFO, "loaded %s", path);
    if (status == SHERD_OK && note)
        *note = stored;
    else
        shd_free(stored);
    return status;
}

void sherd_note_free(char *note) { shd_free(note); }
