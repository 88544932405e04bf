/* Which ranks have ended, in the order in which they did: several may end before the launcher looks.
 *
 * The kernel queues a descriptor of each process when it ends. Where it has no such descriptors (before Linux 5.3) the order
 * is that of the ranks. */
#ifndef SHD_LAUNCH_EXITS_H
#define SHD_LAUNCH_EXITS_H

#include <sherd/status.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct shd_exits {
    int queue; /* an epoll; -1: there is none */
    int32_t rank_count, unqueued;
    int *processes; /* one a local rank; -1: none */
} shd_exits;

/* Fails: MEMORY. */
sherd_status shd_exits_init(shd_exits *exits, int32_t rank_count);
/* Accepts a zeroed value. */
void shd_exits_fini(shd_exits *exits);
/* A rank that was started; before it is reaped. */
void shd_exits_add(shd_exits *exits, int32_t local_rank, pid_t pid);
/* The next local rank that has ended, each once; -1: no more now. Ranks that could not be queued are not among them while
 * exits->unqueued > 0: ask for them one by one. */
int32_t shd_exits_next(shd_exits *exits);

#endif
