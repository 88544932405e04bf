/* Random initialisation: each value a pure function of seed, tensor name and element index. */
#include "runtime/base/random.h"
#include "runtime/model/units.h"

#include <math.h>

static void fill_constant(int64_t count, float value, float *values) {
    for (int64_t i = 0; i < count; i++) values[i] = value;
}

/* As in GPT-2: 0.02, and less for what is added to the residual stream, so that its variance does not grow with depth.
 * Before an activation that halves the second moment, as He et al., "Delving deep into rectifiers", 2015: √(2/inputs). */
static double sigma_of(const shd_model *model, int32_t tensor) {
    double inputs = (double)model->tensors[tensor].shape[1];
    switch (model->starts[tensor]) {
    case SHD_START_RESIDUAL: return 0.02 / sqrt(2.0 * (double)model->config.n_layer);
    case SHD_START_ACTIVATED: return sqrt(2 / inputs);
    case SHD_START_LINEAR: return sqrt(1 / inputs);
    default: return 0.02;
    }
}

sherd_status shd_model_fill_random(void *random, int32_t tensor, int64_t first, int64_t count, float *values) {
    const shd_model_random *source = random;
    const shd_model *model = source->model;
    shd_start start = model->starts[tensor];
    switch (start) {
    case SHD_START_ONES: fill_constant(count, 1, values); return SHERD_OK;
    case SHD_START_ZEROS: fill_constant(count, 0, values); return SHERD_OK;
    case SHD_START_NORMAL:
    case SHD_START_RESIDUAL:
    case SHD_START_ACTIVATED:
    case SHD_START_LINEAR: break;
    }
    double sigma = sigma_of(model, tensor);
    shd_random_normal(shd_random_key(source->seed, model->tensors[tensor].name), first, count, sigma, values);
    return SHERD_OK;
}
