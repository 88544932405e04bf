#include "checkpoints.h"
#include "runtime/base/dtype.h"
#include "runtime/base/memory.h"
#include "tests/support/find_tensor.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static const int32_t worlds[] = {1, 2, 3, 4, 8};
enum { WORLDS = sizeof worlds / sizeof *worlds };

static void check_saved(const small_job *job) {
    cr_assert_eq(save_job(job), SHERD_OK, "%s", sherd_last_error());
    bool equal;
    cr_assert_eq(load_job(job, &equal), SHERD_OK, "%s", sherd_last_error());
    cr_assert(equal, "%d ranks: other values came back", job->world_size);
}

Test(checkpoint, gives_back_every_slice_of_every_rank) {
    char *folder = make_folder();
    for (int i = 0; i < 2 * WORLDS; i++)
        check_saved(&(small_job){
            .parent = path_in(folder, "a/b"), .step = 20 + i, .world_size = worlds[i / 2], .copies = i % 2, .seed = i});
    cr_assert_eq(count_files(path_in(folder, "a/b")), 2 * WORLDS);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    remove_folder(folder);
}

Test(checkpoint, the_manifest_tells_what_the_job_was) {
    char *folder = make_folder();
    small_job job = {.parent = folder, .step = 123456789, .world_size = 2};
    check_saved(&job);
    shd_checkpoint *checkpoint = NULL;
    cr_assert_eq(shd_checkpoint_open(job_path(&job), &checkpoint), SHERD_OK, "%s", sherd_last_error());
    cr_assert_str_eq(shd_checkpoint_path(checkpoint), job_path(&job));
    const shd_checkpoint_manifest *m = shd_checkpoint_content(checkpoint);
    cr_assert_eq(m->replicas, 3);
    cr_assert(m->step == 123456789 && m->world_size == 2 && m->stage == 3 && m->layout_hash == 0xFEDCBA9876543210u);
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
                                   "step-00000021.replaced"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char *other = path_in(folder, others[i]);
        cr_assert_eq(mkdir(other, 0777), 0);
        if (i > 0) write_whole(path_in(other, "manifest.json"), "{}", 2);
    }
    cr_assert_eq(shd_checkpoint_find(folder, &found), SHERD_OK);
    cr_assert_str_eq(found, job_path(&newest));
    shd_free(found);
    cr_assert_eq(shd_checkpoint_find_incomplete(folder, &found), SHERD_OK);
    cr_assert_str_eq(found, path_in(folder, "step-999999999"));
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
    char *moved = path_in(folder, "step-00000006"), *partial = path_in(folder, "x.partial");
    cr_assert_eq(rename(job_path(&job), moved), 0);
    open_is_refused(moved, "its manifest is that of step 5");
    cr_assert_eq(rename(moved, partial), 0);
    open_is_refused(partial, "was never finished");
    cr_assert_eq(rename(partial, job_path(&job)), 0);
    cr_assert_eq(unlink(path_in(job_path(&job), "rank-00001.bin")), 0);
    open_is_refused(job_path(&job), "rank-00001.bin");
    remove_folder(folder);
}

