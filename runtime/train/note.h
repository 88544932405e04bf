/* What a checkpoint's note says of the job that wrote it; resume.h describes the note. */
#ifndef SHD_TRAIN_NOTE_H
#define SHD_TRAIN_NOTE_H

#include "io/job.h"
#include "runtime/model/model.h"

/* The model of the job; nothing is frozen, micro_batch and threads are 0. `note`: a checkpoint's, may be NULL.
 * Fails: DATA (no note of `sherd train`). */
sherd_status shd_note_model(const char *note, shd_model_config *out);

/* Whether there is a job in it; `note` may be NULL. */
bool shd_note_has_job(const char *note);

/* What is to be other than it was. */
typedef struct shd_note_changes {
    /* run.ranks; 0: as it was. Where they do not divide, replicas are 1 and the global batch is the least that they
     * divide: for whoever only loads and evaluates. */
    int32_t ranks;
    int32_t replicas;   /* shard.replicas; 0: as it was */
    const char *dir;    /* run.dir, log.dir and checkpoint.dir; NULL: as they were */
    const char *tokens; /* data.train, a u32 file; there are no validation data then. NULL: as they were */
} shd_note_changes;

/* The job, its paths absolute. `changes` may be NULL. Owns: destroy *out with shd_job_destroy.
 * Fails: DATA (no note of `sherd train`), CONFIG (what has been changed makes no job), MEMORY. */
sherd_status shd_note_job(const char *note, const shd_note_changes *changes, shd_job **out);

#endif
