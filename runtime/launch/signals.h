/* The signals that a launcher waits for instead of being interrupted: its children's ends, and what it passes on. */
#ifndef SHD_LAUNCH_SIGNALS_H
#define SHD_LAUNCH_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

enum { SHD_SIGNALS_WATCHED = 9 };

typedef struct shd_signals {
    sigset_t watched;
    sigset_t old_mask; /* of the caller: what ranks start with */
    struct sigaction old_actions[SHD_SIGNALS_WATCHED];
} shd_signals;

/* From now on SIGCHLD, CONT, TERM, INT, HUP, QUIT, USR1, USR2 and TSTP wait in the queue until this thread takes them. Threads
 * that were there before, as libraries start them, do not block signals: one that comes to them is handed on. What the
 * process was started to ignore (nohup) stays ignored. Threads: one that watches a process at a time. */
void shd_signals_watch(shd_signals *signals);
/* All is as it was. */
void shd_signals_unwatch(shd_signals *signals);

/* The next signal; 0 when the clock has come to until_ms (0: there is no such time). */
int shd_signals_wait(const shd_signals *signals, double until_ms);
/* What TSTP asks for: stops this process until somebody continues it. */
void shd_signals_suspend(void);
/* Whether it asks for an end: TERM, INT, HUP, QUIT. */
bool shd_signals_stops(int signal);
/* Whether one that does waits to be taken. Threads: the watching one's. */
bool shd_signals_stop_waits(void);

#endif
