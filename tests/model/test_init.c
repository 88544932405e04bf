/* Random initialisation. */
#include "harness.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static const shd_model_config config = {.family = SHD_MODEL_GPT2,
                                        .vocab_size = 257,
                                        .context = 16,
                                        .d_model = 64,
                                        .n_layer = 8,
                                        .n_head = 4,
                                        .micro_batch = 1,
                                        .threads = 1};
static const shd_model_config llama = {.family = SHD_MODEL_LLAMA,
                                       .vocab_size = 257,
                                       .context = 16,
                                       .d_model = 64,
                                       .n_layer = 2,
                                       .n_head = 4,
                                       .n_kv_head = 2,
                                       .d_ff = 96,
                                       .rope_theta = 1e4,
                                       .tied_embeddings = true,
                                       .micro_batch = 1,
                                       .threads = 1};

static void fill(harness *h, uint64_t seed) {
    shd_model_random random = {h->model, seed};
    for (int32_t t = 0; t < h->description->tensor_count; t++)
        cr_assert_eq(shd_model_fill_random(&random, t, 0, harness_elements(h, t), h->parameters[t]), SHERD_OK);
}

/* Mean and deviation within five standard errors. */
static void check_normal(const harness *h, int32_t t, double sigma) {
    double n = (double)harness_elements(h, t), sum = 0, square = 0;
    for (int64_t i = 0; i < harness_elements(h, t); i++) {
        sum += h->parameters[t][i];
        square += (double)h->parameters[t][i] * h->parameters[t][i];
    }
    const char *name = h->description->tensors[t].name;
    cr_assert_float_eq(sum / n, 0, 5 * sigma / sqrt(n), "%s: mean %g", name, sum / n);
    cr_assert_float_eq(sqrt(square / n), sigma, 5 * sigma / sqrt(2 * n), "%s: deviation %g", name, sqrt(square / n));
}

static void check_all(const shd_model_config *c, double residual_sigma) {
    harness h;
    harness_open(&h, c, 0, 1);
    fill(&h, 42);
    for (int32_t t = 0; t < h.description->tensor_count; t++) {
        const sherd_tensor *tensor = &h.description->tensors[t];
        bool residual = strstr(tensor->name, "c_proj.weight") || strstr(tensor->name, "o_proj.weight") ||
                        strstr(tensor->name, "down_proj.weight");
        if (tensor->dim_count == 2)
            check_normal(&h, t, residual ? residual_sigma : 0.02);
        else
            for (int64_t i = 0; i < harness_elements(&h, t); i++)
                cr_assert_eq(h.parameters[t][i], strstr(tensor->name, ".bias") ? 0 : 1, "%s", tensor->name);
    }
    harness_close(&h);
}

Test(init, matrices_are_normal_gains_one_biases_zero) {
    check_all(&config, 0.02 / 4); /* √(2·8) */
    check_all(&llama, 0.02 / 2);
}

Test(init, values_do_not_depend_on_the_slice_asked_for) {
    harness h;
    harness_open(&h, &config, 0, 1);
    fill(&h, 7);
    shd_model_random random = {h.model, 7};
    float slice[64];
    for (int32_t t = 0; t < h.description->tensor_count; t++)
        for (int64_t first = 1; first + 1 < harness_elements(&h, t); first = first * 3 + 1) {
            int64_t count = harness_elements(&h, t) - first < 37 ? harness_elements(&h, t) - first : 37;
            cr_assert_eq(shd_model_fill_random(&random, t, first, count, slice), SHERD_OK);
            cr_assert_eq(memcmp(slice, h.parameters[t] + first, (size_t)count * 4), 0);
        }
    harness_close(&h);
}

/* A tensor's values follow from seed and name: another depth keeps a block's, another seed or another name changes
 * them. */
Test(init, values_are_keyed_by_seed_and_name) {
    shd_model_config deep = config;
    deep.n_layer = 9;
    harness a, b;
    harness_open(&a, &config, 0, 1);
    harness_open(&b, &deep, 0, 1);
    fill(&a, 7);
    fill(&b, 7);
    int32_t c_attn = 2 + 12 * 3 + 2, next = c_attn + 12;
    cr_assert_str_eq(a.description->tensors[c_attn].name, "h.3.attn.c_attn.weight");
    size_t bytes = (size_t)harness_elements(&a, c_attn) * 4;
    cr_assert_eq(memcmp(a.parameters[c_attn], b.parameters[c_attn], bytes), 0);
    cr_assert_neq(memcmp(a.parameters[c_attn], a.parameters[next], bytes), 0);
    fill(&b, 8);
    cr_assert_neq(memcmp(a.parameters[c_attn], b.parameters[c_attn], bytes), 0);
    harness_close(&a);
    harness_close(&b);
}

Test(init, an_mlp_keeps_the_scale_of_its_samples_from_layer_to_layer) {
    const shd_model_config mlp = {.family = SHD_MODEL_MLP,
                                  .inputs = 100,
                                  .outputs = 30,
                                  .hidden = 200,
                                  .n_layer = 2,
                                  .micro_batch = 1,
                                  .threads = 1};
    harness h;
    harness_open(&h, &mlp, 0, 1);
    fill(&h, 42);
    check_normal(&h, 0, sqrt(2.0 / 100));
    check_normal(&h, 2, sqrt(2.0 / 200));
    check_normal(&h, 4, sqrt(1.0 / 200));
    for (int32_t t = 1; t < 6; t += 2)
        for (int64_t i = 0; i < harness_elements(&h, t); i++) cr_assert_eq(h.parameters[t][i], 0);
    harness_close(&h);
}
