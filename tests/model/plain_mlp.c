#include "plain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double activate(const shd_model_config *c, double x) {
    if (c->activation == SHD_MODEL_RELU) return x > 0 ? x : 0;
    return x / 2 * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

/* The outputs of one sample, in the memory that is returned. */
static double *outputs_of(const shd_model_config *c, double *const *parameters, const float *features) {
    double *x = malloc((size_t)c->inputs * sizeof *x);
    for (int64_t i = 0; i < c->inputs; i++) x[i] = features[i];
    int64_t in = c->inputs;
    for (int64_t layer = 0; layer <= c->n_layer; layer++) {
        int64_t out = layer == c->n_layer ? c->outputs : c->hidden;
        const double *weight = parameters[2 * layer], *bias = parameters[2 * layer + 1];
        double *y = malloc((size_t)out * sizeof *y);
        for (int64_t j = 0; j < out; j++) {
            y[j] = bias[j];
            for (int64_t i = 0; i < in; i++) y[j] += weight[j * in + i] * x[i];
            if (layer < c->n_layer) y[j] = activate(c, y[j]);
        }
        free(x);
        x = y;
        in = out;
    }
    return x;
}

static double cross_entropy(int64_t classes, const double *logits, int32_t target, double *correct) {
    double sum = 0;
    int64_t best = 0;
    for (int64_t j = 0; j < classes; j++) {
        sum += exp(logits[j]);
        if (logits[j] > logits[best]) best = j;
    }
    *correct = best == target;
    return target < 0 ? 0 : log(sum) - logits[target];
}

double plain_mlp_loss(const shd_model_config *c, double *const *parameters, const float *features,
                      const int32_t *targets, const float *values, double *losses, double *correct) {
    double total = 0;
    for (int64_t row = 0; row < c->micro_batch; row++) {
        double *outputs = outputs_of(c, parameters, features + row * c->inputs), predicted = 0;
        if (c->loss == SHD_MODEL_CROSS_ENTROPY) {
            losses[row] = cross_entropy(c->outputs, outputs, targets[row], &predicted);
            total += losses[row];
        }
        for (int64_t j = 0; c->loss == SHD_MODEL_MSE && j < c->outputs; j++) {
            double target = values[row * c->outputs + j];
            losses[row * c->outputs + j] = isnan(target) ? 0 : (outputs[j] - target) * (outputs[j] - target);
            total += losses[row * c->outputs + j];
        }
        if (correct) correct[row] = predicted;
        free(outputs);
    }
    return total;
}
