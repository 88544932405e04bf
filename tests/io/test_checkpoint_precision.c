/* Checkpoints of 16-bit values: files are those of the same values in float32; and what a manifest tells of precision. */
#include "checkpoints.h"
#include "io/checkpoint_file1.h"
#include "runtime/base/dtype.h"
#include "runtime/base/memory.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* More than is widened at once. */
enum { COUNT = 2 * (1 << 18) + 4321 };

static shd_checkpoint_slice slice_of(sherd_dtype dtype, void *values) {
    return (shd_checkpoint_slice){
        .tensor = "w", .state = SHD_CHECKPOINT_PARAMETER, .count = COUNT, .values = values, .dtype = dtype};
}

static shd_checkpoint_manifest manifest_of(const sherd_tensor *tensor) {
    return (shd_checkpoint_manifest){
        .step = 1, .world_size = 1, .optimizer = "sgd", .tensor_count = 1, .tensors = tensor};
}

Test(checkpoint_precision, sixteen_bit_values_are_stored_as_float32_and_come_back_as_they_were) {
    const sherd_tensor tensor = {.name = "w", .dim_count = 1, .shape = {COUNT}, .frozen = true};
    for (sherd_dtype dtype = SHERD_BF16; dtype <= SHERD_FP16; dtype++) {
        char *half_folder = make_folder(), *full_folder = make_folder(), path[SHD_PATH_BYTES];
        uint16_t *halves = take(COUNT * sizeof *halves), *back = take(COUNT * sizeof *back);
        float *values = take(COUNT * sizeof *values);
        for (int64_t i = 0; i < COUNT; i++) values[i] = (float)(i % 60013 - 30000) / 257.0f;
        shd_round(dtype, COUNT, values, halves);
        shd_widen(dtype, COUNT, halves, values);
        shd_checkpoint_slice half = slice_of(dtype, halves), full = slice_of(SHERD_FP32, values);
        cr_assert_eq(shd_checkpoint_write_rank(half_folder, 1, 0, &half, 1), SHERD_OK, "%s", sherd_last_error());
        cr_assert_eq(shd_checkpoint_write_rank(full_folder, 1, 0, &full, 1), SHERD_OK, "%s", sherd_last_error());
        size_t half_bytes, full_bytes;
        snprintf(path, sizeof path, "%s/step-00000001.partial/rank-00000.bin", half_folder);
        char *half_file = read_whole(path, &half_bytes);
        snprintf(path, sizeof path, "%s/step-00000001.partial/rank-00000.bin", full_folder);
        char *full_file = read_whole(path, &full_bytes);
        cr_assert(half_bytes == full_bytes && memcmp(half_file, full_file, half_bytes) == 0, "%s",
                  shd_dtype_text(dtype));

        const shd_checkpoint_manifest manifest = manifest_of(&tensor);
        cr_assert_eq(shd_checkpoint1_commit(full_folder, &manifest), SHERD_OK, "%s", sherd_last_error());
        shd_checkpoint *checkpoint = NULL;
        cr_assert_eq(shd_checkpoint_open(path_in(full_folder, "step-00000001"), &checkpoint), SHERD_OK);
        half.values = back;
        cr_assert_eq(shd_checkpoint_read_rank(checkpoint, 0, &half, 1), SHERD_OK, "%s", sherd_last_error());
        cr_assert_eq(memcmp(back, halves, COUNT * sizeof *halves), 0);
        shd_checkpoint_close(checkpoint);
        remove_folder(half_folder);
        remove_folder(full_folder);
    }
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

Test(checkpoint_precision, a_manifest_tells_precision_updates_and_the_loss_scale) {
    char *folder = make_folder();
    const small_job job = {.parent = folder, .step = 20, .world_size = 1};
    rank_slices slices = job_slices(&job, 0, false);
    shd_checkpoint_manifest manifest = job_manifest(&job);
    manifest.update_count = 17;
    manifest.precision = SHERD_FP16;
    manifest.loss_scale = (shd_checkpoint_scale){.scale = 0x1p-3, .good_steps = 1999, .hysteresis = 2};
    cr_assert_eq(shd_checkpoint_write_rank(folder, 20, 0, slices.list, slices.count), SHERD_OK);
    cr_assert_eq(shd_checkpoint1_commit(folder, &manifest), SHERD_OK, "%s", sherd_last_error());
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
