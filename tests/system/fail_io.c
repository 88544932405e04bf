/* Preloaded into one rank of a job under test: its N-th call that changes files below a folder fails, or kills the rank.
 *
 * SHERD_TEST_IO is "WHAT:N:RANK:FOLDER"; WHAT is "kill", just before the call; or the number of an error, which this call
 * returns and, with a plus behind the number, all later ones too. "poor" is a file system that can little, for all ranks:
 * no O_DIRECT, no locks on files but ".sherd-lock", no renameat2, reads and writes of fewer bytes than asked for, and
 * interrupted ones. "bad" is one with a bad sector in each file of a rank: all its reads of them fail with EIO. Counted are calls that make, write, sync, rename or remove something below FOLDER, in all
 * threads of the process whose environment says RANK. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_int calls;

static bool is_below(const char *path) {
    const char *folder = getenv("SHERD_TEST_IO");
    for (int i = 0; folder && i < 3; i++) {
        folder = strchr(folder, ':');
        if (folder) folder++;
    }
    return folder && path && strncmp(path, folder, strlen(folder)) == 0;
}

static bool is_descriptor_below(int descriptor) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return false;
    path[length] = 0;
    return is_below(path);
}

/* Of a path as given to an *at function: what is relative to a descriptor is where the descriptor is. */
static bool is_below_at(int descriptor, const char *path) {
    return path[0] == '/' || descriptor == AT_FDCWD ? is_below(path) : is_descriptor_below(descriptor);
}

/* Counts a call; true: it is to fail, and errno is set. */
static bool fails(bool below) {
    const char *order = getenv("SHERD_TEST_IO"), *rank = getenv("RANK");
    char what[16] = "", victim[16] = "";
    int number = 0;
    if (!below || !rank || !order || sscanf(order, "%15[^:]:%d:%15[^:]", what, &number, victim) != 3 ||
        strcmp(victim, rank) != 0)
        return false;
    int call = atomic_fetch_add(&calls, 1) + 1;
    if (call < number || (call > number && !strchr(what, '+'))) return false;
    if (strcmp(what, "kill") == 0) raise(SIGKILL);
    errno = atoi(what);
    return true;
}

static bool is_poor(bool below) {
    const char *order = getenv("SHERD_TEST_IO");
    return below && order && getenv("RANK") && strncmp(order, "poor:", 5) == 0;
}

/* How many of `count` bytes a poor file system takes; 0: it is interrupted. */
static size_t portion(bool below, size_t count) {
    if (!is_poor(below)) return count;
    int call = atomic_fetch_add(&calls, 1);
    return call % 5 == 4 ? 0 : count > 7777 ? 7777 : count;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define TAKES_DESCRIPTOR(result, name, declared, passed)                                                               \
    result name declared { return fails(is_descriptor_below(descriptor)) ? (result)-1 : NEXT(name) passed; }
#define TAKES_PATH(name, declared, passed)                                                                             \
    int name declared { return fails(is_below(path)) ? -1 : NEXT(name) passed; }
#define TAKES_PATH_AT(name, declared, passed)                                                                          \
    int name declared { return fails(is_below_at(descriptor, path)) ? -1 : NEXT(name) passed; }

TAKES_DESCRIPTOR(ssize_t, write, (int descriptor, const void *bytes, size_t count), (descriptor, bytes, count))
TAKES_DESCRIPTOR(int, fsync, (int descriptor), (descriptor))
TAKES_DESCRIPTOR(int, fdatasync, (int descriptor), (descriptor))
TAKES_DESCRIPTOR(int, ftruncate, (int descriptor, off_t bytes), (descriptor, bytes))
TAKES_DESCRIPTOR(int, ftruncate64, (int descriptor, off64_t bytes), (descriptor, bytes))
TAKES_PATH(mkdir, (const char *path, mode_t mode), (path, mode))
TAKES_PATH(rmdir, (const char *path), (path))
TAKES_PATH(unlink, (const char *path), (path))
TAKES_PATH(rename, (const char *path, const char *to), (path, to))
TAKES_PATH_AT(mkdirat, (int descriptor, const char *path, mode_t mode), (descriptor, path, mode))
TAKES_PATH_AT(unlinkat, (int descriptor, const char *path, int flags), (descriptor, path, flags))
TAKES_PATH_AT(renameat, (int descriptor, const char *path, int to_descriptor, const char *to),
              (descriptor, path, to_descriptor, to))

int renameat2(int descriptor, const char *path, int to_descriptor, const char *to, unsigned flags) {
    bool below = is_below_at(descriptor, path);
    if (flags && is_poor(below)) return errno = EINVAL, -1;
    return fails(below) ? -1 : NEXT(renameat2)(descriptor, path, to_descriptor, to, flags);
}

static bool is_bad(bool below, int descriptor) {
    char link[64], path[PATH_MAX] = "";
    const char *order = getenv("SHERD_TEST_IO"), *rank = getenv("RANK");
    if (!below || !order || !rank || strncmp(order, "bad:0:", 6) || strncmp(order + 6, rank, strlen(rank)))
        return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    return readlink(link, path, sizeof path - 1) > 0 && strstr(path, "/rank-");
}

#define MOVES(name, bytes_type, offset_type, writes)                                                                   \
    ssize_t name(int descriptor, bytes_type bytes, size_t count, offset_type at) {                                     \
        bool below = is_descriptor_below(descriptor);                                                                  \
        if (writes && fails(below)) return -1;                                                                         \
        if (!writes && is_bad(below, descriptor)) return errno = EIO, -1;                                              \
        size_t some = portion(below, count);                                                                           \
        if (some > 0 || count == 0) return NEXT(name)(descriptor, bytes, some, at);                                    \
        errno = EINTR;                                                                                                 \
        return -1;                                                                                                     \
    }
MOVES(pwrite, const void *, off_t, true)
MOVES(pwrite64, const void *, off64_t, true)
MOVES(pread, void *, off_t, false)
MOVES(pread64, void *, off64_t, false)

int flock(int descriptor, int operation) {
    char link[64], path[PATH_MAX] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    if (readlink(link, path, sizeof path - 1) < 0 || !is_poor(is_below(path)) || strstr(path, ".sherd-lock"))
        return NEXT(flock)(descriptor, operation);
    errno = EOPNOTSUPP;
    return -1;
}

static mode_t mode_of(int flags, va_list list) { return flags & O_CREAT ? (mode_t)va_arg(list, int) : 0; }

#define OPENS(name, flags, declared, is_touched, passed)                                                               \
    int name declared {                                                                                                \
        va_list list;                                                                                                  \
        va_start(list, flags);                                                                                         \
        mode_t mode = mode_of(flags, list);                                                                            \
        va_end(list);                                                                                                  \
        if ((flags & O_DIRECT) && is_poor(is_touched)) return errno = EINVAL, -1;                                      \
        return (flags & O_CREAT) && fails(is_touched) ? -1 : NEXT(name) passed;                                        \
    }
OPENS(open, flags, (const char *path, int flags, ...), is_below(path), (path, flags, mode))
OPENS(open64, flags, (const char *path, int flags, ...), is_below(path), (path, flags, mode))
OPENS(openat, flags, (int descriptor, const char *path, int flags, ...), is_below_at(descriptor, path),
      (descriptor, path, flags, mode))
OPENS(openat64, flags, (int descriptor, const char *path, int flags, ...), is_below_at(descriptor, path),
      (descriptor, path, flags, mode))
