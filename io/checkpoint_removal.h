/* Removing one folder of a checkpoint, and telling whether anybody has it: the inner part of io/checkpoint_folder.h. */
#ifndef SHD_IO_CHECKPOINT_REMOVAL_H
#define SHD_IO_CHECKPOINT_REMOVAL_H

#include "io/file.h"

#include <stdbool.h>
#include <stdint.h>

/* Removes `path`, a folder with a name that nobody looks for. One that holds other things stays whole, with a warning,
 * as does what the system does not let go. True: it is gone. */
bool shd_partial_remove(const char *path);
/* Takes step `step`, now called `path`, off its name (renames it to that of a partial folder of `id`, durably), then
 * removes it. Likewise; a link, a folder that holds other things, and one that somebody reads (io/checkpoint_hold.h)
 * keep their names. */
bool shd_complete_remove(const char *parent, const char *path, int64_t step, uint64_t id);

typedef enum shd_partial_owner {
    SHD_PARTIAL_NOBODYS,
    SHD_PARTIAL_SOMEBODYS,
    SHD_PARTIAL_UNLOCKABLE, /* locks do not work there: nobody knows */
    SHD_PARTIAL_GONE        /* or has another name now */
} shd_partial_owner;

/* Whose a partial folder is, by the argument in io/checkpoint_folder.h; of NOBODYS, removes it when `remove`, and
 * *removed tells whether that worked. */
shd_partial_owner shd_partial_judge(const char *path, bool remove, bool *removed);

#endif
