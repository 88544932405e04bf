/* Whether a job may go on from what another one has saved: its note held against the job.
 *
 * The model must be the same. Data, their order and the seed must be, unless checkpoint.resume_despite allows another one.
 * Where outputs go and how often is of no interest. All other differences are said, and are none that matter to a
 * checkpoint: ranks, stage, replicas, precision, micro-batches, learning rates. */
#ifndef SHD_TRAIN_COMPARE_H
#define SHD_TRAIN_COMPARE_H

#include "io/dataset.h"
#include "io/job.h"

#include <jansson.h>

/* `dataset`: the job's training data; `sequence`: the note's, where the run would go on; `report`: log what differs.
 * Fails: DATA (what is not allowed to differ, with both values; a note that is none of a job's), MEMORY. */
sherd_status shd_note_compare(const json_t *note, const shd_job *job, const shd_dataset *dataset, int64_t sequence,
                              bool report);

#endif
