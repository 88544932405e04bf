#include "runtime/launch/guard.h"

#include "runtime/base/status.h"
#include "runtime/launch/entries.h"
#include "runtime/launch/launch.h"
#include "runtime/launch/marked.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long a guard that was stopped may take to go on, and one that was told to end. */
enum { WAKE_MS = 200, PATIENCE_MS = 2000 };

/* Runs in the guard, a fork of a process that may have threads: only async-signal-safe calls. A message is a number: a
 * group to guard, or, negative, one to forget; 0: the launcher needs no guard any more. */
static void keep_watch(int messages, const shd_guard *guard) {
    pid_t leaders[SHD_LAUNCH_MAX_RANKS];
    int count = 0;
    pid_t number = -1;
    for (;;) {
        ssize_t got = recv(messages, &number, sizeof number, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got != (ssize_t)sizeof number) number = -1;
        if (got != (ssize_t)sizeof number || number == 0) break;
        if (number > 0 && count < SHD_LAUNCH_MAX_RANKS) leaders[count++] = number;
        for (int i = 0; number < 0 && i < count; i++)
            if (leaders[i] == -number) leaders[i] = leaders[--count];
    }
    for (int i = 0; i < count; i++) kill(-leaders[i], SIGKILL);
    if (number == 0) return;
    shd_enclosure_end(&guard->enclosure);
    shd_marked_kill(guard->mark);
    if (guard->died) guard->died(guard->user);
}

static bool close_one(int number, const void *folder) {
    if (number != 0 && number != *(const int *)folder) close(number);
    return false;
}

/* All but 0. */
static void close_others(void) {
    if (close_range(1, ~0U, 0) == 0) return;
    /* Before Linux 5.9. */
    int folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return;
    shd_entries_each(folder, close_one, &folder);
    close(folder);
}

static sherd_status start(shd_guard *guard) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return shd_fail(SHERD_IO, "no channel to the guard process: %s", strerror(errno));
    guard->pid = fork();
    if (guard->pid < 0) {
        int cause = errno;
        close(ends[0]);
        close(ends[1]);
        return shd_fail(SHERD_IO, "cannot start the guard process: %s", strerror(cause));
    }
    if (guard->pid == 0) {
        /* Away from the terminal, and from every descriptor whose other end waits for the launcher to close it. */
        setsid();
        prctl(PR_SET_NAME, "sherd-guard");
        close(ends[1]);
        dup2(ends[0], 0);
        close_others();
        keep_watch(0, guard);
        _exit(0);
    }
    close(ends[0]);
    guard->channel = ends[1];
    return SHERD_OK;
}

sherd_status shd_guard_start(shd_guard *guard) {
    unsigned char bytes[16];
    guard->channel = -1;
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return shd_fail(SHERD_IO, "no random bytes for the mark of ranks: %s", strerror(errno));
    int length = snprintf(guard->mark, sizeof guard->mark, "%s=", SHD_MARKED_VARIABLE);
    for (size_t i = 0; i < sizeof bytes; i++) length += snprintf(guard->mark + length, 3, "%02x", bytes[i]);
    /* Known to the guard before it exists, so that no death of the launcher leaves it. */
    shd_enclosure_choose(&guard->enclosure, shd_guard_mark_value(guard));
    SHD_TRY(start(guard));
    shd_enclosure_make(&guard->enclosure);
    return SHERD_OK;
}

/* The channel takes hundreds of messages: it is full only when the guard does not run. */
static void tell(const shd_guard *guard, pid_t number) {
    struct pollfd room = {.fd = guard->channel, .events = POLLOUT};
    if (guard->channel < 0) return;
    for (bool waited = false;; waited = true) {
        ssize_t sent;
        do sent = send(guard->channel, &number, sizeof number, MSG_NOSIGNAL | MSG_DONTWAIT);
        while (sent < 0 && errno == EINTR);
        if (sent >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) return;
        /* One that does not know which groups are whose is worse than none; the launcher starts another. */
        if (waited) kill(guard->pid, SIGKILL);
        if (waited) return;
        kill(guard->pid, SIGCONT);
        poll(&room, 1, WAKE_MS);
    }
}

const char *shd_guard_mark_value(const shd_guard *guard) { return strchr(guard->mark, '=') + 1; }

void shd_guard_add(const shd_guard *guard, pid_t leader) { tell(guard, leader); }
void shd_guard_remove(const shd_guard *guard, pid_t leader) { tell(guard, -leader); }

static void reap(shd_guard *guard) {
    close(guard->channel);
    guard->channel = -1;
    while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR) {}
}

bool shd_guard_renew(shd_guard *guard, const pid_t *leaders, int32_t count) {
    siginfo_t info = {0};
    if (guard->channel < 0 || waitid(P_PID, (id_t)guard->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || !info.si_pid)
        return false;
    reap(guard);
    if (start(guard) != SHERD_OK) return true;
    for (int32_t i = 0; i < count; i++)
        if (leaders[i]) shd_guard_add(guard, leaders[i]);
    return true;
}

void shd_guard_stop(shd_guard *guard) {
    shd_enclosure_end(&guard->enclosure);
    if (guard->channel < 0) return;
    struct pollfd end = {.fd = guard->channel};
    tell(guard, 0);
    kill(guard->pid, SIGCONT);
    if (poll(&end, 1, PATIENCE_MS) == 0) kill(guard->pid, SIGKILL);
    reap(guard);
}
