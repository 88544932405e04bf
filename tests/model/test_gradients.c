/* Loss and gradients against the plain float64 model: losses directly, gradients by central differences of it. In 16 bits
 * the plain model has the rounded parameters, and what is between is the rounding of activations and their gradients. */
#include "harness.h"
#include "plain.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const shd_model_config gpt2 = {.family = SHD_MODEL_GPT2,
                                      .vocab_size = 19,
                                      .context = 7,
                                      .d_model = 15,
                                      .n_layer = 2,
                                      .n_head = 3,
                                      .tied_embeddings = true,
                                      .micro_batch = 2,
                                      .threads = 1};
static const shd_model_config llama = {.family = SHD_MODEL_LLAMA,
                                       .vocab_size = 23,
                                       .context = 9,
                                       .d_model = 24,
                                       .n_layer = 2,
                                       .n_head = 6,
                                       .n_kv_head = 2,
                                       .d_ff = 17,
                                       .rope_theta = 50,
                                       .micro_batch = 2,
                                       .threads = 1};

/* The plain model over a harness's parameters, in float64. */
typedef struct twin {
    const harness *h;
    shd_model_config config;
    double **parameters, *losses, *correct;
} twin;

static void twin_open(twin *t, const harness *h) {
    int32_t count = h->description->tensor_count;
    *t = (twin){h, h->config, calloc((size_t)count, sizeof(double *)), calloc((size_t)h->loss_count, sizeof(double)),
                calloc((size_t)h->rows, sizeof(double))};
    for (int32_t i = 0; i < count; i++) {
        int64_t n = harness_elements(h, i);
        t->parameters[i] = calloc((size_t)n, sizeof(double));
        for (int64_t j = 0; j < n; j++) t->parameters[i][j] = h->parameters[i][j];
    }
}

static void twin_close(twin *t) {
    for (int32_t i = 0; i < t->h->description->tensor_count; i++) free(t->parameters[i]);
    free(t->parameters);
    free(t->losses);
    free(t->correct);
}

static double twin_loss(twin *t) {
    if (t->h->config.family == SHD_MODEL_MLP)
        return plain_mlp_loss(&t->h->config, t->parameters, t->h->features, t->h->targets, t->h->values, t->losses,
                              t->correct);
    return plain_loss(&t->config, t->parameters, HARNESS_FIRST_SEQUENCE, t->h->inputs, t->h->targets, t->losses);
}

/* d loss / d ε of parameters + ε·direction; four points, error O(step⁴). A short step seldom meets the kink of ReLU. */
static double slope(twin *t, int32_t tensor, const double *direction) {
    static const double at[] = {-2, -1, 1, 2}, weight[] = {1, -8, 8, -1};
    int64_t n = harness_elements(t->h, tensor);
    double *values = t->parameters[tensor], sum = 0;
    double step = t->h->config.family == SHD_MODEL_MLP ? 1e-6 : 1e-4;
    double *saved = calloc((size_t)n, sizeof *saved);
    memcpy(saved, values, (size_t)n * sizeof *saved);
    for (int p = 0; p < 4; p++) {
        for (int64_t i = 0; i < n; i++) values[i] = saved[i] + at[p] * step * direction[i];
        sum += weight[p] * twin_loss(t);
    }
    memcpy(values, saved, (size_t)n * sizeof *saved);
    free(saved);
    return sum / (12 * step);
}

/* Where the model tells classes: those that lead clearly are told alike. */
static void check_correct(twin *t) {
    int64_t same = 0;
    if (t->h->config.family != SHD_MODEL_MLP || t->h->numbers) return;
    for (int64_t i = 0; i < t->h->rows; i++) same += t->h->correct[i] == (t->h->targets[i] < 0 ? 0 : t->correct[i]);
    cr_assert_geq(same, t->h->config.precision == SHERD_FP32 ? t->h->rows : t->h->rows - 1);
}

