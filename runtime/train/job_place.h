/* Where a job's ranks compute: run.device, held against what this program and this machine have. */
#ifndef SHD_TRAIN_JOB_PLACE_H
#define SHD_TRAIN_JOB_PLACE_H

#include "io/job.h"
#include "runtime/model/model.h"

#include <sherd/session.h>

typedef struct shd_job_place {
    bool device;        /* on one; else on the CPU */
    const shd_ops *ops; /* the mathematics there */
    /* With `auto` and a device that is there: why it is not taken; else "". */
    char passed_over[256];
} shd_job_place;

/* `auto` is a device where there is one that can do all that the job asks for, else the CPU.
 * Fails: CONFIG, with the key's place: a device is asked for, and there is none, with the reason; or it cannot do
 * something, whose key is named. */
sherd_status shd_job_find_place(const shd_job *job, shd_job_place *out);

/* Puts the model where its session's brackets compute; before the first of them. Fails: MEMORY, DEVICE. */
sherd_status shd_job_place_model(shd_model *model, sherd_session *session);
/* Ends both, whatever is under way. Accept NULL. */
void shd_job_end_session(shd_model *model, sherd_session *session);

#endif
