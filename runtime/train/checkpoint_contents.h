/* What is in a checkpoint: of every parameter and state how much it takes and where it is, and if wanted how large its
 * values are. */
#ifndef SHD_TRAIN_CHECKPOINT_CONTENTS_H
#define SHD_TRAIN_CHECKPOINT_CONTENTS_H

#include "io/advance.h"
#include "io/checkpoint.h"

#include <stdbool.h>

/* A tensor's parameter, or one of its states. */
typedef struct shd_value_summary {
    int64_t raw_bytes, stored_bytes; /* of all blocks, copies too */
    int64_t block_count;
    /* With norms, over the values as fp32: the finite ones' root of the sum of squares and largest magnitude, and how
     * many are not finite. */
    double norm, largest;
    int64_t nonfinite_count;
} shd_value_summary;

/* Reads the index of every file, and with `norms` every value, checked. `advance` (may be NULL) is for norms.
 * *out: [tensor_count][1 + state_count] of the manifest; release with shd_contents_free. Fails: DATA (damage), IO, MEMORY. */
sherd_status shd_contents_read(const shd_checkpoint *checkpoint, bool norms, const shd_advance *advance,
                               shd_value_summary **out);
/* For the program, which knows no shd_free; accepts NULL. */
void shd_contents_free(shd_value_summary *contents);

#endif
