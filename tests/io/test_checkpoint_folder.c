/* Folders of checkpoints: commits, what is found and listed, what is removed and what stays. */
#include "checkpoints.h"
#include "io/checkpoint_file.h"
#include "io/checkpoint_manifest.h"
#include "runtime/base/memory.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

static const int32_t worlds[] = {1, 2, 3, 4, 8};
enum { WORLDS = sizeof worlds / sizeof *worlds };

/* --- commits ------------------------------------------------------------------------------------------------------ */

Test(checkpoint_commit, makes_one_checkpoint_of_all_ranks_files) {
    char *folder = make_folder(), *parent = path_in(folder, "a/b");
    for (int i = 0; i < 4 * WORLDS; i++)
        check_saved(&(small_job){.parent = parent,
                                 .step = 20 + i,
                                 .world_size = worlds[i / 4],
                                 .copies = i % 2,
                                 .coded = i / 2 % 2,
                                 .compression = i % 3,
                                 .seed = i});
    cr_assert_eq(count_files(parent), 4 * WORLDS);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    remove_folder(folder);
}

static void commit_is_refused(const small_job *job, sherd_status status, const char *says) {
    shd_checkpoint_manifest manifest = job_manifest(job);
    cr_assert_eq(shd_checkpoint_commit(job->parent, job->id, &manifest), status, "%s", says);
    cr_assert(strstr(sherd_last_error(), says), "\"%s\"", sherd_last_error());
    cr_assert_not(is_there(job->parent, "step-00000005"));
    shd_checkpoint_discard(job->parent, job->step, job->id);
    cr_assert_eq(count_files(job->parent), 0);
}

Test(checkpoint_commit, refuses_what_is_not_whole) {
    char *folder = make_folder();
    small_job job = {.parent = folder, .step = 5, .world_size = 2, .id = 9};
    rank_slices slices[] = {job_slices(&job, 0, false), job_slices(&job, 1, false)};
    /* A rank that has not written; elements that none has; a cut file; a file of another rank, of another step. */
    cr_assert_eq(write_rank(&job, 0, &slices[0]), SHERD_OK);
    commit_is_refused(&job, SHERD_DATA, "rank 1 of 2 has not written");
    slices[1].list[1].first += 3;
    slices[1].list[1].count -= 3;
    cr_assert_eq(write_job(&job), SHERD_OK);
    cr_assert_eq(write_rank(&job, 1, &slices[1]), SHERD_OK);
    commit_is_refused(&job, SHERD_DATA, "no rank's file holds elements 43 to 46 of exp_avg of tensor wte.weight");
    cr_assert_eq(write_job(&job), SHERD_OK);
    char *file = path_in(job_partial(&job), "rank-00001.bin");
    cr_assert_eq(truncate(file, 8192), 0);
    commit_is_refused(&job, SHERD_DATA, "rank-00001.bin");
    cr_assert_eq(write_job(&job), SHERD_OK);
    cr_assert_eq(rename(path_in(job_partial(&job), "rank-00000.bin"), file), 0);
    cr_assert_eq(write_rank(&job, 0, &slices[0]), SHERD_OK);
    commit_is_refused(&job, SHERD_DATA, "rank-00001.bin");
    small_job other = {.parent = folder, .step = 6, .world_size = 2, .id = 9};
    cr_assert_eq(write_job(&other), SHERD_OK);
    cr_assert_eq(rename(job_partial(&other), job_partial(&job)), 0);
    commit_is_refused(&job, SHERD_DATA, "step 6");
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    remove_folder(folder);
}

