/* A small job to save: its tensors, and values that tell where they belong. What was saved is checked block by block,
 * with none of the readers that the library has. */
#ifndef TESTS_IO_CHECKPOINTS_H
#define TESTS_IO_CHECKPOINTS_H

#include "io/checkpoint_folder.h"
#include "tests/io/files.h"

#include <stdbool.h>

enum { JOB_TENSORS = 6, JOB_STATES = 2, JOB_SLICES_MAX = JOB_TENSORS * (1 + JOB_STATES) };

typedef struct small_job {
    const char *parent;
    int64_t step;
    int32_t world_size;
    bool copies; /* every rank stores everything */
    bool coded;  /* states are INT8, of 256 elements a block */
    int32_t compression;
    int seed;
    uint64_t id;
} small_job;

typedef struct rank_slices {
    shd_checkpoint_slice list[JOB_SLICES_MAX];
    int64_t count;
} rank_slices;

/* One of them is frozen, and stored in bf16. */
extern const sherd_tensor job_tensors[JOB_TENSORS];
int64_t job_elements(int tensor);
/* The value of element `index`; state 0 is the parameter. Those of bf16 tensors have no more than 8 bits. */
float job_value(const small_job *job, int tensor, int state, int64_t index);
/* The slices of `rank`, with values of their own (taken): the job's, or bytes of 0xA5 when `blank`. */
rank_slices job_slices(const small_job *job, int32_t rank, bool blank);
shd_checkpoint_manifest job_manifest(const small_job *job);
/* Makes the partial folder and writes the file of one rank. */
sherd_status write_rank(const small_job *job, int32_t rank, const rank_slices *slices);
/* Writes all ranks' files. */
sherd_status write_job(const small_job *job);
/* Writes all ranks and commits; the commit's status. */
sherd_status save_job(const small_job *job);
/* The folder of the finished checkpoint, and the one it is made in. */
char *job_path(const small_job *job);
char *job_partial(const small_job *job);
/* Opens the checkpoint and decodes every block of every file; *equal is false when a value is not the job's, or one of
 * them is nowhere. */
sherd_status load_job(const small_job *job, bool *equal);
/* Saves it, and asserts that all of it comes back. */
void check_saved(const small_job *job);
/* The checkpoint of a small job at `step`. */
void make_step(const char *parent, int64_t step);

bool is_there(const char *parent, const char *name);

/* Warnings from listen_to_log() on, to be asked for words. */
extern char logged[1 << 14];
void listen_to_log(void);

#endif
