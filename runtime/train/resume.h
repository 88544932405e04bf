/* What a checkpoint remembers of its job, and from which one a job goes on.
 *
 * The note in the manifest: {"job": the job as resolved, "sequence": the number of the next sequence, "tokens_seen",
 * "data": {"tokens", "fingerprint"}, "rng", "schedule", "safety" (safety.h)}; of a mixture, "data" also holds "sources": [{"weight", "tokens",
 * "fingerprint"}]. The number of the next sequence is the place in every source (io/dataset.h).
 *
 * `checkpoint.resume: auto` takes the newest checkpoint in checkpoint.dir that is whole. Damaged ones are passed over, and
 * named; if there are only such, the job is refused: it never starts from the beginning by itself where checkpoints
 * are. What this build cannot read, but another one might, is refused too. A path means that checkpoint and no other, though a
 * run that goes on from it may later roll back to its own. */
#ifndef SHD_TRAIN_RESUME_H
#define SHD_TRAIN_RESUME_H

#include "io/dataset.h"
#include "io/job.h"
#include "runtime/train/safety.h"

#include <sherd/session.h>

/* How far a run is. */
typedef struct shd_resume_place {
    int64_t step;     /* completed steps */
    int64_t sequence; /* number of the next sequence */
    int64_t tokens_seen;
} shd_resume_place;

/* Where a run starts. */
typedef struct shd_resume {
    char *path;        /* the checkpoint; NULL: none */
    bool weights_only; /* it gives parameters alone, to a run that starts at the beginning */
    bool named;        /* checkpoint.resume names it, and means no other */
    shd_resume_place place;
    shd_safety_state safety;
} shd_resume;

/* What is logged. Rank 0 of a run says all: what differs, and what is passed over; a look at a job only the latter. */
typedef enum shd_resume_report { SHD_REPORT_NOTHING, SHD_REPORT_DAMAGE, SHD_REPORT_ALL } shd_resume_report;

/* Finds the checkpoint that the job is to go on from, and holds its note against the job; `dataset` is the job's
 * training data. Of a checkpoint the manifest is read, and the sizes of the files are looked at; damage in them is found
 * when it is loaded.
 * Owns: shd_resume_fini(out). Fails: DATA (none at the path given; one that cannot be read; only damaged ones; what may not
 * differ does, both values named; it does not fit the session), CONFIG (the job's plan), MEMORY. */
sherd_status shd_resume_find(const shd_job *job, const shd_dataset *dataset, shd_resume_report report, shd_resume *out);
/* Whether there is anything to look for when `resume` turns out to be damaged while it is loaded. */
bool shd_resume_has_older(const shd_resume *resume);
/* Then: replaces it by the newest in checkpoint.dir of fewer steps that is whole; sherd_last_error() is the damage, which
 * is logged. A run whose start was named goes back no further than to that, `oldest`, which need not lie there; NULL: it
 * was not. Fails likewise, also when there is none: then `resume` is as before. */
sherd_status shd_resume_find_older(const shd_job *job, const shd_dataset *dataset, shd_resume_report report,
                                   const shd_resume *oldest, shd_resume *resume);
/* Takes the checkpoint at `path`, one of this run's own, as where it goes on; nothing is logged. Fails: as shd_resume_find. */
sherd_status shd_resume_take(const shd_job *job, const shd_dataset *dataset, const char *path, shd_resume *out);
/* What is to be loaded of it; borrows the job's patterns. */
sherd_load shd_resume_load(const shd_job *job, const shd_resume *resume);
/* Owns: shd_resume_fini(out). Fails: MEMORY. */
sherd_status shd_resume_copy(const shd_resume *resume, shd_resume *out);
void shd_resume_fini(shd_resume *resume);

/* The note for a checkpoint. *out: release with shd_free. Fails: MEMORY. */
sherd_status shd_resume_note(const shd_job *job, const shd_dataset *dataset, const shd_resume_place *place,
                             const shd_safety_state *safety, char **out);

/* The steps of the newest checkpoint in checkpoint.dir, its path in `path`; -1: there is none that can be opened. */
int64_t shd_resume_newest(const shd_job *job, char *path, size_t bytes);

#endif
