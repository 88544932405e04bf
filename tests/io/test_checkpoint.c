#include "checkpoints.h"
#include "io/checkpoint_export.h"
#include "runtime/base/memory.h"
#include "tests/support/find_tensor.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static const int32_t worlds[] = {1, 2, 3, 4, 8};
enum { WORLDS = sizeof worlds / sizeof *worlds };

Test(checkpoint, the_manifest_tells_what_the_job_was) {
    char *folder = make_folder();
    small_job job = {.parent = folder, .step = 123456789, .world_size = 2};
    check_saved(&job);
    shd_checkpoint *checkpoint = NULL;
    cr_assert_eq(shd_checkpoint_open(job_path(&job), &checkpoint), SHERD_OK, "%s", sherd_last_error());
    cr_assert_str_eq(shd_checkpoint_path(checkpoint), job_path(&job));
    const shd_checkpoint_manifest *m = shd_checkpoint_content(checkpoint);
    cr_assert_eq(m->replicas, 3);
    cr_assert(m->step == 123456789 && m->world_size == 2 && m->stage == 3);
    cr_assert_str_eq(m->optimizer, "adamw");
    cr_assert_eq(m->state_count, 2);
    cr_assert_str_eq(m->state_names[1], "exp_avg_sq");
    cr_assert_eq(m->tensor_count, JOB_TENSORS);
    for (int i = 0; i < JOB_TENSORS; i++) {
        cr_assert_str_eq(m->tensors[i].name, job_tensors[i].name);
        cr_assert(m->tensors[i].frozen == job_tensors[i].frozen && m->tensors[i].dim_count == job_tensors[i].dim_count);
        cr_assert_eq(memcmp(m->tensors[i].shape, job_tensors[i].shape, sizeof m->tensors[i].shape), 0);
    }
    cr_assert_str_eq(m->note, "{\"sequence\":9007199254740993,\"who\":[\"é\",0.5]}");
    shd_checkpoint_close(checkpoint);
    shd_checkpoint_close(NULL);
    remove_folder(folder);
}

/* A link to itself stands for a folder without permission, which does not stop root. */
Test(checkpoint, one_that_cannot_be_looked_into_is_not_passed_over) {
    char *folder = make_folder(), *found = NULL;
    small_job job = {.parent = folder, .step = 5, .world_size = 1};
    cr_assert_eq(save_job(&job), SHERD_OK);
    cr_assert_eq(symlink("step-00000004", path_in(folder, "step-00000004")), 0);
    cr_assert_eq(shd_checkpoint_find(folder, &found), SHERD_OK);
    cr_assert_str_eq(found, job_path(&job));
    shd_free(found);
    cr_assert_eq(symlink("step-00000006", path_in(folder, "step-00000006")), 0);
    cr_assert_eq(shd_checkpoint_find(folder, &found), SHERD_IO);
    cr_assert_not_null(strstr(sherd_last_error(), "step-00000006, which may be the newest checkpoint: Too many"));
    remove_folder(folder);
}

