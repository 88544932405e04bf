/* A reference run's folder, read: the case, its initial weights, its tokens, and what step 0 must give. */
#ifndef TESTS_MODEL_GOLDEN_H
#define TESTS_MODEL_GOLDEN_H

#include "runtime/model/load.h"

enum { GOLDEN_MAX_FROZEN = 32 };

typedef struct golden {
    shd_model_config config; /* micro_batch 1, threads 1: set by the test */
    char *frozen[GOLDEN_MAX_FROZEN];
    int64_t global_batch, ignored_token; /* −1: none */
    double loss, grad_norm;              /* of step 0, float64 */
    int32_t *tokens;
    int64_t token_count;
    shd_stored_tensor *stored;
    const unsigned char **data; /* of each */
    int32_t stored_count;
    unsigned char *file; /* init.safetensors, whole */
    shd_weight_source source;
} golden;

void golden_open(golden *g, const char *name);
void golden_close(golden *g);

#endif
