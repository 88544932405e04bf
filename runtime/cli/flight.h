/* The flight recorder of the ranks of `sherd train`, and the dumps that come of it: the launcher's side, and a rank's. */
#ifndef SHD_CLI_FLIGHT_H
#define SHD_CLI_FLIGHT_H

#include "io/job.h"
#include "runtime/comm/recorder.h"
#include "runtime/launch/launch.h"

/* A new recorder for the ranks of an attempt, which inherit it, in the place of `last`, which is closed; -1: none. */
int shd_flight_renew(int last, int32_t rank_count);

/* Before a job starts: dumps of an earlier run are moved aside. What cannot be is only said. */
void shd_flight_settle(const shd_job *job);

/* Restarts of this rank's job so far, as its launcher tells by TORCHELASTIC_RESTART_COUNT; 0: it does not. */
int32_t shd_flight_attempt(void);

/* From now on this rank, `rank`, whose dump will be in `dump_dir`, can be asked for its stack, by a signal that nobody
 * else uses; NULL recorder: no longer. */
void shd_flight_serve(shd_recorder *recorder, const char *dump_dir, int32_t rank);

/* Whether the job is lost and others have written the dump of this rank, as it did not: unless it has failed itself, nobody
 * waits for it any more. Only while it serves; async-signal-safe. */
bool shd_flight_given_up(void);

/* What rank `rank` is about, or was when it ended; NONE: not known. */
shd_activity shd_flight_activity(int records, int32_t rank);

/* The folder of this attempt's dumps. */
void shd_flight_dump_dir(const shd_job *job, char *out, size_t bytes);

/* When an attempt is over: where a rank hung, was killed or was lost, says what it was doing, writes the dumps that are
 * missing, and says where they are. */
void shd_flight_judge(int records, const shd_job *job, const shd_launch_report *report);

#endif