Test(checkpoint, the_newest_complete_one_is_found) {
    char *folder = make_folder(), *found = NULL;
    cr_assert_eq(shd_checkpoint_find(folder, &found), SHERD_OK);
    cr_assert_null(found);
    cr_assert_eq(shd_checkpoint_find(path_in(folder, "none"), &found), SHERD_OK);
    cr_assert_null(found);
    for (int64_t step = 8; step <= 100000000; step = step * 5 + 1)
        check_saved(&(small_job){.parent = folder, .step = step, .world_size = 1});
    small_job newest = {.parent = folder, .step = 100000007, .world_size = 2};
    check_saved(&newest);
    /* None of these is a complete checkpoint of this folder. */
    static const char *others[] = {"step-999999999",
                                   "step-0200000000",
                                   "step-200000000.partial-00000000000000ab",
                                   "step-2",
                                   "step-20000000x",
                                   "xstep-20000000",
                                   "step-99999999999999999999",
                                   "step--0000001",
                                   "step-00000021.aside-00000000000000ab"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char *other = path_in(folder, others[i]);
        cr_assert_eq(mkdir(other, 0777), 0);
        if (i > 0) write_whole(path_in(other, "manifest.json"), "{}", 2);
    }
    cr_assert_eq(shd_checkpoint_find(folder, &found), SHERD_OK);
    cr_assert_str_eq(found, job_path(&newest));
    shd_free(found);
    /* A checkpoint's own path, also with a slash, also under another name. */
    char *slashed = path_in(folder, "step-00000041/"), *renamed = path_in(folder, "best");
    cr_assert_eq(shd_checkpoint_find(slashed, &found), SHERD_OK);
    cr_assert_str_eq(found, slashed);
    shd_free(found);
    cr_assert_eq(rename(slashed, renamed), 0);
    cr_assert_eq(shd_checkpoint_find(renamed, &found), SHERD_OK);
    cr_assert_str_eq(found, renamed);
    shd_free(found);
    shd_checkpoint *checkpoint = NULL;
    cr_assert_eq(shd_checkpoint_open(renamed, &checkpoint), SHERD_OK);
    cr_assert_eq(shd_checkpoint_content(checkpoint)->step, 41);
    shd_checkpoint_close(checkpoint);
    cr_assert_eq(shd_checkpoint_find(path_in(folder, "step-200000000.partial-00000000000000ab"), &found), SHERD_OK);
    cr_assert_null(found);
    cr_assert_eq(shd_checkpoint_find(path_in(renamed, "manifest.json"), &found), SHERD_OK);
    cr_assert_null(found);
    remove_folder(folder);
}

static void open_is_refused(const char *path, const char *says) {
    shd_checkpoint *checkpoint = NULL;
    cr_assert_eq(shd_checkpoint_open(path, &checkpoint), SHERD_DATA);
    cr_assert_null(checkpoint);
    cr_assert(strstr(sherd_last_error(), says) && strstr(sherd_last_error(), path), "\"%s\"", sherd_last_error());
}

Test(checkpoint, what_is_none_is_not_opened) {
    char *folder = make_folder();
    small_job job = {.parent = folder, .step = 5, .world_size = 2};
    open_is_refused(folder, "is no checkpoint");
    open_is_refused(path_in(folder, "none"), "is no checkpoint");
    check_saved(&job);
    char *moved = path_in(folder, "step-00000006"),
         *partial = path_in(folder, "step-00000005.partial-00000000000000ab");
    cr_assert_eq(rename(job_path(&job), moved), 0);
    open_is_refused(moved, "its manifest is that of step 5");
    cr_assert_eq(rename(moved, partial), 0);
    open_is_refused(partial, "was never finished");
    cr_assert_eq(rename(partial, job_path(&job)), 0);
    cr_assert_eq(unlink(path_in(job_path(&job), "rank-00001.bin")), 0);
    open_is_refused(job_path(&job), "rank-00001.bin");
    remove_folder(folder);
}

/* A state may have another size than its tensor. */
Test(checkpoint, states_have_sizes_of_their_own) {
    static const sherd_tensor tensors[] = {{.name = "matrix", .dim_count = 2, .shape = {3, 4}},
                                           {.name = "vector", .dim_count = 1, .shape = {5}}};
    static const int64_t elements[] = {3, 4, 0, 0, 0, 5};
    char *folder = make_folder();
    small_job job = {.parent = folder, .step = 1, .world_size = 1};
    float values[12];
    for (int i = 0; i < 12; i++) values[i] = (float)i;
    rank_slices slices = {.list = {{"matrix", SHD_CHECKPOINT_PARAMETER, 0, 12, values},
                                   {"vector", SHD_CHECKPOINT_PARAMETER, 0, 5, values},
                                   {"matrix", "rows", 0, 3, values},
                                   {"matrix", "columns", 0, 4, values + 5},
                                   {"vector", "all", 0, 5, values}},
                          .count = 5};
    shd_checkpoint_manifest manifest = {.step = 1,
                                        .world_size = 1,
                                        .optimizer = "adafactor",
                                        .state_count = 3,
                                        .state_names = {"rows", "columns", "all"},
                                        .tensor_count = 2,
                                        .tensors = tensors,
                                        .state_elements = elements};
    cr_assert_eq(write_rank(&job, 0, &slices), SHERD_OK);
    cr_assert_eq(shd_checkpoint_commit(folder, job.id, &manifest), SHERD_OK, "%s", sherd_last_error());
    shd_checkpoint *checkpoint = NULL;
    cr_assert_eq(shd_checkpoint_open(job_path(&job), &checkpoint), SHERD_OK, "%s", sherd_last_error());
    const shd_checkpoint_manifest *read = shd_checkpoint_content(checkpoint);
    for (int i = 0; i < 6; i++) {
        cr_assert_eq(read->state_elements[i], elements[i]);
        cr_assert_eq(read->values[i / 3 * 4 + 1 + i % 3].element_count, elements[i]);
    }
    shd_checkpoint_close(checkpoint);

    slices.list[3].count = 5;
    cr_assert_eq(write_rank(&job, 0, &slices), SHERD_OK);
    cr_assert_eq(shd_checkpoint_commit(folder, job.id, &manifest), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(), "5 elements from 0 on of columns of tensor matrix, which has 4"), "%s",
              sherd_last_error());
    slices.list[3].count = 3;
    cr_assert_eq(write_rank(&job, 0, &slices), SHERD_OK);
    cr_assert_eq(shd_checkpoint_commit(folder, job.id, &manifest), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(), "no rank's file holds elements 3 to 4 of columns of tensor matrix"), "%s",
              sherd_last_error());
    remove_folder(folder);
}

