/* The numbers that are entries of a folder of /proc: processes in /proc, descriptors in /proc/self/fd. For the guard, a
 * fork of a process that may have threads, in which the C library's readdir may not be called. */
#ifndef SHD_LAUNCH_ENTRIES_H
#define SHD_LAUNCH_ENTRIES_H

#include <stdbool.h>

/* Calls `take` for each of them; returns whether that has returned true for any. What comes or goes meanwhile may be
 * missed. `folder` is a descriptor, just opened. Only async-signal-safe calls. */
bool shd_entries_each(int folder, bool (*take)(int number, const void *user), const void *user);

#endif
