/* Every system call that changes something during a save fails once, and once the process is killed right before it.
 * The calls below take the place of the C library's. */
#include "checkpoints.h"
#include "io/checkpoint_export.h"
#include "runtime/base/memory.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int calls_left = -1; /* until one fails, or kills; -1: none does */
static bool kills, no_exchange;

static bool fails_now(void) {
    if (calls_left < 0 || calls_left-- > 0) return false;
    if (kills) raise(SIGKILL);
    errno = ENOSPC;
    return true;
}

ssize_t write(int descriptor, const void *data, size_t bytes) {
    return fails_now() ? -1 : syscall(SYS_write, descriptor, data, bytes);
}
ssize_t pwrite64(int descriptor, const void *data, size_t bytes, off64_t offset) {
    return fails_now() ? -1 : syscall(SYS_pwrite64, descriptor, data, bytes, offset);
}
ssize_t pread64(int descriptor, void *data, size_t bytes, off64_t offset) {
    return fails_now() ? -1 : syscall(SYS_pread64, descriptor, data, bytes, offset);
}
int fsync(int descriptor) { return fails_now() ? -1 : (int)syscall(SYS_fsync, descriptor); }
int mkdir(const char *path, mode_t mode) { return fails_now() ? -1 : (int)syscall(SYS_mkdir, path, mode); }
int rename(const char *from, const char *to) { return fails_now() ? -1 : (int)syscall(SYS_rename, from, to); }
int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
    if (no_exchange) return errno = EINVAL, -1;
    return fails_now() ? -1 : (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}
int unlinkat(int folder, const char *path, int flags) {
    return fails_now() ? -1 : (int)syscall(SYS_unlinkat, folder, path, flags);
}
int rmdir(const char *path) { return fails_now() ? -1 : (int)syscall(SYS_rmdir, path); }

static bool loads(const small_job *job) {
    bool equal;
    return load_job(job, &equal) == SHERD_OK && equal;
}

/* Whether what a resuming job would find is one of both, whole. */
static bool finds_one_of(const char *parent, int64_t step, int64_t other_step) {
    char *found = NULL;
    shd_checkpoint *checkpoint = NULL;
    if (shd_checkpoint_find(parent, &found) != SHERD_OK || !found) return false;
    sherd_status status = shd_checkpoint_open(found, &checkpoint);
    int64_t there = status == SHERD_OK ? shd_checkpoint_content(checkpoint)->step : -1;
    shd_free(found);
    if (status == SHERD_OK) shd_checkpoint_close(checkpoint);
    return there == step || there == other_step;
}

/* --- killed ------------------------------------------------------------------------------------------------------- */

/* Saves and retains in a process that is killed before call number `call`; false: it came to its end. */
static bool save_and_be_killed(const small_job *job, int call) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        kills = true;
        calls_left = call;
        if (save_job(job) != SHERD_OK) _exit(1);
        shd_checkpoint_retain(job->parent, &(shd_checkpoint_retention){.keep = 1}, job->step, job->id);
        _exit(0);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    bool killed = WIFSIGNALED(status) != 0;
    cr_assert(killed || status == 0, "call %d: the child ended with %d", call, status);
    return killed;
}

/* What a killed job leaves: one of both is found; the next job clears up and saves. */
static void check_left(const small_job *old, const small_job *new, int call) {
    int32_t removed;
    cr_assert(finds_one_of(old->parent, old->step, new->step), "call %d: none is found", call);
    cr_assert_eq(shd_checkpoint_clear_leftovers(old->parent, &removed), SHERD_OK);
    cr_assert(loads(old) || loads(new), "call %d: neither is whole", call);
    small_job again = *new;
    again.id++;
    cr_assert_eq(save_job(&again), SHERD_OK, "call %d: %s", call, sherd_last_error());
    cr_assert(loads(&again), "call %d", call);
    shd_checkpoint_retain(old->parent, &(shd_checkpoint_retention){.keep = 1}, again.step, again.id);
    cr_assert_eq(count_files(old->parent), 1, "call %d", call);
    cr_assert(loads(&again), "call %d", call);
}

static void kill_everywhere(int64_t old_step, int at_least) {
    int call = 0;
    for (bool more = true; more; call++) {
        char *folder = make_folder();
        small_job old = {.parent = folder, .step = old_step, .world_size = 2, .seed = 1, .id = 1},
                  new = {.parent = folder, .step = 3, .world_size = 2, .seed = 2, .id = 2};
        cr_assert_eq(save_job(&old), SHERD_OK);
        more = save_and_be_killed(&new, call);
        cr_assert(more || loads(&new));
        check_left(&old, &new, call);
        remove_folder(folder);
    }
    cr_assert_gt(call, at_least);
}

Test(checkpoint_kills, before_any_call_of_a_save_leave_the_older_one_or_the_new_one, .timeout = 60) {
    kill_everywhere(2, 20);
}
Test(checkpoint_kills, while_a_step_is_replaced_leave_one_of_both, .timeout = 60) { kill_everywhere(3, 20); }
Test(checkpoint_kills, also_where_folders_cannot_be_exchanged, .timeout = 60) {
    no_exchange = true;
    kill_everywhere(3, 20);
}

