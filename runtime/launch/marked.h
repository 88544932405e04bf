/* Processes that carry a mark in the environment with which they were started, which their children inherit. */
#ifndef SHD_LAUNCH_MARKED_H
#define SHD_LAUNCH_MARKED_H

/* The variable that marks ranks, and what they start. */
#define SHD_MARKED_VARIABLE "SHERD_LAUNCH_ID"

/* Kills all processes of this user with the entry `mark`, "NAME=value", but for this one, and those that come while it
 * looks; gives up after some seconds on those that cannot be killed. Only async-signal-safe calls. */
void shd_marked_kill(const char *mark);

#endif
