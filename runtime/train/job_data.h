/* From a job to its data: the files it names, opened, and a rank's part of them; for training and for everything that
 * only evaluates. */
#ifndef SHD_TRAIN_JOB_DATA_H
#define SHD_TRAIN_JOB_DATA_H

#include "io/job.h"
#include "runtime/train/feed.h"

#include <sherd/options.h>

/* Opens what data.train names. Owns: close *out with shd_dataset_close. Fails: as shd_dataset_open. */
sherd_status shd_job_open_training(const shd_job *job, shd_dataset **out);
/* The same of data.validation, which the job has; never shuffled. */
sherd_status shd_job_open_validation(const shd_job *job, shd_dataset **out);

/* The feed of the rank that `options` (shd_job_options, with its rank) are for, of `micro_steps` micro-batches a step.
 * Owns: `dataset` is borrowed; destroy *out with shd_feed_destroy. Fails: MEMORY. */
sherd_status shd_job_create_feed(const shd_job *job, shd_dataset *dataset, const sherd_options *options,
                                 int32_t micro_steps, shd_feed **out);

#endif