/* What rank files hold that the manifest knows nothing of. */
Test(checkpoint_commit, refuses_blocks_that_belong_to_nothing) {
    static const struct {
        const char *tensor, *state;
        int64_t first, count;
        sherd_dtype dtype;
        const char *says;
    } rows[] = {
        {"wte.other", SHD_CHECKPOINT_PARAMETER, 0, 3, SHERD_FP32, "tensor wte.other, which is unknown"},
        {"b", "momentum", 0, 2, SHERD_FP32, "momentum of tensor b, which has no such state"},
        {"frozen \"é\"", "exp_avg", 0, 2, SHERD_FP32, "which has no such state"},
        {"b", "exp_avg", 1, 2, SHERD_FP32, "2 elements from 1 on of exp_avg of tensor b, which has 2"},
        {"empty", SHD_CHECKPOINT_PARAMETER, 0, 1, SHERD_FP32, "tensor empty, which has 0"},
        {"b", SHD_CHECKPOINT_PARAMETER, 0, 2, SHERD_FP16, "tensor b in fp16, which is to be in fp32"},
        {"b", "exp_avg", 0, 2, SHERD_INT8, "exp_avg of tensor b in int8, which is to be in fp32"},
    };
    static const char values[4096];
    char *folder = make_folder();
    small_job job = {.parent = folder, .step = 5, .world_size = 1};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rank_slices slices = job_slices(&job, 0, false);
        slices.list[slices.count++] = (shd_checkpoint_slice){rows[i].tensor, rows[i].state,  rows[i].first,
                                                             rows[i].count,  (void *)values, rows[i].dtype};
        cr_assert_eq(write_rank(&job, 0, &slices), SHERD_OK, "%s", sherd_last_error());
        commit_is_refused(&job, SHERD_DATA, rows[i].says);
    }
    remove_folder(folder);
}

Test(checkpoint_commit, refuses_notes_and_names_that_no_manifest_can_have) {
    char *folder = make_folder();
    small_job job = {.parent = folder, .step = 5, .world_size = 1};
    shd_checkpoint_manifest manifest = job_manifest(&job);
    cr_assert_eq(write_job(&job), SHERD_OK);
    manifest.note = "[1]";
    cr_assert_eq(shd_checkpoint_commit(folder, job.id, &manifest), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(), "the note for the checkpoint"), "%s", sherd_last_error());
    manifest = job_manifest(&job);
    manifest.optimizer = "a\xff";
    cr_assert_eq(shd_checkpoint_commit(folder, job.id, &manifest), SHERD_ARGUMENT);
    manifest = job_manifest(&job);
    manifest.state_names[1] = manifest.state_names[0];
    cr_assert_neq(shd_checkpoint_commit(folder, job.id, &manifest), SHERD_OK);
    cr_assert_not(is_there(folder, "step-00000005"));
    manifest = job_manifest(&job);
    cr_assert_eq(shd_checkpoint_commit(folder, job.id, &manifest), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    remove_folder(folder);
}

Test(checkpoint_commit, tells_which_file_holds_what) {
    char *folder = make_folder();
    small_job job = {.parent = folder, .step = 5, .world_size = 3, .coded = true};
    check_saved(&job);
    shd_checkpoint *checkpoint = NULL;
    cr_assert_eq(shd_checkpoint_open(job_path(&job), &checkpoint), SHERD_OK, "%s", sherd_last_error());
    const shd_checkpoint_manifest *m = shd_checkpoint_content(checkpoint);
    int64_t raw_bytes = 0, stored_bytes = 0;
    for (int t = 0; t < JOB_TENSORS; t++)
        for (int s = 0; s <= JOB_STATES; s++) {
            const shd_checkpoint_value *value = &m->values[t * (1 + JOB_STATES) + s];
            int64_t elements = s > 0 && job_tensors[t].frozen ? 0 : job_elements(t), at = 0;
            cr_assert_eq(value->element_count, elements);
            cr_assert_eq(value->dtype, s > 0 ? SHERD_INT8 : job_tensors[t].frozen ? SHERD_BF16 : SHERD_FP32);
            for (int64_t i = 0; i < value->range_count; i++) {
                cr_assert_eq(value->ranges[i].first, at);
                at += value->ranges[i].count;
            }
            cr_assert_eq(at, elements);
            cr_assert_leq(value->range_count, 3);
        }
    /* 85 elements by three: 29, 29, 27. */
    cr_assert_eq(m->values[0].range_count, 3);
    cr_assert(m->values[0].ranges[2].first == 58 && m->values[0].ranges[2].count == 27 &&
              m->values[0].ranges[2].rank == 2);
    for (int32_t rank = 0; rank < 3; rank++) {
        struct stat about;
        char name[32];
        snprintf(name, sizeof name, "rank-%05d.bin", rank);
        cr_assert_eq(stat(path_in(job_path(&job), name), &about), 0);
        cr_assert_eq(m->files[rank].bytes, about.st_size);
        stored_bytes += about.st_size;
        rank_slices slices = job_slices(&job, rank, true);
        for (int64_t i = 0; i < slices.count; i++) {
            int64_t count = slices.list[i].count;
            raw_bytes += slices.list[i].dtype == SHERD_FP32   ? 4 * count
                         : slices.list[i].dtype == SHERD_BF16 ? 2 * count
                                                              : (count + 255) / 256 * 260;
        }
    }
    cr_assert_eq(m->stored_bytes, stored_bytes);
    cr_assert_eq(m->raw_bytes, raw_bytes);
    cr_assert_leq(llabs(m->time_s - (int64_t)time(NULL)), 5);
    shd_checkpoint_close(checkpoint);
    remove_folder(folder);
}

