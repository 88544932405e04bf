/* The checkpoint that somebody names. */
#ifndef SHD_IO_CHECKPOINT_PICK_H
#define SHD_IO_CHECKPOINT_PICK_H

#include "io/checkpoint.h"

/* Opens the checkpoint at `path`, or the newest complete one in it. Owns: close *out with shd_checkpoint_close.
 * Fails: DATA (what is there instead, damage), IO, MEMORY. */
sherd_status shd_checkpoint_pick(const char *path, shd_checkpoint **out);

#endif
