#include "runtime/launch/marked.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* Passes over /proc, and the pause between two while something that was killed is still going. */
enum { PASSES = 500, PAUSE_NS = 10000000, CHUNK_BYTES = 32768, NAME_BYTES = 32 };

/* As getdents64 gives it. */
typedef struct entry {
    uint64_t inode;
    int64_t offset;
    uint16_t bytes;
    uint8_t type;
    char name[];
} entry;

/* The number that `name` is, or 0. */
static pid_t read_number(const char *name) {
    int64_t number = 0;
    for (; *name >= '0' && *name <= '9' && number < INT32_MAX / 10; name++) number = 10 * number + (*name - '0');
    return *name ? 0 : (pid_t)number;
}

/* Whether one of the file's texts, each of which ends with a 0, is `mark`. */
static bool has_entry(int file, const char *mark) {
    char chunk[CHUNK_BYTES];
    size_t length = strlen(mark), matched = 0;
    bool at_start = true; /* of a text, of which `matched` bytes are as in the mark */
    ssize_t got;
    while ((got = read(file, chunk, sizeof chunk)) > 0)
        for (ssize_t i = 0; i < got; i++) {
            if (!chunk[i]) {
                if (at_start && matched == length) return true;
                at_start = true;
                matched = 0;
            } else if (at_start && matched < length && chunk[i] == mark[matched]) {
                matched++;
            } else {
                at_start = false;
            }
        }
    return false;
}

static bool is_marked(const char *number, const char *mark) {
    char path[sizeof "/proc//environ" + NAME_BYTES] = "/proc/";
    if (strlen(number) >= NAME_BYTES) return false;
    strcat(strcat(path, number), "/environ");
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    bool found = has_entry(file, mark);
    close(file);
    return found;
}

/* The descriptor keeps the number from meaning another process between the look and the kill. */
static bool kill_one(const char *number, const char *mark) {
    pid_t pid = read_number(number);
    if (!pid || pid == getpid()) return false;
    int handle = (int)syscall(SYS_pidfd_open, pid, 0);
    if (handle < 0) return false;
    bool marked = is_marked(number, mark);
    if (marked) syscall(SYS_pidfd_send_signal, handle, SIGKILL, NULL, 0);
    close(handle);
    return marked;
}

static bool kill_in(int proc, const char *mark) {
    _Alignas(entry) char list[CHUNK_BYTES];
    bool found = false;
    long got;
    while ((got = syscall(SYS_getdents64, proc, list, sizeof list)) > 0)
        for (long at = 0; at < got;) {
            const entry *one = (const entry *)(const void *)(list + at);
            if (kill_one(one->name, mark)) found = true;
            at += one->bytes;
        }
    return found;
}

void shd_marked_kill(const char *mark) {
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    bool found = true;
    for (int pass = 0; found && pass < PASSES; pass++) {
        int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (proc < 0) return;
        found = kill_in(proc, mark);
        close(proc);
        if (found) nanosleep(&pause, NULL);
    }
}
