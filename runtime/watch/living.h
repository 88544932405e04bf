/* Dumps of a job that runs, taken from outside: its processes are neither asked nor stopped. */
#ifndef SHD_WATCH_LIVING_H
#define SHD_WATCH_LIVING_H

#include <sherd/status.h>
#include <stdint.h>

/* Writes the dumps of all ranks that have come, as SHD_DUMP_VISITOR, into the new folder `dir`. `pid`: a process of the job
 * that holds the flight recorder of its ranks open, as the launcher of `sherd train` does.
 * Fails: ARGUMENT (no such process, or it holds none; `dir` is there already; no rank has come yet), IO, MEMORY. */
sherd_status shd_living_dump(int64_t pid, const char *dir);

#endif