/* A state may have another size than its tensor, belong to one rank, and be left unread by the others. */
Test(checkpoint, states_have_sizes_of_their_own) {
    static const sherd_tensor tensors[] = {{.name = "matrix", .dim_count = 2, .shape = {3, 4}},
                                           {.name = "vector", .dim_count = 1, .shape = {5}}};
    static const int64_t elements[] = {3, 4, 0, 0, 0, 5};
    char *folder = make_folder();
    float values[2][12];
    for (int i = 0; i < 12; i++) values[0][i] = (float)i, values[1][i] = -1;
    shd_checkpoint_slice slices[] = {
        {"matrix", SHD_CHECKPOINT_PARAMETER, 0, 12, values[0]},
        {"vector", SHD_CHECKPOINT_PARAMETER, 0, 5, values[0]},
        {"matrix", "rows", 0, 3, values[0]},
        {"matrix", "columns", 0, 4, values[0] + 5},
        {"vector", "all", 0, 5, values[0]},
    };
    shd_checkpoint_manifest manifest = {.step = 1,
                                        .world_size = 1,
                                        .optimizer = "adafactor",
                                        .state_count = 3,
                                        .state_names = {"rows", "columns", "all"},
                                        .tensor_count = 2,
                                        .tensors = tensors,
                                        .state_elements = elements};
    cr_assert_eq(shd_checkpoint_write_rank(folder, 1, 0, slices, 5), SHERD_OK);
    cr_assert_eq(shd_checkpoint1_commit(folder, &manifest), SHERD_OK, "%s", sherd_last_error());
    shd_checkpoint *checkpoint = NULL;
    cr_assert_eq(shd_checkpoint_open(path_in(folder, "step-00000001"), &checkpoint), SHERD_OK, "%s",
                 sherd_last_error());
    const shd_checkpoint_manifest *read = shd_checkpoint_content(checkpoint);
    cr_assert_not_null(read->state_elements);
    cr_assert_eq(memcmp(read->state_elements, elements, sizeof elements), 0);
    for (int i = 0; i < 5; i++) slices[i].values = i == 3 ? values[1] : NULL;
    cr_assert_eq(shd_checkpoint_read_rank(checkpoint, 0, slices, 5), SHERD_OK, "%s", sherd_last_error());
    for (int i = 0; i < 12; i++) cr_assert_eq(values[1][i], i < 4 ? (float)(5 + i) : -1);
    shd_checkpoint_close(checkpoint);

    slices[3] = (shd_checkpoint_slice){"matrix", "columns", 0, 5, values[0]};
    for (int i = 0; i < 5; i++) slices[i].values = values[0];
    cr_assert_eq(shd_checkpoint_write_rank(folder, 1, 0, slices, 5), SHERD_OK);
    cr_assert_eq(shd_checkpoint1_commit(folder, &manifest), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(), "it holds elements 0 to 5 of columns of tensor matrix, which has 4"), "%s",
              sherd_last_error());
    slices[3].count = 3;
    cr_assert_eq(shd_checkpoint_write_rank(folder, 1, 0, slices, 5), SHERD_OK);
    cr_assert_eq(shd_checkpoint1_commit(folder, &manifest), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(), "no rank's file holds elements 3 to 4 of columns of tensor matrix"), "%s",
              sherd_last_error());
    remove_folder(folder);
}

Test(checkpoint, saving_a_step_again_replaces_it) {
    char *folder = make_folder();
    check_saved(&(small_job){.parent = folder, .step = 7, .world_size = 4, .seed = 1});
    check_saved(&(small_job){.parent = folder, .step = 7, .world_size = 4, .seed = 2});
    small_job last = {.parent = folder, .step = 7, .world_size = 2, .seed = 3};
    check_saved(&last);
    cr_assert_eq(count_files(folder), 1, "the replaced one was left");
    cr_assert_eq(count_files(job_path(&last)), 3);
    /* Something else lives in the old folder: it is kept, out of the way. */
    write_whole(path_in(job_path(&last), "notes.txt"), "mine", 4);
    check_saved(&last);
    cr_assert_eq(count_files(job_path(&last)), 3);
    cr_assert_eq(access(path_in(folder, "step-00000007.partial/notes.txt"), F_OK), 0);
    cr_assert_eq(count_files(path_in(folder, "step-00000007.partial")), 1);
    check_saved(&last);
    remove_folder(folder);
}

Test(checkpoint, leftovers_of_a_broken_save_do_no_harm) {
    char *folder = make_folder();
    small_job wide = {.parent = folder, .step = 9, .world_size = 4, .seed = 1},
              narrow = {.parent = folder, .step = 9, .world_size = 2, .seed = 2};
    for (int32_t rank = 0; rank < 4; rank++) {
        rank_slices slices = job_slices(&wide, rank, false);
        cr_assert_eq(shd_checkpoint_write_rank(folder, 9, rank, slices.list, slices.count), SHERD_OK);
    }
    write_whole(path_in(folder, "step-00000009.partial/manifest.json"), "torn", 4);
    check_saved(&narrow);
    cr_assert_eq(count_files(job_path(&narrow)), 3);
    cr_assert_eq(count_files(folder), 1);
    /* A discarded one is gone; discarding nothing is fine. */
    rank_slices slices = job_slices(&wide, 0, false);
    cr_assert_eq(shd_checkpoint_write_rank(folder, 10, 0, slices.list, slices.count), SHERD_OK);
    shd_checkpoint1_discard(folder, 10);
    shd_checkpoint1_discard(folder, 10);
    shd_checkpoint1_discard(path_in(folder, "none"), 10);
    cr_assert_eq(count_files(folder), 1);
    remove_folder(folder);
}

