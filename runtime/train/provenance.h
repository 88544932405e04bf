/* provenance.json in log.dir: what a run was made with, so that it can be made again. docs/METRICS.md has its fields. */
#ifndef SHD_TRAIN_PROVENANCE_H
#define SHD_TRAIN_PROVENANCE_H

#include "io/job.h"
#include "runtime/session/setup.h"

typedef struct shd_provenance {
    const shd_job *job;
    const shd_plan *plan;         /* rank 0's */
    int32_t threads;              /* of each rank */
    const shd_recorder *recorder; /* which knows the hosts of all ranks */
    int64_t first_step;
    const char *resumed_from; /* NULL: the run starts anew */
} shd_provenance;

/* Writes it, complete or not at all; the one that an earlier start has left there becomes provenance.json.N, N the first
 * free number from 1. Reads up to half a GiB of the job's data for checksums. Fails: IO, DATA (files of data), MEMORY. */
sherd_status shd_provenance_write(const shd_provenance *about);

#endif
