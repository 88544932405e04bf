/* The enclosure of an attempt: a control group of version 2 for all that its ranks start, for as long as it lasts.
 *
 * What is in it can neither leave by a session, a parent or an environment of its own nor hide: the kernel kills them all
 * at once. It lies in the group of the launcher, so that every limit of that holds for it, and has no controllers. It can
 * be had where that group belongs to this user (delegated, or root's); elsewhere every call does nothing, and nothing is
 * said. Launchers in ranks of launchers have theirs within those of the outer ones.
 *
 * Threads: any. All but shd_enclosure_choose make only async-signal-safe calls. */
#ifndef SHD_LAUNCH_ENCLOSURE_H
#define SHD_LAUNCH_ENCLOSURE_H

#include <limits.h>

typedef struct shd_enclosure {
    char folder[PATH_MAX]; /* "": there is none */
} shd_enclosure;

/* Where the group will be; `id` must be nobody else's, ever: whoever finds the folder kills what is in the group. Makes
 * nothing, so that one that is to end the group can know it before it exists. */
void shd_enclosure_choose(shd_enclosure *enclosure, const char *id);
/* Makes it; if that is impossible, there is none. */
void shd_enclosure_make(shd_enclosure *enclosure);
/* Puts this process, and all that it starts from then on, into the group. If that is impossible it stays where it is. */
void shd_enclosure_enter(const shd_enclosure *enclosure);
/* Kills all that is in the group and the groups within, and removes them; gives up after some seconds on what cannot be
 * killed. Nothing happens when there is no such group any more. */
void shd_enclosure_end(const shd_enclosure *enclosure);

#endif
