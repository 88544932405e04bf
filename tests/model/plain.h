/* The models' loss in float64, in plain loops: what the built-in models are held to. Written from the formulas,
 * sharing nothing with them. */
#ifndef TESTS_MODEL_PLAIN_H
#define TESTS_MODEL_PLAIN_H

#include "runtime/model/model.h"

/* Parameters in the order of the reference runs' init files. losses: [micro_batch × context], 0 where a target is
 * negative. With the config's dropout, for sequences numbered from first_sequence on. Returns their sum. */
double plain_loss(const shd_model_config *config, double *const *parameters, int64_t first_sequence,
                  const int32_t *inputs, const int32_t *targets, double *losses);

/* The same of an mlp: losses as shd_batch has them, likewise `correct`, which may be NULL. */
double plain_mlp_loss(const shd_model_config *config, double *const *parameters, const float *features,
                      const int32_t *targets, const float *values, double *losses, double *correct);

/* Without dropout. The logits [vocab_size] that follow `count` ≤ context tokens of one sequence. */
void plain_logits(const shd_model_config *config, double *const *parameters, const int32_t *inputs, int64_t count,
                  double *logits);

#endif
