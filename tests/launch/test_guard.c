/* The launcher is a child of this process, which adopts what that leaves. */
#include "runtime/launch/guard.h"

#include "runtime/base/clock.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <sherd/status.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static bool is_old; /* the kernel */

/* Takes the place of the C library's. */
int close_range(unsigned int first, unsigned int last, int flags) {
    if (!is_old) return (int)syscall(SYS_close_range, first, last, flags);
    errno = ENOSYS;
    return -1;
}

typedef struct family {
    pid_t launcher, guard, leader;
} family;

/* A launcher that guards the group of one process, and then waits to be killed. `loses`: it loses its guard before. */
static family start(bool loses) {
    family made = {0};
    int told[2], held[2];
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    cr_assert(pipe(told) == 0 && pipe(held) == 0);
    made.launcher = fork();
    if (made.launcher == 0) {
        shd_guard guard = {.channel = -1};
        if (shd_guard_start(&guard) != SHERD_OK) _exit(1);
        made.leader = fork();
        if (made.leader == 0) {
            setpgid(0, 0);
            close(guard.channel); /* as an exec does */
            for (;;) pause();
        }
        setpgid(made.leader, made.leader);
        shd_guard_add(&guard, made.leader);
        if (shd_guard_renew(&guard, &made.leader, 1)) _exit(2);
        pid_t first = guard.pid;
        if (loses) kill(first, SIGKILL);
        while (loses && !shd_guard_renew(&guard, &made.leader, 1)) usleep(1000);
        made.guard = guard.pid;
        if (loses == (first == guard.pid) || write(told[1], &made, sizeof made) < 0) _exit(3);
        for (;;) pause();
    }
    pid_t launcher = made.launcher;
    cr_assert_eq(read(told[0], &made, sizeof made), (ssize_t)sizeof made);
    made.launcher = launcher;
    return made;
}

/* How many descriptors a process has; `only` gets the number of one. */
static int count_descriptors(pid_t pid, int *only) {
    char path[64];
    int count = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *list = opendir(path);
    cr_assert(list);
    for (struct dirent *entry; (entry = readdir(list));)
        if (entry->d_name[0] != '.') {
            *only = atoi(entry->d_name);
            count++;
        }
    closedir(list);
    return count;
}

/* How `pid` has ended, within 10 s; -1: it has not. */
static int await_end(pid_t pid) {
    int state;
    for (int i = 0; i < 2000; i++) {
        if (waitpid(pid, &state, WNOHANG) == pid) return state;
        usleep(5000);
    }
    return -1;
}

static void kill_launcher(const family *all) {
    kill(all->launcher, SIGKILL);
    waitpid(all->launcher, NULL, 0);
    int leader = await_end(all->leader), guard = await_end(all->guard);
    if (leader < 0) kill(all->leader, SIGKILL);
    if (guard < 0) kill(all->guard, SIGKILL);
    cr_assert(leader >= 0 && WIFSIGNALED(leader) && WTERMSIG(leader) == SIGKILL, "the group lives");
    cr_assert_eq(guard, 0, "the guard stays");
}

Test(guard, kills_groups_when_the_launcher_is_gone_and_holds_nothing_of_its, .timeout = 60) {
    for (int old = 0; old < 2; old++) {
        is_old = old;
        family all = start(false);
        int only = -1, count;
        /* It closes them in its own time. */
        for (int i = 0; i < 2000 && (count = count_descriptors(all.guard, &only)) > 1; i++) usleep(5000);
        kill_launcher(&all);
        cr_assert(count == 1 && only == 0, "%d descriptors", count);
    }
}

Test(guard, that_is_killed_is_replaced_by_one_that_knows_the_groups, .timeout = 60) {
    family all = start(true);
    kill_launcher(&all);
}

Test(guard, that_is_stopped_holds_nobody_up, .timeout = 60) {
    shd_guard guard = {.channel = -1};
    cr_assert_eq(shd_guard_start(&guard), SHERD_OK);
    kill(guard.pid, SIGSTOP);
    double start_ms = shd_clock_ms();
    for (pid_t group = 1 << 30; group < (1 << 30) + 3000; group++) {
        shd_guard_add(&guard, group);
        shd_guard_remove(&guard, group);
    }
    kill(guard.pid, SIGSTOP);
    shd_guard_stop(&guard);
    cr_assert_lt(shd_clock_ms() - start_ms, 5000);
}
