/* A checkpoint laid out for another number of ranks, without a session of any. */
#ifndef SHD_IO_CHECKPOINT_RELAYOUT_H
#define SHD_IO_CHECKPOINT_RELAYOUT_H

#include "io/advance.h"
#include "io/checkpoint.h"
#include "shard/plan.h"

typedef struct shd_relayout {
    const shd_checkpoint *from; /* borrowed */
    const char *parent;         /* where step-%08d goes; not where `from` is */
    int32_t ranks;              /* of one shard group: files */
    /* Of a job that has so many ranks, and the checkpoint's tensors and states: each file gets what its rank stores. NULL:
     * every value is cut evenly. */
    const shd_plan *plan;
    int32_t compression;
    const shd_advance *advance; /* may be NULL */
} shd_relayout;

/* Writes a checkpoint of the same step, note and values, bit by bit, in `ranks` files. A block at a time: memory does not
 * grow with it.
 * *path: where it is, release with shd_free. Fails: ARGUMENT (the step is there already), DATA (damage; a plan of another
 * model), IO, MEMORY. */
sherd_status shd_relayout_run(const shd_relayout *relayout, char **path);

#endif
