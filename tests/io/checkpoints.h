/* A small job to save: its tensors, and values that tell where they belong. */
#ifndef TESTS_IO_CHECKPOINTS_H
#define TESTS_IO_CHECKPOINTS_H

#include "io/checkpoint.h"
#include "tests/io/files.h"

#include <stdbool.h>

enum { JOB_TENSORS = 5, JOB_STATES = 2, JOB_SLICES_MAX = JOB_TENSORS * (1 + JOB_STATES) };

typedef struct small_job {
    const char *parent;
    int64_t step;
    int32_t world_size;
    bool copies; /* every rank stores everything, as at stage 0 */
    int seed;
} small_job;

typedef struct rank_slices {
    shd_checkpoint_slice list[JOB_SLICES_MAX];
    int64_t count;
} rank_slices;

extern const sherd_tensor job_tensors[JOB_TENSORS];
int64_t job_elements(int tensor);
/* The value of element `index`; state 0 is the parameter. */
float job_value(const small_job *job, int tensor, int state, int64_t index);
/* The slices of `rank`, with values of their own (taken): the job's, or -1 everywhere when `blank`. */
rank_slices job_slices(const small_job *job, int32_t rank, bool blank);
shd_checkpoint_manifest job_manifest(const small_job *job);
/* Writes all ranks and commits; the commit's status. */
sherd_status save_job(const small_job *job);
/* The folder of the finished checkpoint. */
char *job_path(const small_job *job);
/* Opens the checkpoint and reads all ranks; *equal is false when a value is not the job's. */
sherd_status load_job(const small_job *job, bool *equal);

#endif
