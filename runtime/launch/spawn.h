/* One rank as a process: its environment, its group, its tie to the launcher's life. */
#ifndef SHD_LAUNCH_SPAWN_H
#define SHD_LAUNCH_SPAWN_H

#include "runtime/launch/guard.h"

#include <sherd/status.h>
#include <signal.h>
#include <stdint.h>
#include <sys/types.h>

/* What all ranks of a job have in common. */
typedef struct shd_spawn {
    char *const *argv;
    const char *program;
    int32_t rank_count;
    char **environment; /* shd_spawn_init builds it; the first entries are rewritten for each rank */
    sigset_t mask;      /* the signal mask the ranks start with */
    pid_t parent;
} shd_spawn;

/* Fills *spawn; argv and program are borrowed. Picks a free port and a random run id. Fails: MEMORY, IO. */
sherd_status shd_spawn_init(shd_spawn *spawn, const char *program, char *const *argv, int32_t rank_count,
                            const sigset_t *mask);
/* Accepts a zeroed value. */
void shd_spawn_fini(shd_spawn *spawn);

/* Starts rank `rank`: when it returns, the program runs, leads its own process group, which `guard` knew before the
 * program did anything, and dies with the calling thread. Fails: IO (no process), UNSUPPORTED (the program cannot be executed; *exit_code is 127 when it was not found, else
 * 126). */
sherd_status shd_spawn_rank(shd_spawn *spawn, int32_t rank, const shd_guard *guard, pid_t *pid, int *exit_code);

#endif