enum { SAMPLES = 8 };

static double largest_of(const harness *h, int32_t tensor) {
    double largest = 0;
    for (int64_t i = 0; h->gradients[tensor] && i < harness_elements(h, tensor); i++) {
        float value = h->gradients[tensor][i];
        cr_assert(isfinite(value), "%s[%ld] was not written", h->description->tensors[tensor].name, (long)i);
        largest = fmax(largest, fabs(value));
    }
    return largest;
}

/* Of a tensor's largest gradient: the rounding of each type through a few layers. Of the model's largest: what remains
 * where exact values cancel. Of a loss. */
static const struct {
    double tensor, model, loss;
} tolerances[] = {
    [SHERD_FP32] = {2e-5, 3e-7, 1e-5}, [SHERD_BF16] = {5e-2, 5e-4, 8e-2}, [SHERD_FP16] = {6e-3, 6e-5, 1e-2}};

/* Sampled elements, then a random direction through all of them, so that no element goes unseen (the tolerance times
 * √elements). */
static void check_tensor(twin *t, int32_t tensor, double scale, double model_largest, uint64_t *state) {
    const harness *h = t->h;
    const float *gradient = h->gradients[tensor];
    int64_t n = harness_elements(h, tensor);
    double *direction = calloc((size_t)n, sizeof *direction), dot = 0;
    double tolerance = tolerances[h->config.precision].tensor * largest_of(h, tensor) +
                       tolerances[h->config.precision].model * model_largest;
    for (int s = 0; s < SAMPLES; s++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        int64_t i = (int64_t)((*state >> 33) % (uint64_t)n);
        direction[i] = 1;
        double expected = scale * slope(t, tensor, direction);
        direction[i] = 0;
        cr_assert_float_eq(gradient[i], expected, tolerance, "%s[%ld]: %.9g, expected %.9g, tolerance %.3g",
                           h->description->tensors[tensor].name, (long)i, gradient[i], expected, tolerance);
    }
    for (int64_t i = 0; i < n; i++) dot += gradient[i] * (direction[i] = harness_normal(state));
    double expected = scale * slope(t, tensor, direction);
    cr_assert_float_eq(dot, expected, tolerance * sqrt((double)n), "%s along a direction: %.9g, expected %.9g",
                       h->description->tensors[tensor].name, dot, expected);
    free(direction);
}

static void check_losses(twin *t) {
    twin_loss(t);
    for (int64_t i = 0; i < t->h->loss_count; i++)
        cr_assert_float_eq(t->h->losses[i], t->losses[i], tolerances[t->h->config.precision].loss,
                           "loss of token %ld: %.9g, expected %.9g", (long)i, t->h->losses[i], t->losses[i]);
}

static void check_in(sherd_dtype precision, const shd_model_config *config, uint64_t seed) {
    harness h;
    shd_model_config typed = *config;
    typed.precision = precision;
    harness_open(&h, &typed, 0.3, seed);
    twin t;
    twin_open(&t, &h);
    float scale = 1.0f / (float)harness_counted(&h);
    harness_train(&h, scale);
    check_losses(&t);
    check_correct(&t);
    double largest = 0;
    for (int32_t i = 0; i < h.description->tensor_count; i++) largest = fmax(largest, largest_of(&h, i));
    uint64_t state = seed;
    for (int32_t i = 0; i < h.description->tensor_count; i++)
        if (h.gradients[i]) check_tensor(&t, i, scale, largest, &state);
    harness_evaluate(&h);
    t.config.dropout = 0; /* in training only */
    check_losses(&t);
    check_correct(&t);
    twin_close(&t);
    harness_close(&h);
}

static void check(const shd_model_config *config, uint64_t seed) {
    for (sherd_dtype precision = SHERD_FP32; precision <= SHERD_FP16; precision++) check_in(precision, config, seed);
}

