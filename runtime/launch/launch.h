/* Starts the ranks of a job on this host, watches them, and ends them all when one fails.
 *
 * Each rank is a process in a group of its own, with torchrun's variables in its environment. Nothing of the job
 * survives the launcher: the kernel kills the ranks when it dies, and a guard process kills what the ranks have
 * started. */
#ifndef SHD_LAUNCH_LAUNCH_H
#define SHD_LAUNCH_LAUNCH_H

#include "runtime/launch/nodes.h"

#include <sherd/status.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { SHD_LAUNCH_MAX_RANKS = 4096 };

typedef struct shd_launch_report shd_launch_report;
struct shd_affinity; /* affinity.h */
struct shd_output;   /* output.h */

typedef struct shd_launch {
    char *const *argv;    /* the program, searched for in PATH, and its arguments; ends with NULL */
    const char *program;  /* executed instead of argv[0] when not NULL (argv[0] stays the name it sees) */
    int32_t rank_count;   /* 1 … SHD_LAUNCH_MAX_RANKS */
    double grace_s;       /* from TERM to KILL, when a rank has failed */
    double stop_grace_s;  /* from a stop, passed on, to KILL, also when a rank fails meanwhile */
    int peer_failed_code; /* an exit code by which ranks say "another rank failed, not I"; 0: there is none */
    double repeat_s;      /* a second signal to stop that comes within this time is the first one, come twice */
    /* Whether ranks that were told to stop may not be killed yet, being at something that must not be cut off. Asked when a
     * second signal to stop has come (`signal`; never of QUIT, which kills unless it only repeats itself), and from
     * stop_grace_s on once a second (0). NULL: they may. */
    bool (*holds)(void *user, int signal);
    bool early_exit_fails;  /* a rank that ends with 0 fails when others then say that they lost one */
    int32_t max_restarts;   /* attempts after the first, each when one has failed */
    double restart_delay_s; /* before the second attempt; see backoff.h */
    /* Before the ranks of each attempt are started. NULL: nothing to do. A failure ends the job. */
    sherd_status (*prepare)(void *user, int32_t attempt);
    /* Whether an attempt that failed is followed by another, after delay_s; asked when there may be one. NULL: it is. */
    bool (*restarts)(void *user, shd_launch_report *report, double delay_s);
    void *user;
    int one_rank_signal; /* of what is passed on, what the first rank here alone gets, and tells the others; 0: nothing is */
    const char *role;           /* ROLE_NAME; NULL: "default" */
    const char *run_id;         /* NULL: a random one */
    const char *master_address; /* NULL: 127.0.0.1 */
    int master_port; /* 0: a free one, which nobody else is given meanwhile. Of several nodes that of node 0 counts */
    /* Several nodes, each with a launcher of its own; NULL: one. They say where rank 0 is, so master_address is not looked
     * at; local_count and max_restarts in it are this launch's. */
    const shd_nodes_config *nodes;
    const struct shd_affinity *affinity; /* where ranks run, and their threads; NULL: where this process may */
    /* What becomes of the output of ranks; knows after each attempt how they ended. NULL: ranks write where this process
     * does. */
    struct shd_output *output;
} shd_launch;
#define SHD_LAUNCH_INIT                                                                                                \
    { .rank_count = 1, .grace_s = 3, .stop_grace_s = 30, .restart_delay_s = 1 }

/* How the job ended: its last attempt. A rank's failure is an exit code other than 0, or a signal. */
struct shd_launch_report {
    int32_t attempt;     /* 0: the first */
    int32_t world_size;  /* ranks on all hosts */
    int32_t failed_rank; /* the first that failed, in time; -1: none did */
    pid_t failed_pid;
    int exit_code;       /* its exit code; 0 when a signal ended it */
    int signal;          /* the signal that ended it, or 0 */
    bool blames_peer;    /* it ended with peer_failed_code, and no other rank failed of itself */
    bool early_exit;     /* it ended with 0 while others ran, which then lost it */
    int stop_signal;     /* the first TERM, INT, HUP or QUIT the launcher was sent, or 0 */
    bool stopped;        /* ranks ended because of stop_signal: by it, with 128 + it, or killed at the second one;
                          * or it came while there were none, before an attempt or between two */
    int32_t terminated;  /* ranks that were sent TERM because of the failure */
    int32_t killed;      /* ranks that had to be killed */
    bool overdue;        /* they were: stop_grace_s after the stop */
    int32_t killed_rank; /* the first of them; -1: there is none */
    pid_t killed_pid;
    double failure_ms; /* from the failure until all was over */
    int32_t lost_node; /* no rank failed, but all have lost this node, of whose launcher nothing is heard; -1: none */
    int32_t node;      /* that of failed_rank or lost_node; -1: there is one node, or none failed */
    char host[SHD_MESSAGE_WORD_BYTES]; /* of that node */
    char broken[256];                  /* lost_node is 0: how that was found out */
};

/* Runs the job to its end: once, and again after failures, max_restarts times at most. Returns when every rank, and all
 * they have started, is gone.
 *
 * Meanwhile TERM, INT, HUP, QUIT, USR1 and USR2 sent to this process are passed on to the ranks, all but one_rank_signal to all; the first of the
 * first four also starts stop_grace_s, the second kills them, unless it is a repetition, or the first one here after
 * another node's stop, or launch->holds. TSTP stops the ranks and this process together, CONT lets
 * all go on; time spent stopped counts for no grace. Standard input goes to rank 0 alone, and not from a terminal. The process becomes a "child
 * subreaper" for the time. Variables: variables.h. Fails: ARGUMENT, UNSUPPORTED (the program cannot be executed: exit_code is 127 or 126 as in a shell), IO (no process could be
 * started); *report is set in every case. A failing rank is not a failure of this call. Threads: one launch a process
 * at a time, from a thread that lives until it returns. */
sherd_status shd_launch_run(const shd_launch *launch, shd_launch_report *report);

#endif
