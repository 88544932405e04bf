/* Cross-entropy, a row at a time: largest logit, exponentials and their sum, then the gradient in place. */
#include "runtime/ops/ops.h"

#include "runtime/base/cut.h"
#include "runtime/base/dtype.h"
#include "runtime/ops/kernels/kernels.h"

#include <math.h>
#include <string.h>

typedef struct cross_entropy {
    const shd_kernels *kernels;
    sherd_dtype dtype; /* of the gradient */
    int64_t rows, vocabulary;
    float *logits;
    const int32_t *targets;
    float scale;
    bool gradient;
    double *loss;
} cross_entropy;

/* Σ exp(x - shift) with nothing kept; the pieces are whole blocks of exp_sum, so the sum has the bits it would have in
 * one call. */
static double exp_sum_only(const shd_kernels *kernels, int64_t count, const float *x, float shift) {
    float dropped[256];
    double sum = 0;
    for (int64_t at = 0; at < count; at += 256)
        sum += kernels->exp_sum(shd_min(256, count - at), x + at, shift, dropped);
    return sum;
}

static void row(const cross_entropy *c, int64_t i) {
    float *logits = c->logits + i * c->vocabulary;
    const int32_t target = c->targets[i];
    if (target < 0) {
        c->loss[i] = 0;
        if (c->gradient) memset(logits, 0, (size_t)(c->vocabulary * shd_dtype_bytes(c->dtype)));
        return;
    }
    const float largest = c->kernels->max(c->vocabulary, logits);
    const double target_logit = (double)logits[target];
    const double sum = c->gradient ? c->kernels->exp_sum(c->vocabulary, logits, largest, logits)
                                   : exp_sum_only(c->kernels, c->vocabulary, logits, largest);
    c->loss[i] = log(sum) + ((double)largest - target_logit);
    if (!c->gradient) return;
    const float target_gradient = (float)(((double)logits[target] / sum - 1.0) * (double)c->scale);
    c->kernels->scale(c->vocabulary, (float)((double)c->scale / sum), logits, logits);
    c->kernels->scale(1, 1.0f, &target_gradient, shd_element(c->dtype, logits, target));
}

static void cross_entropy_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const cross_entropy *c = argument;
    int64_t count, first = shd_cut(c->rows, shd_rows_per_task(c->vocabulary), index, &count);
    for (int64_t i = first; i < first + count; i++) row(c, i);
}

void shd_op_cross_entropy(const shd_math *math, int64_t rows, int64_t vocabulary, float *logits, const int32_t *targets,
                          float scale, bool gradient, double *loss) {
    cross_entropy c = {.kernels = shd_kernels_get(math->dtype),
                       .dtype = math->dtype,
                       .rows = rows,
                       .vocabulary = vocabulary,
                       .logits = logits,
                       .targets = targets,
                       .scale = scale,
                       .gradient = gradient,
                       .loss = loss};
    shd_pool_run(math->pool, cross_entropy_task, &c, shd_div_ceil(rows, shd_rows_per_task(vocabulary)));
}