Test(checkpoint_commit, a_step_saved_again_takes_the_place_of_the_older_one) {
    char *folder = make_folder();
    for (int i = 0; i < 3; i++)
        check_saved(&(small_job){.parent = folder, .step = 7, .world_size = 1 + i, .seed = 10 * i, .id = (uint64_t)i});
    cr_assert_eq(count_files(folder), 1);
    cr_assert_eq(count_files(path_in(folder, "step-00000007")), 4);
    /* Also of a folder that was none, and of one with somebody's file in it, which stays. */
    cr_assert_eq(mkdir(path_in(folder, "step-00000008"), 0777), 0);
    make_step(folder, 8);
    cr_assert_eq(mkdir(path_in(folder, "step-00000009"), 0777), 0);
    write_whole(path_in(folder, "step-00000009/notes.txt"), "x", 1);
    listen_to_log();
    make_step(folder, 9);
    cr_assert(strstr(logged, "notes.txt in it is no part of a checkpoint"), "%s", logged);
    cr_assert(is_there(folder, "step-00000009.partial-0000000000000000/notes.txt"));
    remove_folder(folder);
}

Test(checkpoint_commit, does_nothing_in_a_folder_that_is_gone_or_none) {
    char *folder = make_folder();
    small_job job = {.parent = path_in(folder, "c"), .step = 5, .world_size = 1};
    shd_checkpoint_manifest manifest = job_manifest(&job);
    cr_assert_eq(write_job(&job), SHERD_OK);
    remove_folder(job.parent);
    cr_assert_eq(shd_checkpoint_commit(job.parent, job.id, &manifest), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(), "rank 0 of 1 has not written"), "%s", sherd_last_error());
    shd_checkpoint_discard(job.parent, job.step, job.id);
    write_whole(path_in(folder, "file"), "", 0);
    job.parent = path_in(folder, "file");
    cr_assert_eq(write_job(&job), SHERD_IO);
    cr_assert(strstr(sherd_last_error(), "Not a directory"), "%s", sherd_last_error());
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    remove_folder(folder);
}

/* --- finding ------------------------------------------------------------------------------------------------------ */

static void expect_found(const char *path, const char *expected) {
    char *found = (char *)"unset";
    cr_assert_eq(shd_checkpoint_find(path, &found), SHERD_OK, "%s", sherd_last_error());
    if (!expected)
        cr_assert_null(found, "%s", found);
    else
        cr_assert_str_eq(found ? found : "none", expected);
    shd_free(found);
}