Test(checkpoint, disk_and_folder_failures_name_the_path_and_leave_older_ones_whole) {
    char *folder = make_folder(), *file = path_in(folder, "file");
    small_job before = {.parent = folder, .step = 1, .world_size = 1},
              next = {.parent = folder, .step = 2, .world_size = 1, .id = 7},
              below = {.parent = path_in(file, "below"), .step = 2, .world_size = 1};
    check_saved(&before);
    write_whole(file, "x", 1);
    cr_assert_eq(write_job(&below), SHERD_IO);
    cr_assert(strstr(sherd_last_error(), file) && strstr(sherd_last_error(), "Not a directory"), "%s",
              sherd_last_error());
    write_whole(path_in(folder, "step-00000003"), "x", 1);
    small_job third = {.parent = folder, .step = 3, .world_size = 1};
    cr_assert_eq(save_job(&third), SHERD_IO);
    cr_assert(strstr(sherd_last_error(), "step-00000003"), "%s", sherd_last_error());
    shd_checkpoint_discard(folder, 3, third.id);

    const struct rlimit limit = {5000, 5000};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_eq(write_job(&next), SHERD_IO);
    cr_assert(strstr(sherd_last_error(), "step-00000002.partial-0000000000000007/rank-00000.bin: File too large"), "%s",
              sherd_last_error());
    shd_checkpoint_discard(folder, 2, next.id);
    shd_checkpoint_discard(folder, 2, next.id);
    shd_checkpoint_discard(path_in(folder, "none"), 2, next.id);
    bool equal;
    cr_assert(load_job(&before, &equal) == SHERD_OK && equal);
    char *found = NULL;
    cr_assert_eq(shd_checkpoint_find(folder, &found), SHERD_OK);
    cr_assert_str_eq(found, job_path(&before));
    shd_free(found);
    cr_assert_eq(count_files(folder), 3);
    remove_folder(folder);
}

/* Every tensor under its name, whole, once. */
static void check_export(const small_job *job, const char *path) {
    shd_safetensors *file = NULL;
    cr_assert_eq(shd_safetensors_open(path, &file), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_safetensors_count(file), JOB_TENSORS);
    for (int tensor = 0; tensor < JOB_TENSORS; tensor++) {
        const shd_safetensors_entry *entry = find_tensor(file, job_tensors[tensor].name);
        cr_assert_not_null(entry, "%s", job_tensors[tensor].name);
        cr_assert(entry->dtype == SHD_SAFETENSORS_F32 && entry->dim_count == job_tensors[tensor].dim_count);
        for (int d = 0; d < entry->dim_count; d++) cr_assert_eq(entry->shape[d], job_tensors[tensor].shape[d]);
        float values[17 * 257];
        cr_assert_eq(shd_safetensors_read(file, entry, 0, entry->element_count, values), SHERD_OK);
        for (int64_t i = 0; i < entry->element_count; i++) cr_assert_eq(values[i], job_value(job, tensor, 0, i));
    }
    shd_safetensors_close(file);
}