/* Writes step 2 with `change` applied to rank 1's slices or to the manifest, and expects a refusal that leaves step 1
 * alone. */
static void commit_is_refused(void (*change)(rank_slices *, shd_checkpoint_manifest *), sherd_status expected,
                              const char *says) {
    char *folder = make_folder();
    small_job before = {.parent = folder, .step = 1, .world_size = 2},
              bad = {.parent = folder, .step = 2, .world_size = 2};
    check_saved(&before);
    shd_checkpoint_manifest manifest = job_manifest(&bad);
    for (int32_t rank = 0; rank < 2; rank++) {
        rank_slices slices = job_slices(&bad, rank, false);
        if (rank == 1) change(&slices, &manifest);
        if (slices.count >= 0)
            cr_assert_eq(shd_checkpoint_write_rank(folder, 2, rank, slices.list, slices.count), SHERD_OK, "%s",
                         sherd_last_error());
    }
    cr_assert_eq(shd_checkpoint1_commit(folder, &manifest), expected);
    cr_assert(strstr(sherd_last_error(), says), "\"%s\" lacks \"%s\"", sherd_last_error(), says);
    char *found = NULL;
    cr_assert_eq(shd_checkpoint_find(folder, &found), SHERD_OK);
    cr_assert_str_eq(found, job_path(&before));
    shd_free(found);
    bool equal;
    cr_assert(load_job(&before, &equal) == SHERD_OK && equal);
    shd_checkpoint1_discard(folder, 2);
    cr_assert_eq(count_files(folder), 1);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    remove_folder(folder);
}

static void lose_rank(rank_slices *slices, shd_checkpoint_manifest *manifest) { (void)manifest, slices->count = -1; }
static void lose_slice(rank_slices *slices, shd_checkpoint_manifest *manifest) {
    (void)manifest;
    for (int64_t i = 2; i < slices->count; i++) slices->list[i - 1] = slices->list[i];
    slices->count--;
}
static void lose_element(rank_slices *slices, shd_checkpoint_manifest *manifest) {
    (void)manifest, slices->list[0].first++, slices->list[0].count--;
}
static void reach_too_far(rank_slices *slices, shd_checkpoint_manifest *manifest) {
    (void)manifest, slices->list[0].first++;
}
static void rename_tensor(rank_slices *slices, shd_checkpoint_manifest *manifest) {
    (void)manifest, slices->list[0].tensor = "other";
}
static void rename_state(rank_slices *slices, shd_checkpoint_manifest *manifest) {
    (void)manifest, slices->list[0].state = "other";
}
static void melt(rank_slices *slices, shd_checkpoint_manifest *manifest) {
    (void)manifest, slices->list[9].state = "exp_avg";
}
static void scribble(rank_slices *slices, shd_checkpoint_manifest *manifest) {
    (void)slices, manifest->note = "{\"a\": 1,}";
}
static void note_a_list(rank_slices *slices, shd_checkpoint_manifest *manifest) {
    (void)slices, manifest->note = "[1]";
}
static void garble(rank_slices *slices, shd_checkpoint_manifest *manifest) {
    (void)slices, manifest->optimizer = "\xff";
}
static void twins(rank_slices *slices, shd_checkpoint_manifest *manifest) {
    static sherd_tensor tensors[JOB_TENSORS];
    (void)slices;
    memcpy(tensors, job_tensors, sizeof tensors);
    tensors[4].name = tensors[1].name;
    manifest->tensors = tensors;
}