Test(checkpoint_find, an_older_one_stands_for_its_step_while_it_is_being_replaced) {
    char *folder = make_folder(), *replaced = path_in(folder, "step-00000007.replaced-00000000000000ab");
    int32_t removed = -1;
    make_step(folder, 5);
    make_step(folder, 7);
    cr_assert_eq(rename(path_in(folder, "step-00000007"), replaced), 0);
    expect_found(folder, replaced);
    shd_checkpoint *checkpoint = NULL;
    cr_assert_eq(shd_checkpoint_open(replaced, &checkpoint), SHERD_OK, "%s", sherd_last_error());
    shd_checkpoint_close(checkpoint);
    /* It gets its name back. */
    cr_assert_eq(shd_checkpoint_clear_leftovers(folder, &removed), SHERD_OK);
    expect_found(folder, path_in(folder, "step-00000007"));
    cr_assert_eq(count_files(folder), 2);
    /* Beside the new one it goes. */
    cr_assert_eq(rename(path_in(folder, "step-00000007"), replaced), 0);
    make_step(folder, 7);
    expect_found(folder, path_in(folder, "step-00000007"));
    cr_assert_eq(shd_checkpoint_clear_leftovers(folder, &removed), SHERD_OK);
    cr_assert_eq(count_files(folder), 2);
    remove_folder(folder);
}

/* A job that keeps one checkpoint: step after step gets its name, and then the one before loses its own. */
static void keep_one(const char *parent) {
    char before[SHD_PATH_BYTES], new[SHD_PATH_BYTES], partial[SHD_PATH_BYTES];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(partial, sizeof partial, "%s/step-00000001.partial-%016x", parent, 1);
    for (int64_t step = 2;; step++) {
        shd_checkpoint_step_path(before, parent, step - 1);
        shd_checkpoint_step_path(new, parent, step);
        if (rename(partial, new) != 0 || rename(before, partial) != 0) _exit(1);
    }
}

Test(checkpoint_find, always_finds_one_where_one_goes_only_after_the_next_has_come, .timeout = 60) {
    char *folder = make_folder(), *parent = path_in(folder, "a");
    enum { LOOKS = 5000 };
    int missed = 0;
    for (int64_t step = 0; step < 2; step++)
        check_saved(&(small_job){.parent = parent, .step = 1 + step, .world_size = 1});
    cr_assert_eq(rename(path_in(parent, "step-00000002"), path_in(parent, "step-00000001.partial-0000000000000001")),
                 0);
    pid_t job = fork();
    if (job == 0) keep_one(parent);
    for (int i = 0; i < LOOKS; i++) {
        char *found = NULL;
        cr_assert_eq(shd_checkpoint_find(parent, &found), SHERD_OK, "%s", sherd_last_error());
        missed += !found;
        shd_free(found);
    }
    kill(job, SIGKILL);
    int status = 0;
    waitpid(job, &status, 0);
    bool went_on = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    cr_assert(went_on, "the job ended before the looks did");
    cr_assert_eq(missed, 0, "%d of %d times", missed, LOOKS);
    remove_folder(folder);
}

Test(checkpoint_find, passes_over_what_is_partial_or_aside) {
    char *folder = make_folder(), *partial = path_in(folder, "step-00000009.partial-0000000000000001"),
         *aside = path_in(folder, "step-00000009.aside-0000000000000001");
    make_step(folder, 9);
    cr_assert_eq(rename(path_in(folder, "step-00000009"), partial), 0);
    expect_found(folder, NULL);
    expect_found(partial, NULL);
    cr_assert_eq(rename(partial, aside), 0);
    expect_found(folder, NULL);
    expect_found(aside, aside); /* by its own name */
    make_step(folder, 3);
    expect_found(folder, path_in(folder, "step-00000003"));
    remove_folder(folder);
}

/* --- listing ------------------------------------------------------------------------------------------------------ */

