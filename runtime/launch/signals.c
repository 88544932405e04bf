#include "runtime/launch/signals.h"

#include "runtime/base/clock.h"

#include <stddef.h>
#include <time.h>

static const int passed_on[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP};
enum { PASSED_ON_COUNT = sizeof passed_on / sizeof *passed_on, STOP_COUNT = 4 };

void shd_signals_watch(shd_signals *signals) {
    sigemptyset(&signals->watched);
    sigaddset(&signals->watched, SIGCHLD);
    sigaddset(&signals->watched, SIGCONT);
    for (int i = 0; i < PASSED_ON_COUNT; i++) {
        struct sigaction action;
        sigaction(passed_on[i], NULL, &action);
        if (action.sa_handler != SIG_IGN) sigaddset(&signals->watched, passed_on[i]);
    }
    struct sigaction by_default = {.sa_handler = SIG_DFL};
    sigaction(SIGCHLD, &by_default, &signals->old_child_action);
    sigprocmask(SIG_BLOCK, &signals->watched, &signals->old_mask);
}

void shd_signals_unwatch(shd_signals *signals) {
    /* A SIGCHLD of ours is not news for the caller. */
    struct timespec now = {0};
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigtimedwait(&child, NULL, &now);
    sigaction(SIGCHLD, &signals->old_child_action, NULL);
    sigprocmask(SIG_SETMASK, &signals->old_mask, NULL);
}

int shd_signals_wait(const shd_signals *signals, double until_ms) {
    if (until_ms == 0) {
        int signal = sigwaitinfo(&signals->watched, NULL);
        return signal < 0 ? 0 : signal;
    }
    double left_ms = until_ms - shd_clock_ms();
    if (left_ms < 0) left_ms = 0;
    struct timespec wait = {.tv_sec = (time_t)(left_ms / 1e3)};
    wait.tv_nsec = (long)((left_ms - (double)wait.tv_sec * 1e3) * 1e6);
    int signal = sigtimedwait(&signals->watched, NULL, &wait);
    return signal < 0 ? 0 : signal;
}

void shd_signals_suspend(void) {
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &stop, NULL);
    sigprocmask(SIG_BLOCK, &stop, NULL);
}

bool shd_signals_stops(int signal) {
    for (int i = 0; i < STOP_COUNT; i++)
        if (signal == passed_on[i]) return true;
    return false;
}

bool shd_signals_stop_waits(void) {
    sigset_t waiting;
    sigpending(&waiting);
    for (int i = 0; i < STOP_COUNT; i++)
        if (sigismember(&waiting, passed_on[i]) == 1) return true;
    return false;
}
