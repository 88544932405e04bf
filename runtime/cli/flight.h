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

/* From now on this rank can be asked for its stack, by a signal that nobody else uses; NULL: no longer. */
void shd_flight_serve(shd_recorder *recorder);

/* The folder of this attempt's dumps. */
void shd_flight_dump_dir(const shd_job *job, char *out, size_t bytes);

/* When an attempt is over: where a rank hung, was killed or was lost, says what it was doing, writes the dumps that are
 * missing, and says where they are. */
void shd_flight_judge(int records, const shd_job *job, const shd_launch_report *report);

#endif
