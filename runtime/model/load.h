/* Initial weights from a file of named tensors (safetensors): under Hugging Face's names, with GPT-2's
 * `transformer.` prefix or without.
 *
 * The model does not know files: whoever opened one hands it over as a shd_weight_source. Only the elements asked
 * for are read, so that each rank reads its own slices of the file. */
#ifndef SHD_MODEL_LOAD_H
#define SHD_MODEL_LOAD_H

#include "runtime/model/model.h"

/* A stored tensor, row-major. What it points to lives as long as its source. */
typedef struct shd_stored_tensor {
    const char *name;
    const char *dtype; /* "F32", "F16" and "BF16" can be loaded */
    int32_t dim_count;
    const int64_t *shape;
} shd_stored_tensor;

typedef struct shd_weight_source {
    const char *label; /* what messages call it: the file's path */
    int32_t tensor_count;
    /* Tensor number `index`, in any order. */
    void (*describe)(const void *user, int32_t index, shd_stored_tensor *out);
    /* Its elements [first, first + count), widened. */
    sherd_status (*read)(const void *user, int32_t index, int64_t first, int64_t count, float *values);
    const void *user;
} shd_weight_source;

typedef struct shd_weights shd_weights;

/* Matches the model's tensors with the source's. Ignored, knowingly: GPT-2's mask buffers, Llama's stored rotary
 * frequencies, and `lm_head.weight` where embeddings are tied (then filling the token table checks that both are
 * equal).
 * Owns: model and source's contents are borrowed until shd_weights_destroy.
 * Fails: DATA, naming every tensor that is missing, has another shape or dtype, or has no place in this model;
 * MEMORY. */
sherd_status shd_weights_create(const shd_model *model, const shd_weight_source *source, shd_weights **out);
/* Accepts NULL. */
void shd_weights_destroy(shd_weights *weights);

/* A sherd_fill_fn; `weights` is a shd_weights. Fails: DATA, and what the source's read returns. */
sherd_status shd_weights_fill(void *weights, int32_t tensor, int64_t first, int64_t count, float *values);

#endif