Test(checkpoint, is_not_committed_unless_all_is_there) {
    commit_is_refused(lose_rank, SHERD_DATA, "rank 1 of 2 has not written");
    commit_is_refused(lose_slice, SHERD_DATA, "no rank's file holds elements 43 to 85 of exp_avg of tensor wte.weight");
    commit_is_refused(lose_element, SHERD_DATA,
                      "no rank's file holds elements 43 to 44 of parameter of tensor wte.weight");
    commit_is_refused(reach_too_far, SHERD_DATA,
                      "it holds elements 44 to 86 of parameter of tensor wte.weight, which has 85");
    commit_is_refused(rename_tensor, SHERD_DATA, "it holds parameter of tensor other, which is unknown");
    commit_is_refused(rename_state, SHERD_DATA, "it holds other of tensor wte.weight, which has no such state");
    commit_is_refused(melt, SHERD_DATA, "which has no such state");
    commit_is_refused(scribble, SHERD_DATA, "the note for the checkpoint: JSON, line 1");
    commit_is_refused(note_a_list, SHERD_DATA, "the note for the checkpoint: JSON: an object is expected");
    commit_is_refused(garble, SHERD_ARGUMENT, "not UTF-8");
    commit_is_refused(twins, SHERD_DATA, "two tensors called scalar");
}

Test(checkpoint, refuses_names_that_cannot_be_stored) {
    char *folder = make_folder();
    float value = 1;
    shd_checkpoint_slice slice = {"\xff", SHD_CHECKPOINT_PARAMETER, 0, 1, &value};
    cr_assert_eq(shd_checkpoint_write_rank(folder, 1, 0, &slice, 1), SHERD_ARGUMENT);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    remove_folder(folder);
}

/* Reads rank 1 with one slice changed. */
static void layout_is_refused(const shd_checkpoint *checkpoint, const small_job *job, shd_checkpoint_slice changed,
                              const char *says) {
    rank_slices slices = job_slices(job, 1, true);
    slices.list[4] = changed;
    cr_assert_eq(shd_checkpoint_read_rank(checkpoint, 1, slices.list, slices.count), SHERD_DATA);
    cr_assert(
        strstr(sherd_last_error(),
               "step-00000003/rank-00001.bin holds exp_avg of tensor scalar, elements 1 to 1, where this layout has "));
    cr_assert(strstr(sherd_last_error(), says), "\"%s\"", sherd_last_error());
}

Test(checkpoint, another_layout_is_refused_and_both_are_named) {
    char *folder = make_folder();
    small_job job = {.parent = folder, .step = 3, .world_size = 2};
    check_saved(&job);
    shd_checkpoint *checkpoint = NULL;
    cr_assert_eq(shd_checkpoint_open(job_path(&job), &checkpoint), SHERD_OK);
    float value;
    layout_is_refused(checkpoint, &job, (shd_checkpoint_slice){"scalar", "exp_avg", 0, 1, &value},
                      "exp_avg of tensor scalar, elements 0 to 1");
    layout_is_refused(checkpoint, &job, (shd_checkpoint_slice){"scalar", "exp_avg_sq", 1, 0, &value},
                      "exp_avg_sq of tensor scalar, elements 1 to 1");
    layout_is_refused(checkpoint, &job, (shd_checkpoint_slice){"b", "exp_avg", 1, 0, &value},
                      "exp_avg of tensor b, elements 1 to 1");
    rank_slices slices = job_slices(&job, 1, true);
    cr_assert_eq(shd_checkpoint_read_rank(checkpoint, 1, slices.list, slices.count - 1), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(), "holds 13 slices; this layout has 12"));
    cr_assert_eq(shd_checkpoint_read_rank(checkpoint, 2, slices.list, slices.count), SHERD_ARGUMENT);
    cr_assert_eq(shd_checkpoint_read_rank(checkpoint, -1, slices.list, slices.count), SHERD_ARGUMENT);
    shd_checkpoint_close(checkpoint);
    remove_folder(folder);
}

