/* A tensor on its way under an optimizer that needs it whole. */
#ifndef SHD_TESTS_OPTIM_WHOLE_RUN_H
#define SHD_TESTS_OPTIM_WHOLE_RUN_H

#include "optim/whole.h"
#include "optim/whole_parts.h"

typedef struct whole_run {
    const sherd_tensor *tensor;
    int64_t count;
    float *p, *g, *states[SHD_WHOLE_STATES_MAX];
    void *work;
} whole_run;

/* Everything zero. */
whole_run whole_run_make(const sherd_optimizer *optimizer, const sherd_tensor *tensor);
void whole_run_free(whole_run *run);
/* One update with the gradient in run->g, which becomes the step. */
void whole_run_update(whole_run *run, const sherd_optimizer *optimizer, shd_pool *pool, int64_t step, double lr,
                      double weight_decay, float gradient_scale);

#endif
