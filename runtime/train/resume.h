/* What a checkpoint remembers of its job, and whether a job may go on from it.
 *
 * The note in the manifest: {"job": the job as resolved, "sequence": the number of the next sequence, "tokens_seen",
 * "data": {"tokens", "fingerprint"}}; of a mixture, "data" also holds "sources": [{"weight", "tokens", "fingerprint"}].
 * The number of the next sequence is the place in every source (io/dataset.h). A job goes on only with the same model,
 * data, order of data and seed; other differences are logged. */
#ifndef SHD_TRAIN_RESUME_H
#define SHD_TRAIN_RESUME_H

#include "io/dataset.h"

/* Where a run starts. All zero: at the beginning. */
typedef struct shd_resume {
    char *path;       /* the checkpoint; NULL: none */
    int64_t step;     /* completed steps */
    int64_t sequence; /* number of the next sequence */
    int64_t tokens_seen;
} shd_resume;

/* Finds the checkpoint that checkpoint.resume asks for and holds its note against the job; `dataset` is the job's
 * training data. `report`: log what differs and where the run goes on (rank 0 does).
 * Owns: shd_resume_fini(out). Fails: DATA (none at the path given, unreadable, damaged, or another model, data, order or
 * seed: both values; another layout: ranks, stage or optimizer), CONFIG (the job's plan), MEMORY. */
sherd_status shd_resume_find(const shd_job *job, const shd_dataset *dataset, bool report, shd_resume *out);
void shd_resume_fini(shd_resume *resume);

/* The note for a checkpoint. *out: release with shd_free. Fails: MEMORY. */
sherd_status shd_resume_note(const shd_job *job, const shd_dataset *dataset, int64_t sequence, int64_t tokens_seen,
                             char **out);

/* The steps of the newest checkpoint in checkpoint.dir, its path in `path`; -1: there is none that can be opened. */
int64_t shd_resume_newest(const shd_job *job, char *path, size_t bytes);

#endif
