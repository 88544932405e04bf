/* The parameters of a checkpoint, whichever ranks saved them: for readers with another number of ranks than the
 * writers. */
#ifndef SHD_IO_PARAMETER_READER1_H
#define SHD_IO_PARAMETER_READER1_H

#include "io/checkpoint_file1.h"

typedef struct shd_parameter_reader1 shd_parameter_reader1;

/* Reads the headers of all rank files and finds where each element is.
 * Owns: `checkpoint` is borrowed until the end; destroy *out with shd_parameter_reader1_destroy.
 * Fails: DATA (elements that no rank has, damage), IO, MEMORY. */
sherd_status shd_parameter_reader1_create(const shd_checkpoint *checkpoint, shd_parameter_reader1 **out);
/* Accepts NULL. */
void shd_parameter_reader1_destroy(shd_parameter_reader1 *reader);

/* Elements [first, first + count) of parameter `tensor`. The slices that hold them are read and checked as a whole.
 * Fails: ARGUMENT (no such tensor or elements), DATA (damage: the file and slice), IO. */
sherd_status shd_parameter_reader1_read(const shd_parameter_reader1 *reader, const char *tensor, int64_t first,
                                        int64_t count, float *values);

/* Hands all elements of `tensor` to `sink`, in order and once each, in portions; memory does not grow with the tensor.
 * A portion comes before its slice has been checked: what the sink has made of it counts only when this succeeds.
 * Fails: ARGUMENT (no such tensor), DATA, IO, MEMORY, and what the sink returns. */
sherd_status shd_parameter_reader1_stream(const shd_parameter_reader1 *reader, const char *tensor,
                                          shd_rank_file1_sink sink, void *user);

#endif
