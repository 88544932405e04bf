/* What a job needs of the machine: memory, and folders that it can write and that nobody else writes. */
#ifndef SHD_TRAIN_PREFLIGHT_H
#define SHD_TRAIN_PREFLIGHT_H

#include "io/file.h"
#include "io/job.h"
#include "runtime/session/setup.h"

/* What a rank of the plan takes of the host's memory: on a device what is pinned. */
int64_t shd_preflight_host_bytes(const shd_plan *plan);

/* Whether the machine has the memory that all ranks take together, were it empty, and a process's address space has
 * room for what a rank maps. Fails: CONFIG (both numbers, and what to lower), MEMORY (the limit, and what to do). */
sherd_status shd_preflight_memory(const shd_job *job, const shd_plan *plan);

/* What a checkpoint of the job takes, uncompressed, over all ranks. */
int64_t shd_preflight_checkpoint_bytes(const shd_plan *plan);

/* The room for checkpoints. */
typedef struct shd_preflight_room {
    char folder[SHD_PATH_BYTES]; /* checkpoint.dir, or the nearest folder above it that is there */
    int64_t there_bytes;         /* free; -1: the file system does not tell */
    int64_t one_bytes;           /* of one checkpoint, uncompressed */
    int64_t all_bytes;           /* of checkpoint.keep and the one that is being written; 0: there is no end to them */
    int64_t taken_bytes;         /* what those that are there already have of it */
} shd_preflight_room;

/* Looks, without making anything, whether checkpoint.dir and log.dir are folders, or can be made, and can be written,
 * and whether there is room for one checkpoint. *room is undefined after a failure. Fails: DATA (the key with its
 * place, the folder, the cause). */
sherd_status shd_preflight_outputs(const shd_job *job, const shd_plan *plan, shd_preflight_room *room);

/* Whether another job holds checkpoint.dir or log.dir at this moment; *known is false where files cannot be locked, so
 * that nobody knows. Nothing is made, and no lock is kept. Fails: IO (as shd_claim_take does then, with the holder). */
sherd_status shd_preflight_claimable(const shd_job *job, bool *known);

/* The right to write checkpoint.dir and log.dir, for as long as the process and those it has started live: a lock
 * (flock) on a file in each, which the kernel drops with the last of them, however they end. */
typedef struct shd_claim {
    int locks[2]; /* descriptors that started programs inherit; -1: none */
} shd_claim;
#define SHD_CLAIM_INIT                                                                                                 \
    {                                                                                                                  \
        { -1, -1 }                                                                                                     \
    }

/* Makes both folders, tries whether files can be made in them, locks them, and removes what killed jobs have left of
 * checkpoints there. A job that has just been killed may still
 * be ending: its lock is waited for, a few seconds.
 * Owns: release with shd_claim_release, also after a failure. Fails: DATA (a folder that cannot be made or written), IO
 * (another job has it). */
sherd_status shd_claim_take(const shd_job *job, shd_claim *claim);
void shd_claim_release(shd_claim *claim);

#endif
