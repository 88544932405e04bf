/* Names of checkpoints' folders and files, as io/checkpoint_folder.h has them. Pure, but for reading a folder. */
#ifndef SHD_IO_CHECKPOINT_NAMES_H
#define SHD_IO_CHECKPOINT_NAMES_H

#include "io/file.h"
#include "io/keep.h"

#include <sherd/status.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum shd_step_kind {
    SHD_STEP_COMPLETE, /* step-%08d */
    SHD_STEP_PARTIAL,
    SHD_STEP_REPLACED,
    SHD_STEP_ASIDE,
    SHD_STEP_OTHER /* step-* otherwise: not ours */
} shd_step_kind;

typedef struct shd_step_name {
    shd_step_kind kind;
    int64_t step; /* -1: OTHER */
    uint64_t id;  /* of PARTIAL, REPLACED and ASIDE */
} shd_step_name;

/* False: it does not begin with "step-". */
bool shd_step_name_parse(const char *name, shd_step_name *out);
/* `parent`/name; `id` is ignored for COMPLETE; `kind` is not OTHER. Fails: ARGUMENT (too long). */
sherd_status shd_step_path(char out[SHD_PATH_BYTES], const char *parent, shd_step_kind kind, int64_t step, uint64_t id);
/* The last part of a path, parsed, without slashes at the end; OTHER also where it does not begin with "step-". */
shd_step_name shd_step_name_of_path(const char *path);
/* Whether a checkpoint of step `step` may be where `path` says: its name is that of its step, or none of a step. Fails: DATA. */
sherd_status shd_step_path_check(const char *path, int64_t step);

/* The rank of a file called rank-%05d.bin, or -1. */
int32_t shd_rank_name_parse(const char *name);
/* Whether a file of this name belongs to a checkpoint. */
bool shd_checkpoint_owns(const char *name);

/* An entry of a parent. */
typedef struct shd_step_folder {
    const char *name;
    shd_step_name parsed;
    bool is_folder; /* itself, not what a link leads to */
} shd_step_folder;

/* All entries called step-*, by step, then by name; a parent that does not exist has none. *out lives as long as
 * `keep`. Fails: IO (it cannot be listed), MEMORY. */
sherd_status shd_step_folders_read(const char *parent, shd_keep *keep, shd_step_folder **out, int64_t *count);
/* Whether entry `index` of such a list stands for its step: it is step-%08d, or REPLACED while there is none. */
bool shd_step_folder_stands(const shd_step_folder *folders, int64_t index);

#endif
