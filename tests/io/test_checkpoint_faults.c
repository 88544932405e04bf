/* Every system call that a save, a load or an export makes fails once. The calls below take the place of the C
 * library's. */
#include "checkpoints.h"
#include "runtime/base/memory.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int calls_left = -1; /* until one fails; -1: none does */
static bool no_exchange;

static bool fails_now(void) {
    if (calls_left < 0 || calls_left-- > 0) return false;
    errno = ENOSPC;
    return true;
}

ssize_t write(int descriptor, const void *data, size_t bytes) {
    return fails_now() ? -1 : syscall(SYS_write, descriptor, data, bytes);
}
ssize_t pread64(int descriptor, void *data, size_t bytes, off64_t offset) {
    return fails_now() ? -1 : syscall(SYS_pread64, descriptor, data, bytes, offset);
}
int fsync(int descriptor) { return fails_now() ? -1 : (int)syscall(SYS_fsync, descriptor); }
int mkdir(const char *path, mode_t mode) { return fails_now() ? -1 : (int)syscall(SYS_mkdir, path, mode); }
int rename(const char *from, const char *to) { return fails_now() ? -1 : (int)syscall(SYS_rename, from, to); }
int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
    if (fails_now()) return -1;
    if (no_exchange) return errno = EINVAL, -1;
    return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

/* Saves with call number `call` failing; false when there were not so many calls. */
static bool save_with_fault(const small_job *job, int call) {
    calls_left = call;
    sherd_status status = save_job(job);
    bool failed = calls_left < 0;
    calls_left = -1;
    if (!failed || status == SHERD_OK) { /* an exchange that fails is tried in another way */
        cr_assert_eq(status, SHERD_OK, "%s", sherd_last_error());
        return failed;
    }
    cr_assert_eq(status, SHERD_IO, "call %d: %d, %s", call, status, sherd_last_error());
    cr_assert(strstr(sherd_last_error(), job->parent) && strstr(sherd_last_error(), "No space left on device"), "%s",
              sherd_last_error());
    shd_checkpoint1_discard(job->parent, job->step);
    return true;
}

static bool loads(const small_job *job) {
    bool equal;
    return load_job(job, &equal) == SHERD_OK && equal;
}

Test(checkpoint_faults, a_save_that_fails_anywhere_leaves_the_older_one) {
    int call = 0;
    for (bool more = true; more; call++) {
        char *folder = make_folder();
        small_job before = {.parent = folder, .step = 1, .world_size = 2, .seed = 1},
                  next = {.parent = folder, .step = 2, .world_size = 2, .seed = 2};
        cr_assert_eq(save_job(&before), SHERD_OK);
        more = save_with_fault(&next, call);
        cr_assert(loads(&before), "call %d", call);
        char *found = NULL;
        cr_assert_eq(shd_checkpoint_find(folder, &found), SHERD_OK);
        cr_assert(strcmp(found, job_path(&before)) == 0 || (strcmp(found, job_path(&next)) == 0 && loads(&next)),
                  "call %d: %s", call, found);
        shd_free(found);
        cr_assert_eq(save_job(&next), SHERD_OK, "call %d: %s", call, sherd_last_error());
        cr_assert(loads(&next));
        cr_assert_eq(count_files(folder), 2, "call %d", call);
        remove_folder(folder);
    }
    cr_assert_gt(call, 20);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

static void replace_with_every_fault(void) {
    int call = 0;
    for (bool more = true; more; call++) {
        char *folder = make_folder();
        small_job old = {.parent = folder, .step = 3, .world_size = 2, .seed = 1},
                  new = {.parent = folder, .step = 3, .world_size = 2, .seed = 2};
        cr_assert_eq(save_job(&old), SHERD_OK);
        more = save_with_fault(&new, call);
        cr_assert(loads(&old) || loads(&new), "call %d: neither is there", call);
        cr_assert(more || loads(&new));
        cr_assert_eq(save_job(&new), SHERD_OK, "call %d: %s", call, sherd_last_error());
        cr_assert(loads(&new));
        cr_assert_eq(count_files(folder), 1, "call %d", call);
        remove_folder(folder);
    }
    cr_assert_gt(call, 15);
}

Test(checkpoint_faults, replacing_a_step_fails_anywhere_and_one_of_both_is_there) { replace_with_every_fault(); }
Test(checkpoint_faults, the_same_where_folders_cannot_be_exchanged) {
    no_exchange = true;
    replace_with_every_fault();
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
