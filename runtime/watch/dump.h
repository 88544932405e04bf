/* Dumps: what a rank's flight recorder and the kernel know of it, as a file, when the ranks of a job have come apart.
 *
 * Every rank writes its own, rank-%05d.json; the one that found the failure also writes those of ranks that cannot, being
 * stopped, dead or hung, from what it can read of them; and the launcher, in the end, those that are still missing. The
 * first dump of a rank stands: what it was doing then, not what it does when it is let go. docs/DEBUGGING.md tells the
 * fields. */
#ifndef SHD_WATCH_DUMP_H
#define SHD_WATCH_DUMP_H

#include "runtime/comm/recorder.h"

enum { SHD_DUMP_VERSION = 1, SHD_DUMP_LAUNCHER = -1, SHD_DUMP_VISITOR = -2 };

/* "LOG_DIR/dumps/attempt_K". */
void shd_dump_path(const char *log_dir, int32_t attempt, char *out, size_t bytes);

/* "DIR/rank-00002.json". */
void shd_dump_file(const char *dir, int32_t rank, char *out, size_t bytes);

/* Before a job starts: what an earlier run has left under LOG_DIR/dumps is moved aside, to dumps.1, dumps.2 …
 * Fails: IO. */
sherd_status shd_dump_settle(const char *log_dir);

/* Writes the dump of `rank` into `dir`, which is made, unless it is there already or the rank has never come. `by`: the
 * rank that writes, SHD_DUMP_LAUNCHER, or SHD_DUMP_VISITOR of a job that runs (living.h). Fails: IO, MEMORY. */
sherd_status shd_dump_write(const shd_recorder *recorder, int32_t rank, int32_t by, const char *dir);

/* What rank `own` does when its session has failed, from the thread that ran it: nothing unless an alarm was raised; else
 * writes its own dump, and if it has raised the alarm those of ranks that do not write theirs within a second; if not, it
 * waits until all are written, for two seconds more than that at most.
 * *dumped (may be NULL): a dump was written. Fails: as shd_dump_write, at the first that fails. */
sherd_status shd_dump_after_failure(const shd_recorder *recorder, int32_t own, const char *dir, bool *dumped);

/* Writes all that are missing; *count (may be NULL): how many ranks have dumps. For the launcher, when the job is over. */
sherd_status shd_dump_missing(const shd_recorder *recorder, const char *dir, int32_t *count);

/* Where a rank is, or was when it ended: "in BACKWARD h.2 of step 8"; "" when it has never come. */
void shd_dump_print_where(const shd_recorder *recorder, int32_t rank, char *out, size_t bytes);

#endif
