/* What is removed from folders of checkpoints, and what stays: leftovers, retention, branches that were left. */
#include "checkpoints.h"
#include "io/checkpoint_file.h"
#include "runtime/base/memory.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* --- leftovers ---------------------------------------------------------------------------------------------------- */

/* A process that enters the partial folder and, with `files`, begins a file in it, tells so, and waits for its end. */
static pid_t start_writer(const small_job *job, bool files) {
    int ready[2];
    char byte;
    cr_assert_eq(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        int folder = -1;
        shd_rank_file_maker maker;
        sherd_status status = shd_checkpoint_partial_enter(job_partial(job), &folder);
        if (status == SHERD_OK && files)
            status = shd_rank_file_create(&maker, path_in(job_partial(job), "rank-00000.bin"), job->step, 0);
        if (status != SHERD_OK || write(ready[1], "", 1) != 1) _exit(1);
        for (;;) pause();
    }
    close(ready[1]);
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return child;
}

static void end_writer(pid_t child) {
    cr_assert_eq(kill(child, SIGKILL), 0);
    cr_assert_eq(waitpid(child, NULL, 0), child);
}

static int32_t clear(const char *parent) {
    int32_t removed = -1;
    cr_assert_eq(shd_checkpoint_clear_leftovers(parent, &removed), SHERD_OK, "%s", sherd_last_error());
    return removed;
}

Test(checkpoint_leftovers, of_a_process_that_lives_stay_and_those_of_a_dead_one_go, .timeout = 20) {
    char *folder = make_folder();
    small_job job = {.parent = folder, .step = 5, .world_size = 1, .id = 77};
    make_step(folder, 3);
    cr_assert_eq(clear(folder), 0);
    pid_t writer = start_writer(&job, true);
    cr_assert_eq(clear(folder), 0);
    cr_assert(is_there(job_partial(&job), "rank-00000.bin"));
    end_writer(writer);
    cr_assert_eq(clear(folder), 1);
    cr_assert_not(access(job_partial(&job), F_OK) == 0);
    /* A folder that has been entered, and no more. */
    writer = start_writer(&job, false);
    cr_assert_eq(clear(folder), 0);
    end_writer(writer);
    cr_assert_eq(clear(folder), 1);
    cr_assert_eq(count_files(folder), 1);
    cr_assert_eq(clear(path_in(folder, "none")), 0);
    remove_folder(folder);
}

/* A lock on a file alone, as seen from another host, is enough; one of many, too. */
Test(checkpoint_leftovers, one_locked_file_keeps_them_all) {
    char *folder = make_folder();
    small_job job = {.parent = folder, .step = 5, .world_size = 4, .id = 77};
    cr_assert_eq(write_job(&job), SHERD_OK);
    FILE *file = fopen(path_in(job_partial(&job), "rank-00002.bin"), "r");
    cr_assert_eq(flock(fileno(file), LOCK_SH), 0);
    cr_assert_eq(clear(folder), 0);
    cr_assert_eq(count_files(job_partial(&job)), 4);
    fclose(file);
    cr_assert_eq(clear(folder), 1);
    cr_assert_eq(count_files(folder), 0);
    remove_folder(folder);
}

Test(checkpoint_leftovers, what_is_not_ours_stays_and_is_said) {
    char *folder = make_folder(), *elsewhere = make_folder();
    small_job job = {.parent = folder, .step = 5, .world_size = 1, .id = 77};
    cr_assert_eq(write_job(&job), SHERD_OK);
    write_whole(path_in(job_partial(&job), "notes.txt"), "x", 1);
    write_whole(path_in(elsewhere, "rank-00000.bin"), "x", 1);
    cr_assert_eq(symlink(elsewhere, path_in(folder, "step-00000006.partial-0000000000000001")), 0);
    cr_assert_eq(mkdir(path_in(folder, "step-00000007.partial"), 0777), 0);
    cr_assert_eq(mkdir(path_in(folder, "tmp.partial-0000000000000001"), 0777), 0);
    listen_to_log();
    cr_assert_eq(clear(folder), 0);
    cr_assert(strstr(logged, "notes.txt in it is no part of a checkpoint"), "%s", logged);
    cr_assert_eq(count_files(folder), 4);
    cr_assert_eq(count_files(job_partial(&job)), 2);
    cr_assert(is_there(elsewhere, "rank-00000.bin"));
    /* A folder called like a rank's file is none of ours either. */
    cr_assert_eq(unlink(path_in(job_partial(&job), "notes.txt")), 0);
    cr_assert_eq(unlink(path_in(job_partial(&job), "rank-00000.bin")), 0);
    cr_assert_eq(mkdir(path_in(job_partial(&job), "rank-00000.bin"), 0777), 0);
    cr_assert_eq(clear(folder), 0);
    cr_assert(is_there(job_partial(&job), "rank-00000.bin"));
    remove_folder(folder);
    remove_folder(elsewhere);
}

