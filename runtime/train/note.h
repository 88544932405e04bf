/* What a checkpoint's note says of the job that wrote it; resume.h describes the note. */
#ifndef SHD_TRAIN_NOTE_H
#define SHD_TRAIN_NOTE_H

#include "runtime/model/model.h"

/* The model of the job; nothing is frozen, micro_batch and threads are 0. `note`: a checkpoint's, may be NULL.
 * Fails: DATA (no note of `sherd train`). */
sherd_status shd_note_model(const char *note, shd_model_config *out);

#endif
