#include "io/checkpoint_block.h"
#include "io/checkpoint_build.h"
#include "io/checkpoint_folder.h"
#include "io/checkpoint_reader.h"
#include "runtime/base/memory.h"
#include "runtime/base/random.h"
#include "tests/io/files.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A matrix of more than one block, a scalar, one without elements. */
enum { LARGE = (1 << 20) + 257 * 17 };
static const sherd_tensor tensors[] = {
    {.name = "w", .dim_count = 1, .shape = {LARGE}}, {.name = "s"}, {.name = "none", .dim_count = 2, .shape = {0, 7}}};
static const shd_checkpoint_manifest manifest = {.step = 5,
                                                 .update_count = 5,
                                                 .world_size = 3,
                                                 .replicas = 1,
                                                 .optimizer = SHD_CHECKPOINT_NO_OPTIMIZER,
                                                 .tensor_count = 3,
                                                 .tensors = tensors};

static float values[LARGE];

static sherd_status add(shd_build *build, const char *tensor, int64_t first, int64_t count) {
    const shd_checkpoint_slice slice = {.tensor = tensor,
                                        .state = SHD_CHECKPOINT_PARAMETER,
                                        .first = first,
                                        .count = count,
                                        .values = shd_build_values(build)};
    memcpy(slice.values, values + first, (size_t)count * sizeof *values);
    return shd_build_add(build, &slice);
}

/* Everything in the first and the last of three files, up to `files` of them. */
static sherd_status fill(shd_build *build, int files) {
    const int64_t most = shd_block_count_max(SHERD_FP32);
    for (int rank = 0; rank < files; rank++) {
        sherd_status status = shd_build_begin_file(build);
        if (status == SHERD_OK && rank == 0) status = add(build, "w", 0, most);
        if (status == SHERD_OK && rank == 0) status = add(build, "none", 0, 0);
        if (status == SHERD_OK && rank == 2) status = add(build, "w", most, LARGE - most);
        if (status == SHERD_OK && rank == 2) status = add(build, "s", 0, 1);
        if (status == SHERD_OK) status = shd_build_finish_file(build);
        if (status != SHERD_OK) return status;
    }
    return SHERD_OK;
}

Test(checkpoint_build, makes_a_checkpoint_like_any_other) {
    char *folder = make_folder(), *parent = path_in(folder, "new/below");
    shd_random_normal(3, 0, LARGE, 1, values);
    const shd_build_config config = {.parent = parent, .step = 5, .file_count = 3, .compression = 1};
    shd_build *build;
    cr_assert_eq(shd_build_create(&config, &build), SHERD_OK, "%s", sherd_last_error());
    cr_assert_str_eq(shd_build_path(build), path_in(parent, "step-00000005"));
    cr_assert_eq(fill(build, 3), SHERD_OK, "%s", sherd_last_error());
    char *found = NULL;
    cr_assert(shd_checkpoint_find(parent, &found) == SHERD_OK && !found, "there before it is committed");
    cr_assert_eq(shd_build_commit(build, &manifest), SHERD_OK, "%s", sherd_last_error());
    shd_build_destroy(build);
    cr_assert_eq(count_files(parent), 1);
    shd_checkpoint *checkpoint;
    cr_assert_eq(shd_checkpoint_open(path_in(parent, "step-00000005"), &checkpoint), SHERD_OK, "%s",
                 sherd_last_error());
    static float read[LARGE];
    const shd_reader_config reading = {.threads = 1, .memory = aligned_alloc(4096, (size_t)shd_reader_memory_bytes(1))};
    const shd_checkpoint_slice slice = {
        .tensor = "w", .state = SHD_CHECKPOINT_PARAMETER, .count = LARGE, .values = read};
    cr_assert_eq(shd_checkpoint_read(checkpoint, &slice, 1, &reading), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(memcmp(read, values, sizeof values), 0);
    shd_checkpoint_close(checkpoint);
    free(reading.memory);
    cr_assert_eq(shd_build_create(&config, &build), SHERD_ARGUMENT);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_ARENA), 0);
    remove_folder(folder);
}

Test(checkpoint_build, what_is_not_committed_leaves_nothing) {
    char *folder = make_folder();
    for (int files = 0; files <= 3; files++) {
        const shd_build_config config = {.parent = folder, .step = 5, .file_count = 3};
        shd_build *build;
        cr_assert_eq(shd_build_create(&config, &build), SHERD_OK, "%s", sherd_last_error());
        cr_assert_eq(fill(build, files), SHERD_OK, "%s", sherd_last_error());
        if (files < 3) cr_assert_eq(shd_build_commit(build, &manifest), SHERD_DATA);
        shd_build_destroy(build);
        cr_assert_eq(count_files(folder), 0, "after %d files", files);
    }
    shd_build_destroy(NULL);
    const shd_build_config nowhere = {.parent = "/proc/no", .step = 5, .file_count = 1};
    shd_build *build;
    cr_assert_eq(shd_build_create(&nowhere, &build), SHERD_IO);
    remove_folder(folder);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_ARENA), 0);
}
