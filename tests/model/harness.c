#include "harness.h"

#include "runtime/base/dtype.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

double harness_normal(uint64_t *state) {
    double sum = 0; /* twelve uniforms: normal enough, and the same everywhere */
    for (int i = 0; i < 12; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(*state >> 40) / (double)(1 << 24);
    }
    return sum - 6;
}

int64_t harness_elements(const harness *h, int32_t tensor) {
    const sherd_tensor *t = &h->description->tensors[tensor];
    int64_t count = 1;
    for (int32_t i = 0; i < t->dim_count; i++) count *= t->shape[i];
    return count;
}

static void *area(int64_t bytes) {
    if (bytes == 0) return NULL;
    void *memory = NULL;
    cr_assert_eq(posix_memalign(&memory, 64, (size_t)bytes), 0);
    return memory;
}

static void poison(void *memory, int64_t bytes) {
    if (memory) memset(memory, 0xff, (size_t)bytes); /* NaN in float and double */
}

static bool ends_with(const char *text, const char *end) {
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

static void randomize(harness *h, double sigma, uint64_t seed) {
    uint64_t state = seed * 77 + 1;
    for (int32_t t = 0; t < h->description->tensor_count; t++) {
        const sherd_tensor *tensor = &h->description->tensors[t];
        bool matrix = tensor->dim_count == 2, bias = ends_with(tensor->name, ".bias");
        for (int64_t i = 0; i < harness_elements(h, t); i++)
            h->parameters[t][i] = (float)((matrix || bias ? 0 : 1) + (matrix ? sigma : 0.1) * harness_normal(&state));
    }
    bool mlp = h->config.family == SHD_MODEL_MLP;
    uint64_t below = (uint64_t)(mlp ? h->config.outputs : h->config.vocab_size);
    for (int64_t i = 0; i < h->rows; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        h->inputs[i] = (int32_t)((state >> 33) % below);
        state = state * 6364136223846793005u + 1442695040888963407u;
        h->targets[i] = (state >> 20) % 5 == 0 ? -1 : (int32_t)((state >> 33) % below);
    }
    for (int64_t i = 0; mlp && i < h->rows * h->config.inputs; i++)
        h->features[i] = (float)(round(8 * harness_normal(&state)) / 8);
    for (int64_t i = 0; mlp && i < h->rows * h->config.outputs; i++)
        h->values[i] = i % 5 == 3 ? NAN : (float)harness_normal(&state);
}

void harness_open(harness *h, const shd_model_config *config, double sigma, uint64_t seed) {
    bool mlp = config->family == SHD_MODEL_MLP, mse = mlp && config->loss == SHD_MODEL_MSE;
    *h = (harness){.config = *config, .rows = config->micro_batch * (mlp ? 1 : config->context)};
    h->numbers = mse;
    h->loss_count = h->rows * (mse ? config->outputs : 1);
    cr_assert_eq(shd_model_create(config, &h->model), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_pool_create(config->threads, &h->pool), SHERD_OK, "%s", sherd_last_error());
    const sherd_model *d = h->description = shd_model_describe(h->model);
    h->inputs = calloc((size_t)h->rows, sizeof *h->inputs);
    h->targets = calloc((size_t)h->rows, sizeof *h->targets);
    h->losses = calloc((size_t)h->loss_count, sizeof *h->losses);
    h->correct = calloc((size_t)h->rows, sizeof *h->correct);
    h->features = calloc((size_t)(h->rows * config->inputs) + 1, sizeof *h->features);
    h->values = calloc((size_t)(h->rows * config->outputs) + 1, sizeof *h->values);
    h->parameters = calloc((size_t)d->tensor_count, sizeof *h->parameters);
    h->gradients = calloc((size_t)d->tensor_count, sizeof *h->gradients);
    h->stored = calloc((size_t)d->tensor_count, sizeof *h->stored);
    h->outputs = calloc((size_t)d->unit_count, sizeof *h->outputs);
    h->activations = calloc((size_t)d->unit_count, sizeof *h->activations);
    h->remade = calloc((size_t)d->unit_count, sizeof *h->remade);
    for (int32_t t = 0; t < d->tensor_count; t++) {
        h->parameters[t] = area(harness_elements(h, t) * 4);
        h->stored[t] = area(harness_elements(h, t) * shd_dtype_bytes(config->precision));
        if (!d->tensors[t].frozen) h->gradients[t] = area(harness_elements(h, t) * 4);
    }
    for (int32_t u = 0; u < d->unit_count; u++) {
        h->outputs[u] = area(d->units[u].output_bytes);
        h->activations[u] = area(d->units[u].activation_bytes);
        h->remade[u] = area(d->units[u].remade_bytes);
    }
    h->scratch = area(d->scratch_bytes);
    h->logits = area(d->logits_bytes);
    randomize(h, sigma, seed);
    harness_store(h);
    shd_model_bind(h->model, h->pool,
                   &(shd_batch){.inputs = h->inputs,
                                .targets = h->targets,
                                .losses = h->losses,
                                .features = h->features,
                                .values = h->values,
                                .correct = h->correct,
                                .first_sequence = HARNESS_FIRST_SEQUENCE});
}

void harness_store(harness *h) {
    for (int32_t t = 0; t < h->description->tensor_count; t++) {
        shd_round(h->config.precision, harness_elements(h, t), h->parameters[t], h->stored[t]);
        shd_widen(h->config.precision, harness_elements(h, t), h->stored[t], h->parameters[t]);
    }
}

void harness_close(harness *h) {
    for (int32_t t = 0; t < h->description->tensor_count; t++) {
        free(h->parameters[t]);
        free(h->gradients[t]);
        free(h->stored[t]);
    }
    for (int32_t u = 0; u < h->description->unit_count; u++) {
        free(h->outputs[u]);
        free(h->activations[u]);
        free(h->remade[u]);
    }
    free(h->inputs);
    free(h->targets);
    free(h->losses);
    free(h->correct);
    free(h->features);
    free(h->values);
    free(h->parameters);
    free(h->gradients);
    free(h->stored);
    free(h->outputs);
    free(h->activations);
    free(h->remade);
    free(h->scratch);
    free(h->logits);
    shd_pool_destroy(h->pool);
    shd_model_destroy(h->model);
}

int64_t harness_counted(const harness *h) {
    int64_t counted = 0;
    if (h->numbers) {
        for (int64_t i = 0; i < h->loss_count; i++) counted += !isnan(h->values[i]);
        return counted;
    }
    for (int64_t i = 0; i < h->rows; i++) counted += h->targets[i] >= 0;
    return counted;
}

static void lend_unit(const harness *h, int32_t unit, bool backward, const void **parameters, float **gradients) {
    const sherd_unit *u = &h->description->units[unit];
    for (int32_t t = u->first_tensor; t < u->first_tensor + u->tensor_count; t++) {
        parameters[t] = h->stored[t];
        if (backward) gradients[t] = h->gradients[t];
    }
}

static void bracket(harness *h, int32_t unit, bool training, bool backward, float loss_scale) {
    const sherd_model *d = h->description;
    const void **parameters = calloc((size_t)d->tensor_count, sizeof *parameters);
    float **gradients = calloc((size_t)d->tensor_count, sizeof *gradients);
    lend_unit(h, unit, backward, parameters, gradients);
    for (int32_t i = 0; i < d->units[unit].share_count; i++)
        lend_unit(h, d->units[unit].shares[i], backward, parameters, gradients);
    sherd_view view = {
        .unit = unit,
        .training = training,
        .loss_scale = backward ? loss_scale : 0,
        .parameters = parameters,
        .gradients = gradients,
        .outputs = h->outputs,
        .activations = h->activations,
        .remade = h->remade,
        .scratch = h->scratch,
        .logits = h->logits,
    };
    sherd_status status = backward ? shd_model_backward(h->model, &view) : shd_model_forward(h->model, &view);
    cr_assert_eq(status, SHERD_OK, "%s", sherd_last_error());
    free((void *)(uintptr_t)parameters);
    free(gradients);
}

static void poison_all(harness *h) {
    const sherd_model *d = h->description;
    harness_store(h);
    poison(h->scratch, d->scratch_bytes);
    poison(h->logits, d->logits_bytes);
    poison(h->losses, h->loss_count * 8);
    poison(h->correct, h->rows * 8);
    for (int32_t u = 0; u < d->unit_count; u++) {
        poison(h->outputs[u], d->units[u].output_bytes);
        poison(h->activations[u], d->units[u].activation_bytes);
        poison(h->remade[u], d->units[u].remade_bytes);
    }
    for (int32_t t = 0; t < d->tensor_count; t++) poison(h->gradients[t], harness_elements(h, t) * 4);
}

void harness_train(harness *h, float loss_scale) {
    poison_all(h);
    for (int32_t u = 0; u < h->description->unit_count; u++) bracket(h, u, true, false, 0);
    for (int32_t u = h->description->unit_count; u-- > 0;) {
        bracket(h, u, true, true, loss_scale);
        poison(h->activations[u], h->description->units[u].activation_bytes);
        poison(h->remade[u], h->description->units[u].remade_bytes);
    }
}

void harness_evaluate(harness *h) {
    poison_all(h);
    for (int32_t u = 0; u < h->description->unit_count; u++) bracket(h, u, false, false, 0);
}
