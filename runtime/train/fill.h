/* The parameters that a run starts with: those of a checkpoint, or of model.init, or some of each. */
#ifndef SHD_TRAIN_FILL_H
#define SHD_TRAIN_FILL_H

#include "runtime/model/model.h"
#include "runtime/train/resume.h"

#include <sherd/session.h>

typedef struct shd_fill_config {
    const shd_job *job;
    const shd_dataset *dataset; /* the job's training data */
    const shd_model *model;     /* the session's */
    sherd_session *session;
    shd_resume_report report;
    const shd_resume *oldest; /* as shd_resume_find_older; NULL at a run's start */
} shd_fill_config;

/* Gives the session its parameters, and when it goes on its optimizer state and step count. `from` is where the run starts,
 * as shd_resume_find has found it on every rank; a checkpoint that turns out to be damaged is replaced there by the next
 * older one. Collective. Fails: DATA (no checkpoint is whole; the ranks have found different ones), what filling and loading
 * a session returns. */
sherd_status shd_fill_session(const shd_fill_config *config, shd_resume *from);

#endif
