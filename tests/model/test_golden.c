/* Step 0 of the reference runs, through the callbacks alone, at every micro-batch size. */
#include "golden.h"
#include "harness.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void load_weights(harness *h, const golden *g) {
    shd_weights *weights;
    cr_assert_eq(shd_weights_create(h->model, &g->source, &weights), SHERD_OK, "%s", sherd_last_error());
    for (int32_t t = 0; t < h->description->tensor_count; t++)
        cr_assert_eq(shd_weights_fill(weights, t, 0, harness_elements(h, t), h->parameters[t]), SHERD_OK);
    shd_weights_destroy(weights);
}

/* Micro-batch number `index` of step 0. */
static void set_batch(harness *h, const golden *g, int64_t index) {
    for (int64_t i = 0; i < h->rows; i++) {
        int64_t position = index * h->rows + i;
        int32_t target = g->tokens[position + 1];
        h->inputs[i] = g->tokens[position];
        h->targets[i] = target == g->ignored_token ? -1 : target;
    }
}

static int64_t counted_in_step(const golden *g) {
    int64_t counted = 0;
    for (int64_t i = 1; i <= g->global_batch * g->config.context; i++) counted += g->tokens[i] != g->ignored_token;
    return counted;
}

static void check_step(const golden *g, const char *name, int64_t micro_batch) {
    harness h;
    shd_model_config config = g->config;
    config.micro_batch = micro_batch;
    harness_open(&h, &config, 0, 1);
    load_weights(&h, g);
    int32_t tensors = h.description->tensor_count;
    float **sums = calloc((size_t)tensors, sizeof *sums);
    for (int32_t t = 0; t < tensors; t++)
        if (h.gradients[t]) sums[t] = calloc((size_t)harness_elements(&h, t), sizeof(float));
    int64_t counted = counted_in_step(g);
    double loss = 0, square = 0;
    for (int64_t b = 0; b < g->global_batch / micro_batch; b++) {
        set_batch(&h, g, b);
        harness_train(&h, 1.0f / (float)counted);
        for (int64_t i = 0; i < h.rows; i++) loss += h.losses[i] / (double)counted;
        for (int32_t t = 0; t < tensors; t++)
            for (int64_t i = 0; sums[t] && i < harness_elements(&h, t); i++) sums[t][i] += h.gradients[t][i];
    }
    for (int32_t t = 0; t < tensors; t++) {
        for (int64_t i = 0; sums[t] && i < harness_elements(&h, t); i++) square += (double)sums[t][i] * sums[t][i];
        free(sums[t]);
    }
    free(sums);
    cr_assert_float_eq(loss, g->loss, 2e-5, "%s, micro-batch %ld: loss %.12g, expected %.12g", name, (long)micro_batch,
                       loss, g->loss);
    cr_assert_float_eq(sqrt(square), g->grad_norm, 1e-4 * g->grad_norm,
                       "%s, micro-batch %ld: norm %.12g, expected %.12g", name, (long)micro_batch, sqrt(square),
                       g->grad_norm);
    harness_close(&h);
}

static void check_case(const char *name) {
    golden g;
    golden_open(&g, name);
    for (int64_t micro_batch = 1; micro_batch <= g.global_batch; micro_batch++)
        if (g.global_batch % micro_batch == 0) check_step(&g, name, micro_batch);
    golden_close(&g);
}

Test(golden, gpt2_tiny) { check_case("gpt2-tiny"); }
Test(golden, gpt2_masked) { check_case("gpt2-masked"); }
Test(golden, gpt2_sgd) { check_case("gpt2-sgd"); }
Test(golden, gpt2_frozen) { check_case("gpt2-frozen"); }
Test(golden, llama_tiny) { check_case("llama-tiny"); }
Test(golden, llama_lion) { check_case("llama-lion"); }

Test(golden, tensors_come_in_the_order_of_the_init_files) {
    const char *names[] = {"gpt2-tiny", "llama-tiny", "llama-lion"};
    for (int c = 0; c < 3; c++) {
        golden g;
        golden_open(&g, names[c]);
        shd_model *model;
        cr_assert_eq(shd_model_create(&g.config, &model), SHERD_OK);
        const sherd_model *d = shd_model_describe(model);
        cr_assert_eq(d->tensor_count, g.stored_count);
        for (int32_t t = 0; t < d->tensor_count; t++) {
            cr_assert_str_eq(d->tensors[t].name, g.stored[t].name);
            cr_assert_eq(d->tensors[t].dim_count, g.stored[t].dim_count);
            for (int32_t i = 0; i < d->tensors[t].dim_count; i++)
                cr_assert_eq(d->tensors[t].shape[i], g.stored[t].shape[i]);
        }
        shd_model_destroy(model);
        golden_close(&g);
    }
}
