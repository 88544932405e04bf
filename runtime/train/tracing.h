/* Traces of chosen steps (log.trace_steps): every instruction of the step's program on every rank, by queue, as the
 * flight recorder has them. Rank 0 reads what all ranks of the host have written into the memory that they share. */
#ifndef SHD_TRAIN_TRACING_H
#define SHD_TRAIN_TRACING_H

#include "io/job.h"
#include "runtime/session/setup.h"

/* Whether the job wants a trace of step `step`, as the terminal counts: from 1. */
bool shd_tracing_wants(const shd_job *job, int64_t step);

/* Writes `dir`/trace/step-%08d.json of the step that rank 0 has just done, `step` as above. What other ranks still do of it
 * is waited for, a second at most. *cut: ranks of which the recorder no longer has the step's beginning.
 * Fails: IO, MEMORY. */
sherd_status shd_tracing_write(const shd_recorder *recorder, const char *dir, int64_t step, int32_t *cut);

#endif
