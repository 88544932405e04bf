/* How a rank of this host stands, in the eyes of the kernel and of its flight recorder; and both in words, for verdicts. */
#ifndef SHD_COMM_STANDING_H
#define SHD_COMM_STANDING_H

#include "runtime/comm/recorder.h"

typedef enum shd_life {
    SHD_LIFE_UNKNOWN, /* /proc does not say */
    SHD_LIFE_GONE,    /* no such process, or it waits to be reaped */
    SHD_LIFE_STOPPED, /* by a signal or a debugger */
    SHD_LIFE_RUNS,    /* on a core, or waits for one */
    SHD_LIFE_SLEEPS,  /* in a system call */
    SHD_LIFE_DISK     /* the same, and cannot be disturbed: a disk or a file server does not answer */
} shd_life;

typedef struct shd_standing {
    shd_life life;
    char state;     /* as in /proc/PID/stat; 0: unknown */
    char wchan[40]; /* where in the kernel it sleeps; "": not known */
    int64_t cpu_ms; /* used so far by all its threads */
} shd_standing;

/* What the kernel says of thread `tid` of process `pid`, which began at `born` (0: whenever). */
void shd_standing_look(int32_t pid, int32_t tid, int64_t born, shd_standing *out);

/* When a process began, in the kernel's ticks since the start of the machine; 0: it is not there. */
int64_t shd_standing_born(int32_t pid);

/* "runs", "is stopped"…; and in one word, for files: "runs", "stopped". */
const char *shd_life_text(shd_life life);
const char *shd_life_word(shd_life life);

/* Where a rank is, by its recorder: "in BACKWARD h.2 of step 8", "waiting in FORWARD h.2 of step 8 for GATHER h.2",
 * "reading data for step 3"; `timed`: with ", since 10.3 s". Steps as users count, from 1. "" when the recorder knows
 * nothing. */
void shd_standing_print_where(const shd_recorder *recorder, int32_t rank, bool timed, char *out, size_t bytes);

/* Both, of a rank that others miss: "pid 4711 is stopped (by SIGSTOP, Ctrl-Z or a debugger), in BACKWARD h.2 …"; with
 * whether it has used the processor, which takes a look of `watch_ms`. "" when the recorder knows nothing. */
void shd_standing_print(const shd_recorder *recorder, int32_t rank, double watch_ms, char *out, size_t bytes);

#endif
