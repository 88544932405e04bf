#include "runtime/train/checkpoint_reshard.h"

#include "io/checkpoint_relayout.h"
#include "runtime/base/status.h"
#include "runtime/train/job_setup.h"
#include "runtime/train/note.h"

#include <string.h>

/* The plan of the job, were it one of so many ranks in one shard group. NULL: none is known, or there are no states to lay
 * out, as weights were imported. */
static sherd_status make_plan(const shd_reshard *reshard, const shd_checkpoint_manifest *manifest, shd_plan **out) {
    const shd_note_changes changes = {.ranks = reshard->ranks, .replicas = 1};
    shd_job *job;
    *out = NULL;
    if (!shd_note_has_job(manifest->note) || !strcmp(manifest->optimizer, SHD_CHECKPOINT_NO_OPTIMIZER)) return SHERD_OK;
    SHD_TRY(shd_note_job(manifest->note, &changes, &job));
    sherd_status status = shd_job_plan(job, (int32_t)job->shard.stage, 0, out);
    shd_job_destroy(job);
    return status;
}

sherd_status shd_reshard_run(const shd_reshard *reshard, char **path) {
    shd_plan *plan;
    SHD_TRY(make_plan(reshard, shd_checkpoint_content(reshard->from), &plan));
    const shd_relayout relayout = {.from = reshard->from,
                                   .parent = reshard->parent,
                                   .ranks = reshard->ranks,
                                   .plan = plan,
                                   .compression = reshard->compression,
                                   .advance = reshard->advance};
    sherd_status status = shd_relayout_run(&relayout, path);
    shd_plan_destroy(plan);
    return status;
}
