/* Meeting when memory or the kernel refuses something: the i-th request fails, for every i. This program brings its own
 * memory.c and stands before the kernel calls that comm makes, so it is a suite by itself. */
#include "runtime/base/memory.h"
#include "tests/comm/ranks.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Requests of this thread until one is refused; below 0: never. */
static _Thread_local int64_t until_refused = -1;

static bool refuse(void) { return until_refused >= 0 && until_refused-- == 0; }

/* --- the requests ------------------------------------------------------------------------------------------------- */

static atomic_llong live_objects, noted_bytes;

void *shd_alloc(size_t count, size_t bytes) {
    void *pointer = refuse() ? NULL : calloc(count ? count : 1, bytes ? bytes : 1);
    if (pointer) atomic_fetch_add(&live_objects, 1);
    return pointer;
}
void shd_free(void *pointer) {
    if (pointer) atomic_fetch_sub(&live_objects, 1);
    free(pointer);
}
void *shd_map(int64_t bytes) { return shd_alloc((size_t)bytes, 1); }
void shd_unmap(void *pointer, int64_t bytes) {
    (void)bytes;
    shd_free(pointer);
}
void shd_memory_note(shd_memory_use use, int64_t bytes) {
    (void)use;
    atomic_fetch_add(&noted_bytes, bytes);
}

/* Declared in the C library's headers, which also choose the names that large files need. */
#define KERNEL_CALL(name, parameters, number, ...)                                                                     \
    int name parameters {                                                                                              \
        if (refuse()) {                                                                                                \
            errno = EMFILE;                                                                                            \
            return -1;                                                                                                 \
        }                                                                                                              \
        return (int)syscall(number, __VA_ARGS__);                                                                      \
    }
KERNEL_CALL(memfd_create, (const char *file, unsigned flags), SYS_memfd_create, file, flags)
KERNEL_CALL(pipe2, (int ends[2], int flags), SYS_pipe2, ends, flags)
KERNEL_CALL(fallocate, (int fd, int mode, off_t at, off_t bytes), SYS_fallocate, fd, mode, at, bytes)
KERNEL_CALL(listen, (int fd, int backlog), SYS_listen, fd, backlog)

/* --- the tests ---------------------------------------------------------------------------------------------------- */

typedef struct job {
    char name[64];
    int32_t who;
    int64_t refused_at;
    atomic_bool was_refused;
} job;

static int body(int32_t rank, int32_t world, void *argument) {
    job *work = argument;
    shd_comm_config config = ranks_config(rank, world, work->name, 4096);
    config.host_bytes = 4096;
    config.start_timeout_s = 0.1;
    shd_comm *comm = NULL;
    until_refused = rank == work->who ? work->refused_at : -1;
    sherd_status status = shd_comm_create(&config, &comm);
    if (rank == work->who) atomic_store(&work->was_refused, until_refused < 0);
    until_refused = -1;
    char all[RANKS_MAX];
    if (status == SHERD_OK) status = shd_comm_exchange(comm, "", 1, all);
    if (status != SHERD_OK && strlen(sherd_last_error()) < 10) status = SHERD_INTERNAL; /* a cause must be told */
    shd_comm_destroy(status == SHERD_OK || comm ? comm : NULL);
    return (int)status;
}

static int open_files(void) {
    DIR *listing = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(listing)) count++;
    closedir(listing);
    return count;
}

static void refuse_each(int32_t world) {
    for (int32_t who = 0; who < world; who++) {
        int files = open_files();
        int64_t refusals = 0;
        for (bool more = true; more;) {
            job work = {.who = who, .refused_at = refusals};
            ranks_new_name(work.name, sizeof work.name);
            ranks_result result = ranks_run(AS_THREADS, world, body, &work, 30);
            more = atomic_load(&work.was_refused);
            for (int32_t r = 0; r < world; r++) {
                cr_assert(more ? result.code[r] != 0 && result.code[r] != SHERD_INTERNAL : result.code[r] == 0,
                          "rank %d, when request %lld of rank %d is refused: code %d: %s", r, (long long)refusals, who,
                          result.code[r], result.text[r]);
                cr_assert_lt(result.ended_ms[r], 3500);
            }
            cr_assert_eq(open_files(), files, "request %lld of rank %d", (long long)refusals, who);
            cr_assert_eq(atomic_load(&live_objects), 0, "request %lld of rank %d", (long long)refusals, who);
            cr_assert_eq(atomic_load(&noted_bytes), 0, "request %lld of rank %d", (long long)refusals, who);
            refusals += more;
        }
        cr_assert_geq(refusals, world == 1 ? 5 : 7, "the requests of rank %d are refused at all", who);
    }
}

Test(scarcity, any_refused_request_ends_the_meeting_without_a_leak_or_a_hang, .timeout = 100) {
    refuse_each(1);
    refuse_each(3);
}

/* Request 5 of a rank is its first shared memory. */
Test(scarcity, a_rank_without_memory_tells_the_others_why_it_does_not_come, .timeout = 60) {
    for (int32_t who = 0; who < 3; who++) {
        job work = {.who = who, .refused_at = 5};
        ranks_new_name(work.name, sizeof work.name);
        ranks_result result = ranks_run(AS_THREADS, 3, body, &work, 30);
        char told[96];
        snprintf(told, sizeof told, "rank %d failed at the start: cannot make shared memory", who);
        for (int32_t r = 0; r < 3; r++) {
            cr_assert_eq(result.code[r], r == who ? SHERD_MEMORY : SHERD_PEER, "rank %d: %s", r, result.text[r]);
            if (r != who) cr_assert(strstr(result.text[r], told), "rank %d: %s", r, result.text[r]);
        }
    }
}
