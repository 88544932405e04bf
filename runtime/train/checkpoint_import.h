/* Weights that others have trained, as a checkpoint of ours: after step 0, without optimizer state. */
#ifndef SHD_TRAIN_CHECKPOINT_IMPORT_H
#define SHD_TRAIN_CHECKPOINT_IMPORT_H

#include "io/advance.h"
#include "io/job.h"

typedef struct shd_import {
    const char *from;   /* whatever runtime/train/weights.h can open */
    const char *parent; /* where step-00000000 goes */
    const shd_job *job; /* whose model it is: names and shapes must fit */
    int32_t compression;
    const shd_advance *advance; /* may be NULL */
} shd_import;

/* Writes the checkpoint; memory does not grow with the model. Its optimizer is "none" and has no states: a job takes it as
 * model.init, or resumes from it with checkpoint.resume_weights_only, and everything that only wants parameters takes it
 * as it is. The note has the job, and `imported`: {"from", "kind"}.
 * *path: where it is, release with shd_job_text_free; *kind: what `from` was, borrowed for ever. Fails: ARGUMENT (step 0 is
 * there already), CONFIG (the job's model), DATA (what does not fit, damage), IO, MEMORY. */
sherd_status shd_import_run(const shd_import *import, char **path, const char **kind);

#endif
