/* Preloaded into the ranks of a job under test, of which one then fails at a place of our choice: SHERD_TEST_HANG is
 * "WHERE:RANK:PATH", and holds once there is a file PATH. WHERE is "data", reading a file called train.txt; "evaluation",
 * reading one called validation.txt; "compute", a matrix product; or "collective", the first call for another rank's
 * sake: these never return. "unreadable": reads of train.txt fail with EIO. "slow": each matrix product takes 2 ms more.
 * "exit3", "exit0" and "crash": the rank ends in a matrix product. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static bool is_due(const char *where) {
    const char *order = getenv("SHERD_TEST_HANG"), *rank = getenv("RANK");
    char place[16] = "";
    int victim = -1, skip = 0;
    if (!order || !rank || sscanf(order, "%15[^:]:%d:%n", place, &victim, &skip) != 2 || !skip) return false;
    return strcmp(place, where) == 0 && atoi(rank) == victim && access(order + skip, F_OK) == 0;
}

static void hang_if_due(const char *where) {
    while (is_due(where)) pause();
}

static bool is_file(int descriptor, const char *name) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return false;
    path[length] = 0;
    return strstr(path, name) != NULL;
}

/* Of data: never comes back, or true with errno set, where that is wanted. */
static bool is_unreadable(int descriptor) {
    if (is_file(descriptor, "/validation.txt")) hang_if_due("evaluation");
    if (!is_file(descriptor, "/train.txt")) return false;
    hang_if_due("data");
    errno = EIO;
    return is_due("unreadable");
}

typedef ssize_t (*read_fn)(int, void *, size_t, off_t);

ssize_t pread(int descriptor, void *out, size_t bytes, off_t offset) {
    if (is_unreadable(descriptor)) return -1;
    return ((read_fn)dlsym(RTLD_NEXT, "pread"))(descriptor, out, bytes, offset);
}

ssize_t pread64(int descriptor, void *out, size_t bytes, off64_t offset) {
    if (is_unreadable(descriptor)) return -1;
    return ((read_fn)dlsym(RTLD_NEXT, "pread64"))(descriptor, out, bytes, offset);
}

static void *address_of_nothing(void) {
    void *volatile nothing = NULL;
    return nothing;
}

typedef void (*product_fn)(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *,
                           int);

void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b,
                 int ldb, float beta, float *c, int ldc);
void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b,
                 int ldb, float beta, float *c, int ldc) {
    hang_if_due("compute");
    if (is_due("slow")) usleep(2000);
    if (is_due("exit3")) _exit(3);
    if (is_due("exit0")) _exit(0);
    if (is_due("crash")) *(volatile int *)address_of_nothing() = 1;
    ((product_fn)dlsym(RTLD_NEXT, "cblas_sgemm"))(order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

typedef long (*call_fn)(long, ...);

typedef int (*yield_fn)(void);

/* Where a machine is busy ranks wait without ever coming to sleep. */
int sched_yield(void) {
    if (gettid() == getpid()) hang_if_due("collective");
    return ((yield_fn)dlsym(RTLD_NEXT, "sched_yield"))();
}

/* Futexes by number are how ranks wait for each other and wake each other; threads wait otherwise. */
long syscall(long number, ...) {
    long arguments[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) arguments[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_futex) hang_if_due("collective");
    return ((call_fn)dlsym(RTLD_NEXT, "syscall"))(number, arguments[0], arguments[1], arguments[2], arguments[3],
                                                  arguments[4], arguments[5]);
}
