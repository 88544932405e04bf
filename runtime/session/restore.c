/* Loading: every rank reads what it holds, from whatever files have it, and all agree on every outcome. */
#include "io/checkpoint_folder.h"
#include "io/checkpoint_reader.h"
#include "runtime/base/clock.h"
#include "runtime/base/dtype.h"
#include "runtime/base/log.h"
#include "runtime/base/memory.h"
#include "runtime/base/pattern.h"
#include "runtime/base/status.h"
#include "runtime/session/internal.h"
#include "runtime/session/setup.h"
#include "runtime/session/slices.h"
#include "runtime/session/state_codes.h"

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

/* --- which part is wanted ----------------------------------------------------------------------------------------- */

static bool matches_any(const char *pattern, const sherd_tensor *tensors, int32_t count) {
    for (int32_t t = 0; t < count; t++)
        if (shd_pattern_matches(pattern, tensors[t].name)) return true;
    return false;
}

static sherd_status check_load(const sherd_session *session, const sherd_load *load) {
    if (!load || load->size != sizeof *load)
        return shd_fail(SHERD_ARGUMENT, "sherd_session_load_with needs a sherd_load; start from SHERD_LOAD_INIT");
    if (load->skip_pattern_count < 0 || (load->skip_pattern_count > 0 && !load->skip_patterns))
        return shd_fail(SHERD_ARGUMENT, "sherd_session_load_with: %d patterns at %p", load->skip_pattern_count,
                        (const void *)load->skip_patterns);
    if (load->skip_pattern_count > 0 && session->phase == SHD_PHASE_EMPTY)
        return shd_fail(SHERD_STATE, "sherd_session_load_with: tensors are to be left as they are, but their values "
                                     "are not set yet (sherd_session_fill)");
    return SHERD_OK;
}

/* What is skipped must be here, or there. */
static sherd_status check_patterns(const sherd_load *load, const shd_plan *plan, const shd_checkpoint_manifest *saved) {
    for (int32_t i = 0; i < load->skip_pattern_count; i++) {
        const char *pattern = load->skip_patterns[i];
        if (!matches_any(pattern, plan->tensors, plan->tensor_count) &&
            !matches_any(pattern, saved->tensors, saved->tensor_count))
            return shd_pattern_fail("sherd_load.skip_patterns", pattern, plan->tensors, plan->tensor_count);
    }
    return SHERD_OK;
}

/* Leaves in the list what is to be read. */
static void choose(const sherd_load *load, shd_slice_list *list) {
    int64_t kept = 0;
    for (int64_t i = 0; i < list->count; i++) {
        const shd_checkpoint_slice *slice = &list->slices[i];
        bool state = strcmp(slice->state, SHD_CHECKPOINT_PARAMETER) != 0;
        if ((state && load->weights_only) || shd_load_skips(load, slice->tensor)) continue;
        list->tensors[kept] = list->tensors[i];
        list->slices[kept++] = *slice;
    }
    list->count = kept;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static sherd_status open_fitting(const sherd_session *session, const char *path, const sherd_load *load,
                                 shd_checkpoint **out) {
    shd_checkpoint *checkpoint;
    SHD_TRY(shd_checkpoint_open(path, &checkpoint));
    sherd_status status = check_patterns(load, session->plan, shd_checkpoint_content(checkpoint));
    if (status == SHERD_OK) status = shd_checkpoint_fits(checkpoint, &session->options, session->plan, load);
    if (status == SHERD_OK)
        *out = checkpoint;
    else
        shd_checkpoint_close(checkpoint);
    return status;
}

/* Everything that this rank holds and is wanted. */
static sherd_status read_values(sherd_session *session, const shd_checkpoint *checkpoint, const sherd_load *load) {
    shd_slice_list list;
    SHD_TRY(shd_slices_held(session, &list));
    choose(load, &list);
    shd_state_codes *codes = NULL;
    sherd_status status = shd_state_codes_create(shd_optimizer_name(&session->options.optimizer), &codes);
    const shd_reader_config config = {
        .threads = session->options.checkpoint.threads,
        .memory = shd_engine_staging(session->engine),
        .convert = shd_state_codes_converter(codes),
        /* What every rank of a host, or one of every replica, reads is read from the disk once. */
        .cached = session->options.world_size > 1 && (session->options.stage == 0 || session->options.replicas > 1),
    };
    if (status == SHERD_OK) status = shd_checkpoint_read(checkpoint, list.slices, list.count, &config);
    shd_state_codes_destroy(codes);
    shd_slices_fini(&list);
    return status;
}

static sherd_status read_checkpoint(sherd_session *session, const shd_checkpoint *checkpoint, const sherd_load *load,
                                    char **note) {
    SHD_TRY(read_values(session, checkpoint, load));
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
        shd_session_set_start(session, 0);
        return;
    }
    const shd_checkpoint_scale *scale = &saved->loss_scale;
    progress.update_count = saved->update_count;
    if (session->options.precision == SHERD_FP16 && scale->scale > 0)
        progress.loss_scale =
            (shd_loss_scale){.scale = scale->scale, .good_steps = scale->good_steps, .hysteresis = scale->hysteresis};
    shd_engine_set_progress(session->engine, &progress);
    shd_session_set_start(session, saved->step);
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
    sherd_status status = shd_session_agree(session, open_fitting(session, path, load, &checkpoint));
    /* What is skipped stays as it is. */
    if (status == SHERD_OK && session->phase != SHD_PHASE_EMPTY) {
        status = shd_engine_show_values(session->engine);
        if (status != SHERD_OK) status = shd_session_die(session, status);
    }
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
    SHD_TRY(shd_session_save_none(session, "sherd_session_load"));
    SHD_TRY(check_load(session, load));
    double start_ms = shd_clock_ms();
    char path[PATH_BYTES], *stored = NULL;
    SHD_TRY(find_together(session, dir, path));
    sherd_status status = load_together(session, path, load, &stored);
    if (status == SHERD_OK) shd_log(SHERD_LOG_INFO, "loaded %s, in %.2f s", path, (shd_clock_ms() - start_ms) / 1e3);
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
