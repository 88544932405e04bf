/* One rank as a process: its group, its tie to the launcher's life. */
#ifndef SHD_LAUNCH_SPAWN_H
#define SHD_LAUNCH_SPAWN_H

#include "runtime/launch/affinity.h"
#include "runtime/launch/descriptors.h"
#include "runtime/launch/guard.h"
#include "runtime/launch/variables.h"

#include <sherd/status.h>
#include <signal.h>
#include <stdint.h>
#include <sys/types.h>

/* What all ranks of this host have in common. Everything is borrowed. */
typedef struct shd_spawn {
    char *const *argv;
    const char *program; /* executed; argv[0] is only the name it sees */
    shd_variables *variables;
    sigset_t mask; /* the signal mask the ranks start with */
    const shd_descriptors *descriptors;
    pid_t parent;                 /* this process */
    int outputs[2];               /* what becomes stdout and stderr of the next rank; -1: this process's own */
    const shd_affinity *affinity; /* NULL: ranks run where this process may */
} shd_spawn;

/* Starts the rank `local_rank` of this host: when it returns, the program runs, leads its own process group, which
 * `guard` knew before the program did anything, and dies with the calling thread. Fails: MEMORY, IO (no process),
 * UNSUPPORTED (the program cannot be executed; *exit_code is 127 when it was not found, else 126). */
sherd_status shd_spawn_rank(const shd_spawn *spawn, int32_t local_rank, const shd_guard *guard, pid_t *pid,
                            int *exit_code);

#endif