/* Ranks that come while leftovers are cleared never find their folder taken away. */
Test(checkpoint_leftovers, nobodys_folder_is_removed_from_under_those_who_enter, .timeout = 30) {
    enum { WRITERS = 3, ROUNDS = 200 };
    char *folder = make_folder();
    pid_t children[WRITERS];
    for (int w = 0; w < WRITERS; w++) {
        children[w] = fork();
        if (children[w] != 0) continue;
        for (int i = 0; i < ROUNDS; i++) {
            void *mark = mark_taken();
            small_job job = {.parent = folder, .step = i % 2, .id = 5};
            char name[32], *path = NULL;
            int held = -1;
            if (shd_checkpoint_partial_enter(job_partial(&job), &held) != SHERD_OK) _exit(2);
            snprintf(name, sizeof name, "rank-%05d.bin", w);
            path = path_in(job_partial(&job), name);
            FILE *file = fopen(path, "w");
            if (!file) _exit(3);
            if (flock(fileno(file), LOCK_SH) != 0) _exit(4);
            usleep((useconds_t)(rand() % 300));
            struct stat by_name, open;
            if (stat(path, &by_name) != 0 || fstat(fileno(file), &open) != 0) _exit(5);
            if (by_name.st_ino != open.st_ino) _exit(6);
            fclose(file);
            close(held);
            release_taken(mark);
        }
        _exit(0);
    }
    int left = WRITERS, removed = 0;
    while (left > 0) {
        int status;
        removed += clear(folder);
        pid_t ended = waitpid(-1, &status, WNOHANG);
        if (ended <= 0) continue;
        left--;
        cr_assert_eq(status, 0, "a writer ended with %d", WEXITSTATUS(status));
    }
    clear(folder);
    cr_assert_gt(removed, 0);
    remove_folder(folder);
}

/* --- retention ---------------------------------------------------------------------------------------------------- */

