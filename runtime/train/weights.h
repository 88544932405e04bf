/* Weights for a model from what others or we have written: io reads files, the model says what it needs of them.
 *
 * What a path may be: a safetensors file; a folder of them (model.safetensors, or model-00001-of-00003.safetensors and
 * so on, as Hugging Face's transformers save); GPT-2 weights of llm.c; a checkpoint of ours, or a folder of checkpoints,
 * which means the newest. */
#ifndef SHD_TRAIN_WEIGHTS_H
#define SHD_TRAIN_WEIGHTS_H

#include "runtime/model/load.h"

typedef struct shd_weights_file shd_weights_file;

/* Opens `path` and matches it with the model. Owns: borrows `model`; close *out with shd_weights_file_close.
 * Fails: DATA (no such file; every tensor that is missing or does not fit), MEMORY. */
sherd_status shd_weights_open(const char *path, const shd_model *model, shd_weights_file **out);
/* The same of a job's model.init, which the cause names where there is no such file. */
sherd_status shd_weights_file_open(const char *path, const shd_model *model, shd_weights_file **out);
/* Accepts NULL. */
void shd_weights_file_close(shd_weights_file *file);
/* What kind of file it is, for people: "safetensors", "llm.c, bf16", … Borrowed. */
const char *shd_weights_file_kind(const shd_weights_file *file);
/* A sherd_fill_fn; `file` is a shd_weights_file. */
sherd_status shd_weights_file_fill(void *file, int32_t tensor, int64_t first, int64_t count, float *values);

#endif
