/* Random initialisation: each value a pure function of seed, tensor name and element index. */
#include "runtime/base/random.h"
#include "runtime/model/units.h"

#include <math.h>

static void fill_constant(int64_t count, float value, float *values) {
    for (int64_t i = 0; i < count; i++) values[i] = value;
}

/* σ as in GPT-2: 0.02, and less for what is added to the residual stream, so that its variance does not grow with
 * depth. */
sherd_status shd_model_fill_random(void *random, int32_t tensor, int64_t first, int64_t count, float *values) {
    const shd_model_random *source = random;
    const shd_model *model = source->model;
    shd_start start = model->starts[tensor];
    switch (start) {
    case SHD_START_ONES: fill_constant(count, 1, values); return SHERD_OK;
    case SHD_START_ZEROS: fill_constant(count, 0, values); return SHERD_OK;
    case SHD_START_NORMAL:
    case SHD_START_RESIDUAL: break;
    }
    double sigma = start == SHD_START_RESIDUAL ? 0.02 / sqrt(2.0 * (double)model->config.n_layer) : 0.02;
    shd_random_normal(shd_random_key(source->seed, model->tensors[tensor].name), first, count, sigma, values);
    return SHERD_OK;
}
