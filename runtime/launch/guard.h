/* A small process that outlives the launcher by an instant, to kill what its ranks have started.
 *
 * It holds one end of a channel whose other end only the launcher has: when the launcher is gone, however it went,
 * the channel ends. Ranks themselves are killed by the kernel; the guard kills their process groups, and then whatever
 * is in the attempt's control group (enclosure.h), or carries the launch's mark in the environment it was started with, in
 * whatever session it is. Where there can be no such group, a process of another user, or one started with an environment
 * of its own making, escapes. */
#ifndef SHD_LAUNCH_GUARD_H
#define SHD_LAUNCH_GUARD_H

#include "runtime/launch/enclosure.h"

#include <sherd/status.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { SHD_GUARD_MARK_BYTES = 64 };

typedef struct shd_guard {
    pid_t pid;
    int channel;                     /* -1: no guard */
    char mark[SHD_GUARD_MARK_BYTES]; /* for the environment of ranks: "SHERD_LAUNCH_ID=…" */
    shd_enclosure enclosure;         /* for ranks to enter, before they are added */
    /* The caller's, before the start: what else is done in the guard when the launcher has died, with only async-signal-safe
     * calls. NULL: nothing. */
    void (*died)(const void *user);
    const void *user;
} shd_guard;

/* Starts it, with a new mark and control group. Fails: IO. */
sherd_status shd_guard_start(shd_guard *guard);
/* Where somebody has killed it (the kernel, for want of memory): starts another, with the same mark, that knows
 * `leaders`, of which those that are 0 are none. Returns whether it had ended. To be asked after each SIGCHLD. */
bool shd_guard_renew(shd_guard *guard, const pid_t *leaders, int32_t count);
/* The value of the variable SHD_MARKED_VARIABLE for ranks. */
const char *shd_guard_mark_value(const shd_guard *guard);
/* From now on the group of `leader` is guarded. Also between fork and exec: both calls are async-signal-safe. Neither
 * waits long for a guard that somebody has stopped, which is continued, or else killed. */
void shd_guard_add(const shd_guard *guard, pid_t leader);
/* The group is gone; its number may be anyone's. */
void shd_guard_remove(const shd_guard *guard, pid_t leader);
/* Ends the control group, with all that is still in it, and then the guard, which kills the process groups it still
 * knows, and leaves the rest to the launcher; returns when it is reaped. One that does not end is killed. */
void shd_guard_stop(shd_guard *guard);

#endif