Test(checkpoint, exports_all_parameters_of_any_number_of_ranks) {
    char *folder = make_folder(), *to = path_in(folder, "model.safetensors");
    char *first = NULL;
    size_t first_bytes = 0;
    for (int i = 0; i < 2 * WORLDS; i++) {
        small_job job = {
            .parent = path_in(folder, "c"), .step = i, .world_size = worlds[i / 2], .copies = i % 2, .seed = 4};
        check_saved(&job);
        cr_assert_eq(shd_checkpoint_export(i % 3 ? job.parent : job_path(&job), to), SHERD_OK, "%s",
                     sherd_last_error());
        check_export(&job, to);
        size_t bytes;
        char *content = read_whole(to, &bytes);
        if (!first) first = content, first_bytes = bytes;
        cr_assert(bytes == first_bytes && memcmp(content, first, bytes) == 0, "%d ranks: another file", job.world_size);
    }
    cr_assert_eq(count_files(folder), 2);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    remove_folder(folder);
}

/* Slices above the size of a block, which overlap. */
Test(checkpoint, exports_overlapping_slices_larger_than_its_buffer) {
    enum { COUNT = 2200001 }; /* blocks have 2^20 */
    char *folder = make_folder(), *to = path_in(folder, "model.safetensors");
    float *values = take(COUNT * sizeof *values);
    for (int i = 0; i < COUNT; i++) values[i] = (float)i;
    const sherd_tensor tensor = {.name = "w", .dim_count = 1, .shape = {COUNT}};
    static const int64_t cuts[3][2] = {{0, 1300000}, {10, 1600000}, {1299999, COUNT}};
    small_job job = {.parent = folder, .step = 1, .world_size = 3};
    for (int32_t rank = 0; rank < 3; rank++) {
        const rank_slices slices = {.list = {{"w", SHD_CHECKPOINT_PARAMETER, cuts[rank][0],
                                              cuts[rank][1] - cuts[rank][0], values + cuts[rank][0]}},
                                    .count = 1};
        cr_assert_eq(write_rank(&job, rank, &slices), SHERD_OK);
    }
    const shd_checkpoint_manifest manifest = {
        .step = 1, .world_size = 3, .optimizer = "sgd", .tensor_count = 1, .tensors = &tensor};
    cr_assert_eq(shd_checkpoint_commit(folder, job.id, &manifest), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_checkpoint_export(folder, to), SHERD_OK, "%s", sherd_last_error());
    shd_safetensors *file = NULL;
    cr_assert_eq(shd_safetensors_open(to, &file), SHERD_OK);
    float *read = take(COUNT * sizeof *read);
    cr_assert_eq(shd_safetensors_read(file, shd_safetensors_at(file, 0), 0, COUNT, read), SHERD_OK);
    cr_assert_eq(memcmp(read, values, COUNT * sizeof *read), 0);
    shd_safetensors_close(file);
    remove_folder(folder);
}

Test(checkpoint, export_refuses_targets_that_would_do_damage) {
    char *folder = make_folder();
    small_job job = {.parent = folder, .step = 3, .world_size = 2};
    cr_assert_eq(shd_checkpoint_export(folder, path_in(folder, "x")), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(), "there is no complete checkpoint"));
    check_saved(&job);
    cr_assert_eq(shd_checkpoint_export(folder, path_in(job_path(&job), "rank-00000.bin")), SHERD_ARGUMENT);
    cr_assert_eq(shd_checkpoint_export(folder, path_in(folder, "step-00000003/../step-00000003/x")), SHERD_ARGUMENT);
    cr_assert_eq(shd_checkpoint_export(folder, folder), SHERD_ARGUMENT);
    cr_assert_eq(shd_checkpoint_export(folder, path_in(folder, "no/x")), SHERD_IO);
    cr_assert_eq(count_files(folder), 1);
    bool equal;
    cr_assert(load_job(&job, &equal) == SHERD_OK && equal);
    remove_folder(folder);
}