Test(checkpoint, disk_and_folder_failures_name_the_path_and_leave_older_ones_whole) {
    char *folder = make_folder(), *file = path_in(folder, "file");
    small_job before = {.parent = folder, .step = 1, .world_size = 1},
              next = {.parent = folder, .step = 2, .world_size = 1};
    check_saved(&before);
    write_whole(file, "x", 1);
    rank_slices slices = job_slices(&next, 0, false);
    cr_assert_eq(shd_checkpoint_write_rank(path_in(file, "below"), 2, 0, slices.list, slices.count), SHERD_IO);
    cr_assert(strstr(sherd_last_error(), file) && strstr(sherd_last_error(), "Not a directory"), "%s",
              sherd_last_error());
    write_whole(path_in(folder, "step-00000003"), "x", 1);
    small_job third = {.parent = folder, .step = 3, .world_size = 1};
    cr_assert_eq(save_job(&third), SHERD_IO);
    cr_assert(strstr(sherd_last_error(), "step-00000003"), "%s", sherd_last_error());
    shd_checkpoint1_discard(folder, 3);

    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {2000, 2000};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_eq(shd_checkpoint_write_rank(folder, 2, 0, slices.list, slices.count), SHERD_IO);
    cr_assert(strstr(sherd_last_error(), "step-00000002.partial/rank-00000.bin: File too large"), "%s",
              sherd_last_error());
    shd_checkpoint1_discard(folder, 2);
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
        float values[100];
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

/* Slices above the size of a portion, which overlap. */
Test(checkpoint, exports_overlapping_slices_larger_than_its_buffer) {
    enum { COUNT = 700001 };
    char *folder = make_folder(), *to = path_in(folder, "model.safetensors");
    float *values = take(COUNT * sizeof *values);
    for (int i = 0; i < COUNT; i++) values[i] = (float)i;
    const sherd_tensor tensor = {.name = "w", .dim_count = 1, .shape = {COUNT}};
    static const int64_t cuts[3][2] = {{0, 300000}, {10, 600000}, {299999, COUNT}};
    for (int32_t rank = 0; rank < 3; rank++) {
        shd_checkpoint_slice slice = {"w", SHD_CHECKPOINT_PARAMETER, cuts[rank][0], cuts[rank][1] - cuts[rank][0],
                                      values + cuts[rank][0]};
        cr_assert_eq(shd_checkpoint_write_rank(folder, 1, rank, &slice, 1), SHERD_OK);
    }
    const shd_checkpoint_manifest manifest = {
        .step = 1, .world_size = 3, .optimizer = "sgd", .tensor_count = 1, .tensors = &tensor};
    cr_assert_eq(shd_checkpoint1_commit(folder, &manifest), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_checkpoint_export(folder, to), SHERD_OK, "%s", sherd_last_error());
    shd_safetensors *file = NULL;
    cr_assert_eq(shd_safetensors_open(to, &file), SHERD_OK);
    float *read = take(COUNT * sizeof *read);
    cr_assert_eq(shd_safetensors_read(file, shd_safetensors_at(file, 0), 0, COUNT, read), SHERD_OK);
    cr_assert_eq(memcmp(read, values, COUNT * sizeof *read), 0);
    shd_safetensors_close(file);
    remove_folder(folder);
}

/* --- states in 8 bits --------------------------------------------------------------------------------------------- */

enum { BLOCK = SHD_CODE_BLOCK_COUNT, BLOCK_BYTES = SHD_CODE_BLOCK_BYTES, CODED = 3 * BLOCK + 7 };

static shd_checkpoint_manifest coded_manifest(const sherd_tensor *tensor, sherd_dtype state_dtype) {
    return (shd_checkpoint_manifest){.step = 1,
                                     .world_size = 2,
                                     .stage = 3,
                                     .optimizer = "lion",
                                     .state_count = 1,
                                     .state_names = {"exp_avg"},
                                     .state_dtype = state_dtype,
                                     .tensor_count = 1,
                                     .tensors = tensor};
}

/* Rank 0 has two blocks of four, rank 1 the others, of which the last one is not full. */
static void coded_slices(int32_t rank, shd_checkpoint_slice slices[2], float *values, unsigned char *blocks) {
    int64_t first = rank * 2 * BLOCK, count = rank ? CODED - 2 * BLOCK : 2 * BLOCK;
    slices[0] = (shd_checkpoint_slice){"w", SHD_CHECKPOINT_PARAMETER, first, count, values + first, SHERD_FP32};
    slices[1] = (shd_checkpoint_slice){"w", "exp_avg", first, count, blocks + first / BLOCK * BLOCK_BYTES, SHERD_INT8};
}

Test(checkpoint, states_in_8_bits_come_back_as_they_were) {
    char *folder = make_folder();
    const sherd_tensor tensor = {.name = "w", .dim_count = 1, .shape = {CODED}};
    float values[CODED], read_values[CODED] = {0};
    unsigned char blocks[4 * BLOCK_BYTES], read_blocks[4 * BLOCK_BYTES] = {0};
    for (int i = 0; i < CODED; i++) values[i] = (float)i / 3;
    for (int i = 0; i < 4 * BLOCK_BYTES; i++) blocks[i] = (unsigned char)(i * 37 + i / 256);
    shd_checkpoint_slice slices[2];
    for (int32_t rank = 0; rank < 2; rank++) {
        coded_slices(rank, slices, values, blocks);
        cr_assert_eq(shd_checkpoint_write_rank(folder, 1, rank, slices, 2), SHERD_OK, "%s", sherd_last_error());
    }
    shd_checkpoint_manifest manifest = coded_manifest(&tensor, SHERD_FP32);
    cr_assert_eq(shd_checkpoint1_commit(folder, &manifest), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(), "holds exp_avg of tensor w in int8, where the manifest has fp32"), "%s",
              sherd_last_error());
    manifest = coded_manifest(&tensor, SHERD_INT8);
    cr_assert_eq(shd_checkpoint1_commit(folder, &manifest), SHERD_OK, "%s", sherd_last_error());

    shd_checkpoint *checkpoint = NULL;
    cr_assert_eq(shd_checkpoint_open(path_in(folder, "step-00000001"), &checkpoint), SHERD_OK);
    cr_assert_eq(shd_checkpoint_content(checkpoint)->state_dtype, SHERD_INT8);
    for (int32_t rank = 0; rank < 2; rank++) {
        coded_slices(rank, slices, read_values, read_blocks);
        cr_assert_eq(shd_checkpoint_read_rank(checkpoint, rank, slices, 2), SHERD_OK, "%s", sherd_last_error());
    }
    cr_assert_eq(memcmp(values, read_values, sizeof values), 0);
    cr_assert_eq(memcmp(blocks, read_blocks, sizeof blocks), 0);
    slices[1].dtype = SHERD_FP32;
    cr_assert_eq(shd_checkpoint_read_rank(checkpoint, 1, slices, 2), SHERD_DATA);
    shd_checkpoint_close(checkpoint);
    cr_assert_eq(shd_checkpoint_export(folder, path_in(folder, "w.safetensors")), SHERD_OK, "%s", sherd_last_error());
    remove_folder(folder);
}