/* Whatever was going on, and whoever clears up: 200 times, at moments that reach as far as a save takes on this machine. */
Test(checkpoint_kills, at_random_moments_never_lose_all, .timeout = 300) {
    enum { SPAN_US = 15000, SPAN_US_MAX = 500000 };
    char *folder = make_folder();
    small_job job = {.parent = folder, .step = 0, .world_size = 2, .id = 1};
    cr_assert_eq(save_job(&job), SHERD_OK);
    int64_t last = 0, span_us = SPAN_US;
    for (int i = 0, without = 0; i < 200; i++) {
        pid_t child = fork();
        if (child == 0) {
            int32_t removed;
            srand((unsigned)i);
            shd_checkpoint_clear_leftovers(folder, &removed);
            for (job.id = (uint64_t)i + 2, job.step = last;; job.step += rand() % 2) {
                if (save_job(&job) != SHERD_OK) _exit(1);
                shd_checkpoint_retain(folder, &(shd_checkpoint_retention){.keep = 1}, job.step, job.id);
            }
        }
        const struct timespec pause = {.tv_nsec = 1000 * (rand() % span_us)};
        nanosleep(&pause, NULL);
        int status;
        kill(child, SIGKILL);
        cr_assert_eq(waitpid(child, &status, 0), child);
        cr_assert(WIFSIGNALED(status) != 0, "round %d: the child ended with %d", i, status);
        char *found = NULL;
        cr_assert_eq(shd_checkpoint_find(folder, &found), SHERD_OK);
        cr_assert_not_null(found, "round %d", i);
        int64_t step = strtoll(strstr(found, "step-") + 5, NULL, 10);
        cr_assert_geq(step, last, "round %d: an older one is the newest", i);
        cr_assert(loads(&(small_job){.parent = folder, .step = step, .world_size = 2}), "round %d: %s", i,
                  sherd_last_error());
        without = step > last ? 0 : without + 1;
        if (without % 10 == 9 && span_us < SPAN_US_MAX) span_us *= 2;
        last = step;
        shd_free(found);
    }
    cr_assert_gt(last, 0);
    remove_folder(folder);
}

/* --- failing ------------------------------------------------------------------------------------------------------ */

/* Saves with call number `call` failing; false when there were not so many calls. *saved: it was done all the same. */
static bool save_with_fault(const small_job *job, int call, bool *saved) {
    calls_left = call;
    sherd_status status = save_job(job);
    bool failed = calls_left < 0;
    calls_left = -1;
    *saved = status == SHERD_OK;
    if (!failed || status == SHERD_OK) { /* an exchange that fails is tried in another way, what goes may stay */
        cr_assert_eq(status, SHERD_OK, "%s", sherd_last_error());
        return failed;
    }
    cr_assert_eq(status, SHERD_IO, "call %d: %d, %s", call, status, sherd_last_error());
    cr_assert(strstr(sherd_last_error(), job->parent) && strstr(sherd_last_error(), "No space left on device"), "%s",
              sherd_last_error());
    shd_checkpoint_discard(job->parent, job->step, job->id);
    return true;
}

static void fail_everywhere(int64_t old_step, int at_least) {
    int call = 0;
    for (bool more = true; more; call++) {
        char *folder = make_folder();
        int32_t removed;
        small_job old = {.parent = folder, .step = old_step, .world_size = 2, .seed = 1, .id = 1},
                  new = {.parent = folder, .step = 3, .world_size = 2, .seed = 2, .id = 2};
        cr_assert_eq(save_job(&old), SHERD_OK);
        bool saved;
        more = save_with_fault(&new, call, &saved);
        cr_assert(saved ? loads(&new) : loads(&old), "call %d: it was%s saved", call, saved ? "" : " not");
        cr_assert(finds_one_of(folder, old_step, 3), "call %d", call);
        cr_assert(old_step == 3 || loads(&old), "call %d: the older one is not whole", call);
        cr_assert_eq(shd_checkpoint_clear_leftovers(folder, &removed), SHERD_OK);
        cr_assert(loads(&old) || loads(&new), "call %d: neither is there", call);
        cr_assert_eq(save_job(&new), SHERD_OK, "call %d: %s", call, sherd_last_error());
        cr_assert(loads(&new), "call %d", call);
        cr_assert_leq(count_files(folder), old_step == 3 ? 1 : 2, "call %d", call);
        remove_folder(folder);
    }
    cr_assert_gt(call, at_least);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

Test(checkpoint_faults, a_save_that_fails_anywhere_leaves_the_older_one, .timeout = 60) { fail_everywhere(2, 20); }
Test(checkpoint_faults, replacing_a_step_fails_anywhere_and_one_of_both_is_there, .timeout = 60) {
    fail_everywhere(3, 20);
}
Test(checkpoint_faults, the_same_where_folders_cannot_be_exchanged, .timeout = 60) {
    no_exchange = true;
    fail_everywhere(3, 20);
}

Test(checkpoint_faults, a_load_or_export_that_cannot_read_is_an_io_error) {
    char *folder = make_folder(), *to = path_in(folder, "x.safetensors");
    small_job job = {.parent = path_in(folder, "c"), .step = 3, .world_size = 2, .seed = 1};
    cr_assert_eq(save_job(&job), SHERD_OK);
    for (int export = 0; export < 2; export ++) {
        int call = 0;
        for (bool more = true; more; call++) {
            bool equal;
            calls_left = call;
            sherd_status status = export ? shd_checkpoint_export(job.parent, to) : load_job(&job, &equal);
            more = calls_left < 0;
            calls_left = -1;
            cr_assert_eq(status, more ? SHERD_IO : SHERD_OK, "call %d: %s", call, sherd_last_error());
            if (more) cr_assert(strstr(sherd_last_error(), folder));
            cr_assert_eq(access(path_in(folder, "x.safetensors.partial"), F_OK), -1);
        }
        cr_assert_gt(call, 5);
    }
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    remove_folder(folder);
}
