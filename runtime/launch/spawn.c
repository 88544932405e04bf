#include "runtime/launch/spawn.h"

#include "runtime/base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* In the child, between fork and exec: only async-signal-safe calls. Ends in the program, or returns what went
 * wrong. */
static int become_rank(const shd_spawn *spawn, int32_t local_rank, const shd_guard *guard) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* The launcher may have died before prctl: then nobody sends the signal. */
    if (getppid() != spawn->parent) _exit(128 + SIGKILL);
    shd_enclosure_enter(&guard->enclosure);
    /* Not left to the launcher, which may be killed before it comes to it, when the program has started others already. */
    shd_guard_add(guard, getpid());
    /* A group in the background that reads a terminal would be stopped; one input cannot be shared by several. */
    if (spawn->variables->place.first_rank + local_rank > 0 || isatty(0)) {
        int nothing = open("/dev/null", O_RDONLY);
        if (nothing > 0) {
            dup2(nothing, 0);
            close(nothing);
        }
    }
    for (int i = 0; i < 2; i++)
        if (spawn->outputs[i] >= 0) dup2(spawn->outputs[i], STDOUT_FILENO + i);
    if (spawn->affinity) shd_affinity_bind(spawn->affinity, local_rank);
    shd_descriptors_restore(spawn->descriptors);
    sigprocmask(SIG_SETMASK, &spawn->mask, NULL);
    execvpe(spawn->program, spawn->argv, spawn->variables->environment);
    return errno;
}

sherd_status shd_spawn_rank(const shd_spawn *spawn, int32_t local_rank, const shd_guard *guard, pid_t *pid,
                            int *exit_code) {
    int32_t rank = spawn->variables->place.first_rank + local_rank;
    SHD_TRY(shd_variables_take_rank(spawn->variables, local_rank));
    /* exec closes the writing end; what can be read instead is why it failed. */
    int ends[2], cause = 0;
    if (pipe2(ends, O_CLOEXEC) < 0) return shd_fail(SHERD_IO, "cannot start rank %d: %s", rank, strerror(errno));
    pid_t child = fork();
    if (child < 0) {
        cause = errno;
        close(ends[0]);
        close(ends[1]);
        return shd_fail(SHERD_IO, "cannot start rank %d: %s", rank, strerror(cause));
    }
    if (child == 0) {
        cause = become_rank(spawn, local_rank, guard);
        shd_guard_remove(guard, getpid());
        ssize_t written = write(ends[1], &cause, sizeof cause);
        _exit(written == (ssize_t)sizeof cause ? 127 : 126);
    }
    setpgid(child, child); /* both do it: whoever comes first, the group exists when it is needed */
    close(ends[1]);
    ssize_t got;
    do got = read(ends[0], &cause, sizeof cause);
    while (got < 0 && errno == EINTR);
    close(ends[0]);
    if (got == (ssize_t)sizeof cause) {
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {}
        *exit_code = cause == ENOENT ? 127 : 126;
        return shd_fail(SHERD_UNSUPPORTED, "cannot execute %s: %s", spawn->program, strerror(cause));
    }
    *pid = child;
    return SHERD_OK;
}
