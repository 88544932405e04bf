/* The parameters of a checkpoint as FP32, whichever ranks saved them in whatever dtype: for tools, which read tensor by
 * tensor. */
#ifndef SHD_IO_PARAMETER_READER_H
#define SHD_IO_PARAMETER_READER_H

#include "io/checkpoint_reader.h"

typedef struct shd_parameter_reader shd_parameter_reader;

/* Reads the indexes of all rank files and finds where each element is.
 * Owns: `checkpoint` is borrowed until the end; destroy *out with shd_parameter_reader_destroy.
 * Fails: DATA (damage), UNSUPPORTED (a file requires what this build does not know), IO, MEMORY. */
sherd_status shd_parameter_reader_create(const shd_checkpoint *checkpoint, shd_parameter_reader **out);
/* Accepts NULL. */
void shd_parameter_reader_destroy(shd_parameter_reader *reader);

/* Elements [first, first + count) of parameter `tensor`. The blocks that hold them are read and checked as a whole.
 * Fails: ARGUMENT (no such tensor or elements), DATA (damage: the file, tensor and elements), IO, MEMORY. */
sherd_status shd_parameter_reader_read(const shd_parameter_reader *reader, const char *tensor, int64_t first,
                                       int64_t count, float *values);

/* Hands all elements of `tensor` to `sink`, in order and once each, in portions; memory does not grow with the tensor.
 * Fails: ARGUMENT (no such tensor), DATA, IO, MEMORY, and what the sink returns. */
sherd_status shd_parameter_reader_stream(const shd_parameter_reader *reader, const char *tensor, shd_value_sink sink,
                                         void *user);

#endif
