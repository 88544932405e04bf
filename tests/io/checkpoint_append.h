/* A rank's file of a checkpoint, block after block from values as they come: for tests that want files of their own, of
 * any order and content. */
#ifndef TESTS_IO_CHECKPOINT_APPEND_H
#define TESTS_IO_CHECKPOINT_APPEND_H

#include <sherd/dtype.h>
#include <sherd/status.h>
#include <stdint.h>

typedef struct shd_appender shd_appender;

/* Makes rank-%05d.bin in `folder`, which exists, in place of an older one. Memory: its own, that of a block and a codec,
 * and some words a block. Owns: destroy *out with shd_appender_destroy. Fails: IO, MEMORY. */
sherd_status shd_appender_create(const char *folder, int64_t step, int32_t rank, int32_t compression,
                                 shd_appender **out);
/* Stores elements [first, first + count) of a tensor's parameter or state, in blocks of shd_block_count_max, the last one
 * shorter: give whole multiples of it where more follow. INT8: whole code blocks, `first` a multiple of 256. Names are
 * copied. Fails: IO, MEMORY. */
sherd_status shd_appender_add(shd_appender *appender, const char *tensor, const char *state, int64_t first,
                              int64_t count, sherd_dtype dtype, const void *values);
/* Writes the index and syncs. Fails: IO, MEMORY, ARGUMENT (a name that is not UTF-8). */
sherd_status shd_appender_finish(shd_appender *appender);
/* Removes the file unless it is finished. Accepts NULL. */
void shd_appender_destroy(shd_appender *appender);

#endif
