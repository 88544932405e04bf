/* The parameters of a checkpoint, whichever ranks saved them: for readers with another number of ranks than the
 * writers. */
#ifndef SHD_IO_PARAMETER_READER_H
#define SHD_IO_PARAMETER_READER_H

#include "io/checkpoint.h"

typedef struct shd_parameter_reader shd_parameter_reader;

/* Reads the headers of all rank files and finds where each element is.
 * Owns: `checkpoint` is borrowed until the end; destroy *out with shd_parameter_reader_destroy.
 * Fails: DATA (elements that no rank has, damage), IO, MEMORY. */
sherd_status shd_parameter_reader_create(const shd_checkpoint *checkpoint, shd_parameter_reader **out);
/* Accepts NULL. */
void shd_parameter_reader_destroy(shd_parameter_reader *reader);

/* Elements [first, first + count) of parameter `tensor`. The slices that hold them are read and checked as a whole.
 * Fails: ARGUMENT (no such tensor or elements), DATA (damage: the file and slice), IO. */
sherd_status shd_parameter_reader_read(const shd_parameter_reader *reader, const char *tensor, int64_t first,
                                       int64_t count, float *values);

#endif
