/* What control groups leave to this process: of both versions of them, and of all groups on the way up, of which the
 * tightest counts. A container sees its own limit as that of the topmost group.
 *
 * `root` goes before the paths of /proc and /sys ("" for this machine). Threads: any. */
#ifndef SHD_BASE_CGROUP_H
#define SHD_BASE_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Cores' worth of processor time; 0: there is no limit. */
double shd_cgroup_cores(const char *root);
/* Bytes of memory, and what of them is left: all but what is held and the kernel would not give up for another's need;
 * INT64_MAX: there is no limit. */
int64_t shd_cgroup_memory(const char *root);
int64_t shd_cgroup_memory_left(const char *root);

/* The folder of the group of version 2 that this process is in, wherever its hierarchy is mounted. False: there is none
 * that this process sees, or its path is longer than `bytes`. */
bool shd_cgroup_find(const char *root, char *folder, size_t bytes);

#endif
