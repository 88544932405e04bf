#include "runtime/launch/marked.h"

#include "runtime/launch/entries.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* Passes over /proc, and the pause between two while something that was killed is still going. */
enum { PASSES = 500, PAUSE_NS = 10000000, CHUNK_BYTES = 32768, NUMBER_BYTES = 16 };

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

static bool is_marked(pid_t pid, const char *mark) {
    char path[sizeof "/proc//environ" + NUMBER_BYTES] = "/proc/", digits[NUMBER_BYTES],
                                        *at = digits + sizeof digits - 1;
    *at = 0;
    for (pid_t rest = pid; rest > 0; rest /= 10) *--at = (char)('0' + rest % 10);
    strcat(strcat(path, at), "/environ");
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    bool found = has_entry(file, mark);
    close(file);
    return found;
}

/* The descriptor keeps the number from meaning another process between the look and the kill. */
static bool kill_one(int pid, const void *mark) {
    if (pid == 0 || pid == getpid()) return false;
    int handle = (int)syscall(SYS_pidfd_open, pid, 0);
    if (handle < 0) return false;
    bool marked = is_marked(pid, mark);
    if (marked) syscall(SYS_pidfd_send_signal, handle, SIGKILL, NULL, 0);
    close(handle);
    return marked;
}

void shd_marked_kill(const char *mark) {
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    bool found = true;
    for (int pass = 0; found && pass < PASSES; pass++) {
        int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (proc < 0) return;
        found = shd_entries_each(proc, kill_one, mark);
        close(proc);
        if (found) nanosleep(&pause, NULL);
    }
}