Test(checkpoint_list, tells_of_every_step_what_is_there_and_what_is_wrong) {
    static const struct {
        const char *name;
        bool is_step;
        const char *flaw;
    } rows[] = {
        {"step-00000020.partial", false, "is not named as checkpoints are"},
        {"step-x", false, "is not named as checkpoints are"},
        {"step-00000002", true, NULL},
        {"step-00000003", true, "no manifest.json"},
        {"step-00000004", true, "its checksum does not match"},
        {"step-00000005", true, "rank-00000.bin, a part of the checkpoint: No such file"},
        {"step-00000006", true, "rank-00000.bin is damaged: it has 4096 bytes"},
        {"step-00000007", true, "it is of version 1; this build reads version 2"},
        {"step-00000008", true, "was renamed: its manifest is that of step 11"},
        {"step-00000009", true, "is no folder"},
        {"step-00000010.aside-0000000000000001", false, "was set aside"},
        {"step-00000010.partial-0000000000000001", false, "was left by a job that ended"},
        {"step-00000012", true, NULL},
        {"step-00000012.replaced-0000000000000001", false, "was replaced"},
    };
    enum { ROWS = sizeof rows / sizeof *rows };
    char *folder = make_folder();
    static const int64_t steps[] = {2, 4, 5, 6, 7, 10, 11, 12, 13};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) make_step(folder, steps[i]);
    cr_assert_eq(mkdir(path_in(folder, "step-00000003"), 0777), 0);
    cr_assert_eq(mkdir(path_in(folder, "step-x"), 0777), 0);
    cr_assert_eq(mkdir(path_in(folder, "step-00000020.partial"), 0777), 0);
    cr_assert_eq(mkdir(path_in(folder, "best"), 0777), 0);
    write_whole(path_in(folder, "step-00000009"), "", 0);
    size_t bytes;
    char *manifest = read_whole(path_in(folder, "step-00000004/manifest.json"), &bytes);
    manifest[bytes / 2] ^= 1;
    write_whole(path_in(folder, "step-00000004/manifest.json"), manifest, bytes);
    cr_assert_eq(unlink(path_in(folder, "step-00000005/rank-00000.bin")), 0);
    cr_assert_eq(truncate(path_in(folder, "step-00000006/rank-00000.bin"), 4096), 0);
    cr_assert_eq(rename(path_in(folder, "step-00000011"), path_in(folder, "step-00000008")), 0);
    cr_assert_eq(rename(path_in(folder, "step-00000010"), path_in(folder, rows[10].name)), 0);
    make_step(folder, 10);
    cr_assert_eq(rename(path_in(folder, "step-00000010"), path_in(folder, rows[11].name)), 0);
    cr_assert_eq(rename(path_in(folder, "step-00000012"), path_in(folder, rows[13].name)), 0);
    make_step(folder, 12);
    remove_folder(path_in(folder, "step-00000013"));
    /* A manifest of version 1 is sealed in the same way. */
    char old[100] = "{\n  \"version\": 1";
    sprintf(old + strlen(old), ",\n  \"xxh3\": \"%016llx\"\n}\n", (unsigned long long)XXH3_64bits(old, strlen(old)));
    write_whole(path_in(folder, "step-00000007/manifest.json"), old, strlen(old));

    shd_checkpoint_list list;
    cr_assert_eq(shd_checkpoint_list_folders(folder, &list), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(list.count, ROWS);
    for (int i = 0; i < ROWS; i++) {
        const shd_checkpoint_entry *entry = &list.entries[i];
        cr_assert_str_eq(entry->name, rows[i].name);
        cr_assert_str_eq(entry->path, path_in(folder, rows[i].name));
        cr_assert_eq(entry->is_step, rows[i].is_step, "%s", entry->name);
        cr_assert_eq(!entry->flaw, !rows[i].flaw, "%s: %s", entry->name, entry->flaw);
        if (entry->flaw) cr_assert(strstr(entry->flaw, rows[i].flaw), "%s: %s", entry->name, entry->flaw);
        bool told = !entry->flaw || strstr(entry->flaw, "set aside") || strstr(entry->flaw, "was replaced");
        cr_assert_eq(entry->stored_bytes > 0 && entry->raw_bytes > 0 && entry->time_s > 0, told, "%s", entry->name);
    }
    shd_checkpoint_list_release(&list);
    shd_checkpoint_list_release(&list);
    cr_assert_eq(shd_checkpoint_list_folders(path_in(folder, "none"), &list), SHERD_DATA);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    remove_folder(folder);
}
