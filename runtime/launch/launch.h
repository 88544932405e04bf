/* Starts the ranks of a job on this host, watches them, and ends them all when one fails.
 *
 * Each rank is a process in a group of its own, with torchrun's variables in its environment. Nothing of the job
 * survives the launcher: the kernel kills the ranks when it dies, and a guard process kills what the ranks have
 * started. */
#ifndef SHD_LAUNCH_LAUNCH_H
#define SHD_LAUNCH_LAUNCH_H

#include <sherd/status.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { SHD_LAUNCH_MAX_RANKS = 4096 };

typedef struct shd_launch {
    char *const *argv;    /* the program, searched for in PATH, and its arguments; ends with NULL */
    const char *program;  /* executed instead of argv[0] when not NULL (argv[0] stays the name it sees) */
    int32_t rank_count;   /* 1 … SHD_LAUNCH_MAX_RANKS */
    double grace_s;       /* from TERM to KILL, when a rank has failed */
    double stop_grace_s;  /* the same, when the launcher was told to stop and has passed it on */
    int peer_failed_code; /* an exit code by which ranks say "another rank failed, not I"; 0: there is none */
    double repeat_s;      /* a second signal to stop that comes within this time is the first one, come twice */
    /* Whether ranks that were told to stop may not be killed yet, being at something that must not be cut off. Asked when a
     * second signal to stop has come (`signal`; never of QUIT, which always kills), and from stop_grace_s on once a second
     * (0). NULL: they may. */
    bool (*holds)(void *user, int signal);
    void *user;
    int one_rank_signal; /* of what is passed on, what rank 0 alone gets, and tells the others; 0: nothing is */
} shd_launch;
#define SHD_LAUNCH_INIT                                                                                                \
    { .rank_count = 1, .grace_s = 3, .stop_grace_s = 30 }

/* How the job ended. A rank's failure is an exit code other than 0, or a signal. */
typedef struct shd_launch_report {
    int32_t failed_rank; /* the first that failed, in time; -1: none did */
    pid_t failed_pid;
    int exit_code;       /* its exit code; 0 when a signal ended it */
    int signal;          /* the signal that ended it, or 0 */
    bool blames_peer;    /* it ended with peer_failed_code, and no other rank failed of itself */
    int stop_signal;     /* the first TERM, INT, HUP or QUIT the launcher was sent, or 0 */
    bool stopped;        /* ranks ended because of stop_signal: by it, with 128 + it, or killed at the second one */
    int32_t terminated;  /* ranks that were sent TERM because of the failure */
    int32_t killed;      /* ranks that had to be killed */
    bool overdue;        /* they were: stop_grace_s after the stop */
    int32_t killed_rank; /* the first of them; -1: there is none */
    pid_t killed_pid;
    double failure_ms; /* from the failure until all was over */
} shd_launch_report;

/* Runs the job to its end. Returns when every rank, and all they have started in their process groups, is gone.
 *
 * Meanwhile TERM, INT, HUP, QUIT, USR1 and USR2 sent to this process are passed on to the ranks, all but one_rank_signal to all; the first of the
 * first four also starts stop_grace_s, the second kills them, unless it is a repetition or launch->holds. TSTP stops the ranks and this process together, CONT lets
 * all go on; time spent stopped counts for no grace. Standard input goes to rank 0 alone, and not from a terminal. The process becomes a "child
 * subreaper" for the time. Variables: RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, ROLE_RANK,
 * ROLE_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RUN_ID, TORCHELASTIC_RESTART_COUNT,
 * TORCHELASTIC_MAX_RESTARTS, and OMP_NUM_THREADS=1 where it is not set and there are several ranks. Fails: ARGUMENT,
 * UNSUPPORTED (the program cannot be executed: exit_code is 127 or 126 as in a shell), IO (no process could be
 * started); *report is set in every case. A failing rank is not a failure of this call. Threads: one launch a process
 * at a time, from a thread that lives until it returns. */
sherd_status shd_launch_run(const shd_launch *launch, shd_launch_report *report);

#endif
