/* Weights for a model from a safetensors file: io reads the file, the model says what it needs of it. */
#ifndef SHD_TRAIN_WEIGHTS_H
#define SHD_TRAIN_WEIGHTS_H

#include "runtime/model/load.h"

typedef struct shd_weights_file shd_weights_file;

/* Opens `path` and matches it with the model. Owns: borrows `model`; close *out with shd_weights_file_close.
 * Fails: DATA (no such file; every tensor that is missing or does not fit), MEMORY. */
sherd_status shd_weights_file_open(const char *path, const shd_model *model, shd_weights_file **out);
/* Accepts NULL. */
void shd_weights_file_close(shd_weights_file *file);
/* A sherd_fill_fn; `file` is a shd_weights_file. */
sherd_status shd_weights_file_fill(void *file, int32_t tensor, int64_t first, int64_t count, float *values);

#endif
