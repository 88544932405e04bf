/* What a manifest tells of precision. */
#include "checkpoints.h"

#include <criterion/criterion.h>

Test(checkpoint_precision, a_manifest_tells_precision_updates_and_the_loss_scale) {
    char *folder = make_folder();
    const small_job job = {.parent = folder, .step = 20, .world_size = 1};
    rank_slices slices = job_slices(&job, 0, false);
    shd_checkpoint_manifest manifest = job_manifest(&job);
    manifest.update_count = 17;
    manifest.precision = SHERD_FP16;
    manifest.loss_scale = (shd_checkpoint_scale){.scale = 0x1p-3, .good_steps = 1999, .hysteresis = 2};
    cr_assert_eq(write_rank(&job, 0, &slices), SHERD_OK);
    cr_assert_eq(shd_checkpoint_commit(folder, job.id, &manifest), SHERD_OK, "%s", sherd_last_error());
    shd_checkpoint *checkpoint = NULL;
    cr_assert_eq(shd_checkpoint_open(job_path(&job), &checkpoint), SHERD_OK, "%s", sherd_last_error());
    const shd_checkpoint_manifest *read = shd_checkpoint_content(checkpoint);
    cr_assert(read->update_count == 17 && read->precision == SHERD_FP16);
    cr_assert(read->loss_scale.scale == 0x1p-3 && read->loss_scale.good_steps == 1999 &&
              read->loss_scale.hysteresis == 2);
    shd_checkpoint_close(checkpoint);
    remove_folder(folder);
}

Test(checkpoint_precision, without_a_loss_scale_there_is_none) {
    char *folder = make_folder();
    const small_job job = {.parent = folder, .step = 20, .world_size = 1};
    cr_assert_eq(save_job(&job), SHERD_OK);
    shd_checkpoint *checkpoint = NULL;
    cr_assert_eq(shd_checkpoint_open(job_path(&job), &checkpoint), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_checkpoint_content(checkpoint)->loss_scale.scale, 0);
    cr_assert_eq(shd_checkpoint_content(checkpoint)->precision, SHERD_FP32);
    shd_checkpoint_close(checkpoint);
    remove_folder(folder);
}
