/* Loading: every rank reads what it holds, and all agree on every outcome. */
#include "io/checkpoint.h"

#include "runtime/base/dtype.h"
#include "runtime/base/log.h"
#include "runtime/base/memory.h"
#include "runtime/base/pattern.h"
#include "runtime/base/status.h"
#include "runtime/session/internal.h"
#include "runtime/session/setup.h"
#include "runtime/session/slices.h"

#include <stdio.h>
#include <string.h>

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
    const char *path = shd_checkpoint_path(checkpoint), *optimizer = shd_optimizer_name(&options->optimizer);
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
    if (saved->state_count != shd_optimizer_states(&options->optimizer))
        return shd_fail(SHERD_DATA,
                        "%s: saved with %d values of optimizer state for each parameter, but this job has %d; set "
                        "optimizer.momentum as it was",
                        path, saved->state_count, shd_optimizer_states(&options->optimizer));
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

/* --- which part is wanted ----------------------------------------------------------------------------------------- */

static bool skips(const sherd_load *load, const char *name) {
    for (int32_t i = 0; i < load->skip_pattern_count; i++)
        if (shd_pattern_matches(load->skip_patterns[i], name)) return true;
    return false;
}

static sherd_status check_load(const sherd_session *session, const sherd_load *load) {
    if (!load || load->size != sizeof *load)
        return shd_fail(SHERD_ARGUMENT, "sherd_session_load_with needs a sherd_load; start from SHERD_LOAD_INIT");
    if (load->skip_pattern_count < 0 || (load->skip_pattern_count > 0 && !load->skip_patterns))
        return shd_fail(SHERD_ARGUMENT, "sherd_session_load_with: %d patterns at %p", load->skip_pattern_count,
                        (const void *)load->skip_patterns);
    const shd_plan *plan = session->plan;
    for (int32_t i = 0; i < load->skip_pattern_count; i++) {
        int32_t t = 0;
        while (t < plan->tensor_count && !shd_pattern_matches(load->skip_patterns[i], plan->tensor_names[t])) t++;
        if (t == plan->tensor_count)
            return shd_pattern_fail("sherd_load.skip_patterns", load->skip_patterns[i], plan->tensors, t);
    }
    if (load->skip_pattern_count > 0 && session->phase == SHD_PHASE_EMPTY)
        return shd_fail(SHERD_STATE, "sherd_session_load_with: tensors are to be left as they are, but their values "
                                     "are not set yet (sherd_session_fill)");
    return SHERD_OK;
}

static sherd_status read_shards(sherd_session *session, const shd_checkpoint *checkpoint, const sherd_load *load,
                                int32_t place) {
    shd_slice_list list;
    SHD_TRY(shd_slices_list(session, place, &list));
    for (int64_t i = 0; i < list.count; i++) {
        shd_checkpoint_slice *slice = &list.slices[i];
        bool state = strcmp(slice->state, SHD_CHECKPOINT_PARAMETER) != 0;
        if ((state && load->weights_only) || skips(load, slice->tensor)) slice->values = NULL;
    }
    sherd_status status = shd_checkpoint_read_rank(checkpoint, place, list.slices, list.count);
    shd_slices_fini(&list);
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
static sherd_status read_checkpoint(sherd_session *session, const shd_checkpoint *checkpoint, const sherd_load *load,
                                    char **note) {
    bool all = session->options.stage == 0;
    shd_mesh mesh = shd_policy_mesh(&session->plan->policy);
    for (int32_t place = 0; place < shd_mesh_split(&mesh); place++)
        if (all || place == shd_mesh_place(&mesh)) SHD_TRY(read_shards(session, checkpoint, load, place));
    if (load->weights_only) SHD_TRY(shd_session_clear_states(session));
    shd_engine_copy_masters(session->engine);
    const char *stored = shd_checkpoint_content(checkpoint)->note;
    *note = shd_strdup(stored ? stored : "{}");
    return *note ? SHERD_OK : shd_fail(SHERD_MEMORY, "no memory for the checkpoint's note");
}

/* Goes on where the checkpoint stopped. One that was not saved in fp16 has no loss scale: it starts anew. */
static void restore_progress(sherd_session *session, const shd_checkpoint_manifest *saved, const sherd_load *load) {
    shd_progress progress = shd_engine_start(session->engine);
    if (load->weights_only) {
        shd_engine_set_progress(session->engine, &progress);
        session->step_count = 0;
        return;
    }
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
static sherd_status load_together(sherd_session *session, const char *path, const sherd_load *load, char **note) {
    shd_checkpoint *checkpoint = NULL;
    sherd_status status = shd_session_agree(session, open_fitting(session, path, &checkpoint));
    if (status == SHERD_OK) {
        session->phase = SHD_PHASE_EMPTY;
        status = shd_session_agree(session, read_checkpoint(session, checkpoint, load, note));
    }
    if (status == SHERD_OK) restore_progress(session, shd_checkpoint_content(checkpoint), load);
    shd_checkpoint_close(checkpoint);
    return status == SHERD_OK ? shd_session_begin_life(session) : status;
}

sherd_status sherd_session_load_with(sherd_session *session, const char *dir, const sherd_load *load, char **note) {
    if (!session || !dir) return shd_fail(SHERD_ARGUMENT, "sherd_session_load needs a session and a folder");
    if (session->phase != SHD_PHASE_EMPTY)
        SHD_TRY(shd_session_expect(session, SHD_PHASE_BOUNDARY, "sherd_session_load"));
    if (session->save.pending)
        return shd_fail(SHERD_STATE,
                        "sherd_session_load: the save of step %lld has not ended (sherd_session_save_wait)",
                        (long long)session->save.step);
    SHD_TRY(check_load(session, load));
    char path[PATH_BYTES], *stored = NULL;
    SHD_TRY(find_together(session, dir, path));
    sherd_status status = load_together(session, path, load, &stored);
    if (status == SHERD_OK) shd_log(SHERD_LOG_INFO, "loaded %s", path);
    if (status == SHERD_OK && note)
        *note = stored;
    else
        shd_free(stored);
    return status;
}

sherd_status sherd_session_load(sherd_session *session, const char *dir, char **note) {
    const sherd_load all = SHERD_LOAD_INIT;
    return sherd_session_load_with(session, dir, &all, note);
}

void sherd_note_free(char *note) { shd_free(note); }
