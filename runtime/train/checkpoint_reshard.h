/* A checkpoint laid out for another number of ranks of its job. */
#ifndef SHD_TRAIN_CHECKPOINT_RESHARD_H
#define SHD_TRAIN_CHECKPOINT_RESHARD_H

#include "io/advance.h"
#include "io/checkpoint.h"

typedef struct shd_reshard {
    const shd_checkpoint *from; /* borrowed */
    const char *parent;         /* where step-%08d goes; not where `from` is */
    int32_t ranks;              /* of one shard group: files */
    int32_t compression;
    const shd_advance *advance; /* may be NULL */
} shd_reshard;

/* Writes the checkpoint once more, in `ranks` files (io/checkpoint_relayout.h). Which file has what follows the layout that
 * a job of so many ranks has, the same at every stage, so that each rank of one finds all it needs in its own. Of a
 * checkpoint that `sherd train` has not saved nobody knows the units: there every tensor is cut evenly.
 * *path: where it is, release with shd_job_text_free. Fails: ARGUMENT (the step is there already), CONFIG (a number of
 * ranks that the job cannot have), DATA (damage), IO, MEMORY. */
sherd_status shd_reshard_run(const shd_reshard *reshard, char **path);

#endif
