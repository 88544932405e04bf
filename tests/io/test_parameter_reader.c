#include "checkpoints.h"
#include "io/checkpoint_export.h"
#include "io/parameter_reader.h"
#include "io/safetensors.h"
#include "runtime/base/memory.h"

#include <criterion/criterion.h>
#include <string.h>

static const int32_t worlds[] = {1, 2, 3, 4, 8};
enum { WORLDS = sizeof worlds / sizeof *worlds, LONGEST = 17 * 257 + 1 };

static shd_parameter_reader *open_reader(const small_job *job, shd_checkpoint **checkpoint) {
    shd_parameter_reader *reader = NULL;
    cr_assert_eq(save_job(job), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_checkpoint_open(job_path(job), checkpoint), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_parameter_reader_create(*checkpoint, &reader), SHERD_OK, "%s", sherd_last_error());
    return reader;
}

Test(parameter_reader, gives_every_range_of_every_parameter_whoever_saved_it) {
    char *folder = make_folder();
    for (int i = 0; i < 2 * WORLDS; i++) {
        small_job job = {.parent = folder, .step = i, .world_size = worlds[i / 2], .copies = i % 2, .seed = i};
        shd_checkpoint *checkpoint;
        shd_parameter_reader *reader = open_reader(&job, &checkpoint);
        for (int tensor = 0; tensor < JOB_TENSORS; tensor++) {
            int64_t elements = job_elements(tensor);
            int64_t stride = 1 + elements / 50;
            for (int64_t first = 0; first <= elements; first += stride)
                for (int64_t count = 0; count <= elements - first; count += count < 5 ? 1 : 7 * stride) {
                    float values[LONGEST];
                    values[count] = -5;
                    cr_assert_eq(shd_parameter_reader_read(reader, job_tensors[tensor].name, first, count, values),
                                 SHERD_OK, "%s", sherd_last_error());
                    bool equal = values[count] == -5;
                    for (int64_t k = 0; k < count; k++)
                        equal = equal && values[k] == job_value(&job, tensor, 0, first + k);
                    cr_assert(equal, "tensor %d, elements %d + %d", tensor, (int)first, (int)count);
                }
        }
        shd_parameter_reader_destroy(reader);
        shd_checkpoint_close(checkpoint);
    }
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    remove_folder(folder);
}

/* Copies on several ranks should be equal. Where they are not, one of them holds: the same for every range, and that of
 * an export. */
Test(parameter_reader, of_copies_that_differ_gives_those_of_an_export) {
    enum { COUNT = 17 };
    static const struct { int64_t first, count; } rows[] = {{0, 5}, {0, 17}, {3, 9}, {12, 5}};
    static const int64_t shape[SHERD_MAX_DIMS] = {COUNT};
    char *folder = make_folder();
    const small_job job = {.parent = folder, .step = 1, .world_size = 4};
    sherd_tensor tensor = {.name = "w", .dim_count = 1};
    memcpy(tensor.shape, shape, sizeof shape);
    float stored[COUNT], whole[COUNT], exported[COUNT], one;
    for (int32_t rank = 0; rank < 4; rank++) {
        for (int i = 0; i < COUNT; i++) stored[i] = (float)(100 * rank + i);
        const rank_slices slices = {
            .list = {{"w", SHD_CHECKPOINT_PARAMETER, rows[rank].first, rows[rank].count, stored}}, .count = 1};
        cr_assert_eq(write_rank(&job, rank, &slices), SHERD_OK);
    }
    const shd_checkpoint_manifest manifest = {
        .step = 1, .world_size = 4, .optimizer = "sgd", .tensor_count = 1, .tensors = &tensor};
    cr_assert_eq(shd_checkpoint_commit(folder, job.id, &manifest), SHERD_OK, "%s", sherd_last_error());
    char *to = path_in(folder, "x.safetensors");
    shd_checkpoint *checkpoint = NULL;
    shd_parameter_reader *reader = NULL;
    shd_safetensors *file = NULL;
    cr_assert_eq(shd_checkpoint_export(folder, to), SHERD_OK);
    cr_assert_eq(shd_safetensors_open(to, &file), SHERD_OK);
    cr_assert_eq(shd_safetensors_read(file, shd_safetensors_at(file, 0), 0, COUNT, exported), SHERD_OK);
    cr_assert_eq(shd_checkpoint_open(path_in(folder, "step-00000001"), &checkpoint), SHERD_OK);
    cr_assert_eq(shd_parameter_reader_create(checkpoint, &reader), SHERD_OK);
    cr_assert_eq(shd_parameter_reader_read(reader, "w", 0, COUNT, whole), SHERD_OK);
    for (int i = 0; i < COUNT; i++) {
        cr_assert_eq(shd_parameter_reader_read(reader, "w", i, 1, &one), SHERD_OK);
        cr_expect(whole[i] == exported[i] && one == exported[i], "element %d: %g, alone %g, exported %g", i, whole[i],
                  one, exported[i]);
    }
    shd_parameter_reader_destroy(reader);
    shd_checkpoint_close(checkpoint);
    shd_safetensors_close(file);
    remove_folder(folder);
}

Test(parameter_reader, refuses_what_is_not_there) {
    char *folder = make_folder();
    small_job job = {.parent = folder, .step = 3, .world_size = 2};
    shd_checkpoint *checkpoint;
    shd_parameter_reader *reader = open_reader(&job, &checkpoint);
    float values[LONGEST];
    cr_assert_eq(shd_parameter_reader_read(reader, "wpe.weight", 0, 1, values), SHERD_ARGUMENT);
    cr_assert(strstr(sherd_last_error(), "wpe.weight"));
    cr_assert_eq(shd_parameter_reader_read(reader, "wte.weight", 80, 6, values), SHERD_ARGUMENT);
    cr_assert_eq(shd_parameter_reader_read(reader, "wte.weight", -1, 1, values), SHERD_ARGUMENT);
    cr_assert_eq(shd_parameter_reader_read(reader, "wte.weight", 0, -1, values), SHERD_ARGUMENT);
    shd_parameter_reader_destroy(reader);
    shd_parameter_reader_destroy(NULL);
    shd_checkpoint_close(checkpoint);
    remove_folder(folder);
}
