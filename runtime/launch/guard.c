#include "runtime/launch/guard.h"

#include "runtime/base/status.h"
#include "runtime/launch/launch.h"
#include "runtime/launch/marked.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

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
    shd_marked_kill(guard->mark);
    if (guard->died) guard->died(guard->user);
}

sherd_status shd_guard_start(shd_guard *guard) {
    int ends[2];
    unsigned char bytes[16];
    guard->channel = -1;
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return shd_fail(SHERD_IO, "no random bytes for the mark of ranks: %s", strerror(errno));
    int length = snprintf(guard->mark, sizeof guard->mark, "%s=", SHD_MARKED_VARIABLE);
    for (size_t i = 0; i < sizeof bytes; i++) length += snprintf(guard->mark + length, 3, "%02x", bytes[i]);
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
        dup2(ends[0], 0);
        close_range(1, ~0U, 0);
        keep_watch(0, guard);
        _exit(0);
    }
    close(ends[0]);
    guard->channel = ends[1];
    return SHERD_OK;
}

static void tell(const shd_guard *guard, pid_t number) {
    if (guard->channel < 0) return;
    while (send(guard->channel, &number, sizeof number, MSG_NOSIGNAL) < 0 && errno == EINTR) {}
}

const char *shd_guard_mark_value(const shd_guard *guard) { return strchr(guard->mark, '=') + 1; }

void shd_guard_add(const shd_guard *guard, pid_t leader) { tell(guard, leader); }
void shd_guard_remove(const shd_guard *guard, pid_t leader) { tell(guard, -leader); }

void shd_guard_stop(shd_guard *guard) {
    if (guard->channel < 0) return;
    tell(guard, 0);
    close(guard->channel);
    guard->channel = -1;
    while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR) {}
}
