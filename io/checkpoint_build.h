/* A whole checkpoint made by one process, block by block, in memory that does not grow with it: what is imported, or laid
 * out anew. It is written beside and committed by one rename, as a session's are (io/checkpoint_folder.h). */
#ifndef SHD_IO_CHECKPOINT_BUILD_H
#define SHD_IO_CHECKPOINT_BUILD_H

#include "io/checkpoint.h"

#include <stdint.h>

typedef struct shd_build shd_build;

typedef struct shd_build_config {
    const char *parent; /* made where it is missing */
    int64_t step;
    int32_t file_count;  /* ranks */
    int32_t compression; /* 0 to SHD_COMPRESSION_MAX */
} shd_build_config;

/* Begins `parent`/step-%08d. Owns: destroy *out with shd_build_destroy. Fails: ARGUMENT (that step is there already), IO,
 * MEMORY. */
sherd_status shd_build_create(const shd_build_config *config, shd_build **out);
/* Accepts NULL. Removes what has not been committed. */
void shd_build_destroy(shd_build *build);

/* Room for the values of a block, where shd_build_add takes them from: SHD_BLOCK_RAW_BYTES_MAX, aligned. */
void *shd_build_values(shd_build *build);

/* Begins the file of the next rank, from 0 on. Fails: IO. */
sherd_status shd_build_begin_file(shd_build *build);
/* Adds a block, slice->values being those in shd_build_values; no more than shd_block_count_max(slice->dtype). Its names
 * are borrowed until the file is finished. Without elements nothing is added. Fails: IO, MEMORY. */
sherd_status shd_build_add(shd_build *build, const shd_checkpoint_slice *slice);
/* Fails: IO, MEMORY, ARGUMENT (a name that is not UTF-8). */
sherd_status shd_build_finish_file(shd_build *build);

/* Makes the checkpoint complete, once all files are finished; manifest->step and world_size are the config's. Fails: as
 * shd_checkpoint_commit. */
sherd_status shd_build_commit(shd_build *build, const shd_checkpoint_manifest *manifest);
/* The path that it has, or will have. */
const char *shd_build_path(const shd_build *build);

#endif
