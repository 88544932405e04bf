/* What rank 0 writes of a run beside the rows of its steps: provenance.json, the events of its start and end, traces of
 * chosen steps. What cannot be written is no reason not to train: it is said, and left. Other ranks write nothing. */
#ifndef SHD_TRAIN_RECORDS_H
#define SHD_TRAIN_RECORDS_H

#include "runtime/train/resume.h"
#include "runtime/train/train.h"

#include <sherd/session.h>

typedef struct shd_records {
    const shd_job *job;
    const sherd_session *session;
    const sherd_options *options; /* of it */
    const shd_resume *from;       /* where the run starts */
} shd_records;

/* The run begins, or goes on, after `step` completed steps. */
void shd_records_start(const shd_records *records, int64_t step);
/* Step `step`, from 1, is done on this rank. */
void shd_records_step(const shd_records *records, int64_t step);
/* The run has come to its end, or was stopped, after its last save. */
void shd_records_end(const shd_records *records, const shd_train_summary *summary);

#endif