Test(checkpoint_retention, keeps_the_newest_and_milestones) {
    static const struct {
        int32_t keep;
        int64_t keep_every, newest;
        const char *kept; /* a digit a step, from 1 on */
    } rows[] = {
        {0, 0, 9, "123456789"}, {1, 0, 9, "9"},          {2, 0, 9, "89"},    {3, 0, 9, "789"},
        {9, 0, 9, "123456789"}, {20, 0, 9, "123456789"}, {1, 4, 9, "489"},   {2, 3, 9, "3689"},
        {1, 1, 9, "123456789"}, {3, 5, 9, "5789"},       {1, 0, 5, "56789"}, {2, 2, 6, "2456789"},
        {1, 100, 9, "9"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *folder = make_folder(), kept[16] = "";
        for (int64_t step = 1; step < 10; step++) make_step(folder, step);
        const shd_checkpoint_retention retention = {.keep = rows[i].keep, .keep_every = rows[i].keep_every};
        shd_checkpoint_retain(folder, &retention, rows[i].newest, 3);
        for (int step = 1; step < 10; step++) {
            char name[32];
            snprintf(name, sizeof name, "step-%08d", step);
            if (is_there(folder, name)) sprintf(kept + strlen(kept), "%d", step);
        }
        cr_expect_str_eq(kept, rows[i].kept, "row %zu: %s", i, kept);
        cr_expect_eq(count_files(folder), (int)strlen(rows[i].kept), "row %zu", i);
        remove_folder(folder);
    }
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

Test(checkpoint_retention, leaves_what_is_damaged_linked_foreign_or_aside) {
    char *folder = make_folder(), *elsewhere = make_folder();
    for (int64_t step = 1; step < 10; step++) make_step(folder, step);
    make_step(elsewhere, 5);
    write_whole(path_in(folder, "step-00000001/notes.txt"), "x", 1);
    cr_assert_eq(unlink(path_in(folder, "step-00000002/manifest.json")), 0);
    cr_assert_eq(truncate(path_in(folder, "step-00000003/rank-00000.bin"), 4096), 0);
    cr_assert_eq(rename(path_in(folder, "step-00000004"), path_in(folder, "step-00000004.aside-0000000000000001")), 0);
    remove_folder(path_in(folder, "step-00000005"));
    cr_assert_eq(symlink(path_in(elsewhere, "step-00000005"), path_in(folder, "step-00000005")), 0);
    cr_assert_eq(rename(path_in(folder, "step-00000006"), path_in(folder, "best")), 0);
    listen_to_log();
    shd_checkpoint_retain(folder, &(shd_checkpoint_retention){.keep = 2}, 9, 3);
    cr_assert(strstr(logged, "step-00000001 is kept: notes.txt"), "%s", logged);
    static const char *stay[] = {"step-00000001",
                                 "step-00000001/manifest.json",
                                 "step-00000002",
                                 "step-00000003",
                                 "step-00000004.aside-0000000000000001",
                                 "step-00000005/rank-00000.bin",
                                 "best/manifest.json",
                                 "step-00000008",
                                 "step-00000009"};
    for (size_t i = 0; i < sizeof stay / sizeof *stay; i++) cr_expect(is_there(folder, stay[i]), "%s", stay[i]);
    cr_assert_eq(count_files(folder), 8);
    /* Damaged ones are not counted among those that are kept. */
    cr_assert_eq(truncate(path_in(folder, "step-00000008/rank-00000.bin"), 4096), 0);
    make_step(folder, 7);
    shd_checkpoint_retain(folder, &(shd_checkpoint_retention){.keep = 2}, 9, 3);
    cr_assert(is_there(folder, "step-00000007"));
    remove_folder(folder);
    remove_folder(elsewhere);
}

Test(checkpoint_retention, what_somebody_reads_stays_until_it_is_closed) {
    const shd_checkpoint_retention one = {.keep = 1};
    char *folder = make_folder();
    shd_checkpoint *read[2];
    for (int64_t step = 1; step < 4; step++) make_step(folder, step);
    cr_assert_eq(shd_checkpoint_open(path_in(folder, "step-00000001"), &read[0]), SHERD_OK);
    cr_assert_eq(shd_checkpoint_open(path_in(folder, "step-00000001"), &read[1]), SHERD_OK);
    listen_to_log();
    shd_checkpoint_retain(folder, &one, 3, 3);
    cr_assert(is_there(folder, "step-00000001/rank-00000.bin") && !is_there(folder, "step-00000002"));
    cr_assert_str_eq(logged, "", "it is nothing to be warned of: %s", logged);
    shd_checkpoint_close(read[0]);
    shd_checkpoint_retain(folder, &one, 3, 3);
    cr_assert(is_there(folder, "step-00000001"), "there is another reader");
    shd_checkpoint_close(read[1]);
    shd_checkpoint_retain(folder, &one, 3, 3);
    cr_assert_eq(count_files(folder), 1);
    remove_folder(folder);
}

Test(checkpoint_aside, what_is_newer_than_a_step_is_set_aside_whole) {
    char *folder = make_folder();
    int32_t moved = -1;
    for (int64_t step = 1; step < 6; step++) make_step(folder, step);
    cr_assert_eq(unlink(path_in(folder, "step-00000005/manifest.json")), 0); /* damaged ones, too */
    cr_assert_eq(shd_checkpoint_move_aside(folder, 5, 0xab, &moved), SHERD_OK);
    cr_assert_eq(moved, 0);
    cr_assert_eq(shd_checkpoint_move_aside(folder, 3, 0xab, &moved), SHERD_OK);
    cr_assert_eq(moved, 2);
    cr_assert(is_there(folder, "step-00000003") &&
              is_there(folder, "step-00000004.aside-00000000000000ab/manifest.json") &&
              is_there(folder, "step-00000005.aside-00000000000000ab/rank-00000.bin"));
    cr_assert_eq(count_files(folder), 5);
    cr_assert_eq(clear(folder), 0);
    cr_assert_eq(shd_checkpoint_move_aside(path_in(folder, "none"), 3, 0xab, &moved), SHERD_OK);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    remove_folder(folder);
}

/* Who gives a save up alone takes nothing from those who still write or commit it. */
Test(checkpoint_folder, that_one_rank_gives_up_is_removed_by_the_last_one) {
    char *folder = make_folder();
    small_job job = {.parent = folder, .step = 3, .id = 7};
    int first = -1, second = -1;
    cr_assert_eq(shd_checkpoint_partial_enter(job_partial(&job), &first), SHERD_OK);
    cr_assert_eq(shd_checkpoint_partial_enter(job_partial(&job), &second), SHERD_OK);
    fclose(fopen(path_in(job_partial(&job), "rank-00000.bin"), "w"));
    close(second);
    shd_checkpoint_abandon(folder, job.step, job.id);
    cr_assert_eq(access(path_in(job_partial(&job), "rank-00000.bin"), F_OK), 0, "it was somebody's");
    close(first);
    shd_checkpoint_abandon(folder, job.step, job.id);
    cr_assert_neq(access(job_partial(&job), F_OK), 0, "it was nobody's");
    remove_folder(folder);
}