Test(gradients, of_gpt2_tied) { check(&gpt2, 1); }

Test(gradients, of_gpt2_untied) {
    shd_model_config config = gpt2;
    config.tied_embeddings = false;
    check(&config, 2);
}

Test(gradients, of_gpt2_with_dropout) {
    shd_model_config config = gpt2;
    config.dropout = 0.2;
    config.seed = 3;
    check(&config, 12);
    config.dropout = 0.5;
    config.context = 70; /* rows of more than one group of drawn columns, blocks of more than one of queries */
    config.n_layer = 1;
    config.tied_embeddings = false;
    check_in(SHERD_FP32, &config, 13);
}

Test(gradients, of_llama_with_dropout) {
    shd_model_config config = llama;
    config.dropout = 0.3;
    config.seed = 4;
    check(&config, 14);
    config.dropout = 0.1;
    config.d_model = 96; /* too wide for 16 bits' tolerances */
    config.n_layer = 1;
    check_in(SHERD_FP32, &config, 15);
}

Test(gradients, of_llama_untied_with_grouped_queries) { check(&llama, 3); }

Test(gradients, of_llama_tied_with_one_key_value_head) {
    shd_model_config config = llama;
    config.tied_embeddings = true;
    config.n_kv_head = 1;
    check(&config, 4);
}

Test(gradients, of_llama_with_a_head_for_every_query_and_a_wide_inner) {
    shd_model_config config = llama;
    config.n_kv_head = 6;
    config.d_ff = 131;
    check(&config, 5);
}

Test(gradients, of_one_token_contexts_and_one_layer) {
    shd_model_config a = gpt2, b = llama;
    a.context = b.context = 1;
    a.n_layer = b.n_layer = 1;
    a.micro_batch = b.micro_batch = 5;
    check(&a, 6);
    check(&b, 7);
}

Test(gradients, of_one_head_of_the_whole_width) {
    shd_model_config a = gpt2, b = llama;
    a.n_head = 1;
    b.n_head = b.n_kv_head = 1;
    check(&a, 8);
    check(&b, 9);
}

/* 300 rows against chunks of 256: the second chunk adds to the first one's matrix gradient. */
Test(gradients, of_more_rows_than_a_chunk_of_logits) {
    shd_model_config a = gpt2, b = llama;
    a.context = 150;
    a.n_layer = b.n_layer = 1;
    b.context = 20;
    b.micro_batch = 15;
    check(&a, 10);
    check(&b, 11);
}

static const shd_model_config mlp = {
    .family = SHD_MODEL_MLP, .inputs = 11, .outputs = 5, .hidden = 17, .n_layer = 2, .micro_batch = 13, .threads = 1};

Test(gradients, of_an_mlp_that_tells_classes) {
    check(&mlp, 12);
    shd_model_config config = mlp;
    config.activation = SHD_MODEL_GELU;
    check(&config, 13);
}

Test(gradients, of_an_mlp_that_gives_numbers) {
    shd_model_config config = mlp;
    config.loss = SHD_MODEL_MSE;
    check(&config, 14);
    config.activation = SHD_MODEL_GELU;
    config.outputs = 1;
    check(&config, 15);
}

Test(gradients, of_mlps_of_one_and_of_many_layers) {
    shd_model_config config = mlp;
    config.n_layer = 1;
    config.micro_batch = 1;
    check(&config, 16);
    config.n_layer = 5;
    config.micro_batch = 300;
    config.activation = SHD_MODEL_GELU;
    check(&config, 17);
}

Test(gradients, of_an_mlp_whose_lower_layers_are_frozen) {
    static const char *const below[] = {"layers.0.*", "layers.1.weight"}, *const output[] = {"layers.2.*"};
    shd_model_config config = mlp;
    config.frozen = below;
    config.frozen_count = 2;
    check(&config, 18);
    config.frozen = output;
    config.frozen_count = 1;
    check(&config, 19);
}