/* Such files cannot be what this program wrote. */
Test(checkpoint, blocks_begin_where_blocks_begin_and_hold_states) {
    char *folder = make_folder();
    const sherd_tensor tensor = {.name = "w", .dim_count = 1, .shape = {CODED}};
    float values[CODED] = {0};
    unsigned char blocks[4 * BLOCK_BYTES] = {0};
    shd_checkpoint_slice slices[2];
    shd_checkpoint_manifest manifest = coded_manifest(&tensor, SHERD_INT8);
    for (int32_t rank = 0; rank < 2; rank++) {
        coded_slices(rank, slices, values, blocks);
        slices[1].first -= rank;
        cr_assert_eq(shd_checkpoint_write_rank(folder, 1, rank, slices, 2), SHERD_OK);
    }
    cr_assert_eq(shd_checkpoint1_commit(folder, &manifest), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(), "slice 1: it would begin within a block, at element 511"), "%s",
              sherd_last_error());
    coded_slices(1, slices, values, blocks);
    slices[0].values = blocks;
    slices[0].dtype = SHERD_INT8;
    cr_assert_eq(shd_checkpoint_write_rank(folder, 1, 1, slices, 2), SHERD_OK);
    cr_assert_eq(shd_checkpoint1_commit(folder, &manifest), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(), "holds parameter of tensor w in int8, where the manifest has fp32"), "%s",
              sherd_last_error());
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
