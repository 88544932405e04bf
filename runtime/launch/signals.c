#include "runtime/launch/signals.h"

#include "runtime/base/clock.h"

#include <pthread.h>
#include <stddef.h>
#include <time.h>

/* First those that ask for an end; last those that are never ignored. */
static const int all[SHD_SIGNALS_WATCHED] = {SIGTERM, SIGINT,  SIGHUP,  SIGQUIT, SIGUSR1,
                                             SIGUSR2, SIGTSTP, SIGCONT, SIGCHLD};
enum { STOP_COUNT = 4, IGNORABLE_COUNT = 7 };

static pthread_t watcher; /* a handler has nothing else to know it by */

static void hand_on(int signal) { pthread_kill(watcher, signal); }

void shd_signals_watch(shd_signals *signals) {
    struct sigaction action = {.sa_handler = hand_on, .sa_flags = SA_RESTART};
    sigfillset(&action.sa_mask);
    sigemptyset(&signals->watched);
    watcher = pthread_self();
    for (int i = 0; i < SHD_SIGNALS_WATCHED; i++) {
        sigaction(all[i], NULL, &signals->old_actions[i]);
        if (i >= IGNORABLE_COUNT || signals->old_actions[i].sa_handler != SIG_IGN) sigaddset(&signals->watched, all[i]);
    }
    pthread_sigmask(SIG_BLOCK, &signals->watched, &signals->old_mask);
    for (int i = 0; i < SHD_SIGNALS_WATCHED; i++)
        if (sigismember(&signals->watched, all[i])) sigaction(all[i], &action, NULL);
}

void shd_signals_unwatch(shd_signals *signals) {
    /* A SIGCHLD of ours is not news for the caller. */
    struct timespec now = {0};
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigtimedwait(&child, NULL, &now);
    for (int i = 0; i < SHD_SIGNALS_WATCHED; i++)
        if (sigismember(&signals->watched, all[i])) sigaction(all[i], &signals->old_actions[i], NULL);
    pthread_sigmask(SIG_SETMASK, &signals->old_mask, NULL);
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
    const struct sigaction by_default = {.sa_handler = SIG_DFL};
    struct sigaction before;
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    sigaction(SIGTSTP, &by_default, &before);
    raise(SIGTSTP);
    pthread_sigmask(SIG_UNBLOCK, &stop, NULL);
    pthread_sigmask(SIG_BLOCK, &stop, NULL);
    sigaction(SIGTSTP, &before, NULL);
}

bool shd_signals_stops(int signal) {
    for (int i = 0; i < STOP_COUNT; i++)
        if (signal == all[i]) return true;
    return false;
}

bool shd_signals_stop_waits(void) {
    sigset_t waiting;
    sigpending(&waiting);
    for (int i = 0; i < STOP_COUNT; i++)
        if (sigismember(&waiting, all[i]) == 1) return true;
    return false;
}
