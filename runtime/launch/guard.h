/* A small process that outlives the launcher by an instant, to kill the process groups of its ranks.
 *
 * It holds one end of a channel whose other end only the launcher has: when the launcher is gone, however it went,
 * the channel ends. Ranks themselves are killed by the kernel; this is for what they have started. */
#ifndef SHD_LAUNCH_GUARD_H
#define SHD_LAUNCH_GUARD_H

#include <sherd/status.h>
#include <sys/types.h>

typedef struct shd_guard {
    pid_t pid;
    int channel; /* -1: no guard */
} shd_guard;

/* Starts it. Fails: IO. */
sherd_status shd_guard_start(shd_guard *guard);
/* From now on the group of `leader` is guarded. Also between fork and exec: both calls are async-signal-safe. */
void shd_guard_add(const shd_guard *guard, pid_t leader);
/* The group is gone; its number may be anyone's. */
void shd_guard_remove(const shd_guard *guard, pid_t leader);
/* Ends the guard, which kills the groups it still knows; returns when it is reaped. */
void shd_guard_stop(shd_guard *guard);

#endif
