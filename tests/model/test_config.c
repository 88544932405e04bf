/* The description, and every configuration that is refused. */
#include "harness.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static const shd_model_config gpt2 = {.family = SHD_MODEL_GPT2,
                                      .vocab_size = 11,
                                      .context = 4,
                                      .d_model = 6,
                                      .n_layer = 2,
                                      .n_head = 3,
                                      .tied_embeddings = true,
                                      .micro_batch = 1,
                                      .threads = 1};
static const shd_model_config llama = {.family = SHD_MODEL_LLAMA,
                                       .vocab_size = 11,
                                       .context = 4,
                                       .d_model = 12,
                                       .n_layer = 1,
                                       .n_head = 6,
                                       .n_kv_head = 3,
                                       .d_ff = 7,
                                       .rope_theta = 1e4,
                                       .micro_batch = 1,
                                       .threads = 1};

static void refused(const shd_model_config *config, const char *message) {
    shd_model *model = NULL;
    cr_assert_eq(shd_model_create(config, &model), SHERD_CONFIG, "accepted, but: %s", message);
    cr_assert_null(model);
    cr_assert(strstr(sherd_last_error(), message), "\"%s\" does not say \"%s\"", sherd_last_error(), message);
}

/* `base` with one field changed. */
#define REFUSED(base, field, value, message)                                                                           \
    do {                                                                                                               \
        shd_model_config config = base;                                                                                \
        config.field = value;                                                                                          \
        refused(&config, message);                                                                                     \
    } while (0)

static const shd_model_config mlp = {
    .family = SHD_MODEL_MLP, .inputs = 6, .outputs = 3, .hidden = 8, .n_layer = 2, .micro_batch = 4, .threads = 1};

Test(config, of_an_mlp_is_refused_by_name_too) {
    REFUSED(mlp, inputs, 0, "model.inputs 0 must be at least 1");
    REFUSED(mlp, outputs, -1, "model.outputs -1 must be at least 1");
    REFUSED(mlp, hidden, 0, "model.hidden 0 must be at least 1");
    REFUSED(mlp, n_layer, 0, "model.n_layer 0 must be at least 1");
    REFUSED(mlp, micro_batch, 0, "train.micro_batch 0 must be at least 1");
    REFUSED(mlp, outputs, 1, "model.outputs 1 is too few for model.loss cross_entropy");
    REFUSED(mlp, activation, 7, "model.activation 7 is none of relu, gelu");
    REFUSED(mlp, loss, 7, "model.loss 7 is none of cross_entropy, mse");
    REFUSED(mlp, micro_batch, 1 << 29, "train.micro_batch 536870912 is above 268435456");
    shd_model_config large = mlp;
    large.hidden = 1 << 28;
    large.n_layer = 1 << 16;
    refused(&large, "are too large together");
}

Test(config, an_mlp_is_described_layer_by_layer) {
    shd_model *model = NULL;
    cr_assert_eq(shd_model_create(&mlp, &model), SHERD_OK, "%s", sherd_last_error());
    const sherd_model *d = shd_model_describe(model);
    static const struct {
        const char *name;
        int64_t rows, columns;
    } tensors[] = {{"layers.0.weight", 8, 6}, {"layers.0.bias", 8, 0},   {"layers.1.weight", 8, 8},
                   {"layers.1.bias", 8, 0},   {"layers.2.weight", 3, 8}, {"layers.2.bias", 3, 0}};
    cr_assert_eq(d->unit_count, 3);
    cr_assert_eq(d->tensor_count, 6);
    for (int t = 0; t < 6; t++) {
        cr_expect_str_eq(d->tensors[t].name, tensors[t].name);
        cr_expect_eq(d->tensors[t].dim_count, tensors[t].columns ? 2 : 1);
        cr_expect_eq(d->tensors[t].shape[0], tensors[t].rows);
        if (tensors[t].columns) cr_expect_eq(d->tensors[t].shape[1], tensors[t].columns);
    }
    /* ReLU is undone from its result alone, and nothing is kept for it. */
    cr_expect_eq(d->units[0].output_bytes, 4 * 8 * 4);
    cr_expect_eq(d->units[0].activation_bytes, 0);
    cr_expect_eq(d->units[2].output_bytes, 0);
    cr_expect_eq(d->logits_bytes, 64);
    shd_model_destroy(model);
    shd_model_config gelu = mlp;
    gelu.activation = SHD_MODEL_GELU;
    cr_assert_eq(shd_model_create(&gelu, &model), SHERD_OK);
    cr_expect_eq(shd_model_describe(model)->units[1].activation_bytes, 4 * 8 * 4);
    shd_model_destroy(model);
}

Test(config, sizes_below_one_are_refused_by_name) {
    REFUSED(gpt2, vocab_size, 0, "model.vocab_size 0 must be at least 1");
    REFUSED(gpt2, context, -1, "model.context -1 must be at least 1");
    REFUSED(gpt2, d_model, 0, "model.d_model 0 must be at least 1");
    REFUSED(gpt2, n_layer, 0, "model.n_layer 0 must be at least 1");
    REFUSED(gpt2, n_head, 0, "model.n_head 0 must be at least 1");
    REFUSED(gpt2, micro_batch, 0, "train.micro_batch 0 must be at least 1");
    REFUSED(gpt2, threads, 0, "run.threads 0 must be at least 1");
    REFUSED(llama, n_kv_head, 0, "model.n_kv_head 0 must be at least 1");
    REFUSED(llama, d_ff, INT64_MIN, "model.d_ff -9223372036854775808 must be at least 1");
}

Test(config, sizes_that_overflow_are_refused_by_name) {
    REFUSED(gpt2, vocab_size, INT64_MAX, "model.vocab_size 9223372036854775807 is above 2147483647");
    REFUSED(gpt2, context, (int64_t)1 << 40, "model.context 1099511627776 is above");
    REFUSED(gpt2, d_model, (int64_t)3 << 40, "model.d_model 3298534883328 is above");
    REFUSED(gpt2, n_layer, 1 << 30, "model.n_layer 1073741824 is above 65536");
    REFUSED(gpt2, micro_batch, (int64_t)1 << 40, "train.micro_batch 1099511627776 is above");
    REFUSED(llama, d_ff, INT64_MAX, "model.d_ff 9223372036854775807 is above");
    shd_model_config wide = gpt2;
    wide.micro_batch = wide.context = 1 << 20;
    refused(&wide, "train.micro_batch 1048576 × model.context 1048576 is above 2147483647 tokens at once");
    wide.micro_batch = 1 << 10;
    wide.d_model = 3 << 26;
    wide.n_layer = 65536;
    refused(&wide, "too large together");
}

Test(config, sizes_that_do_not_fit_each_other_are_refused_by_name) {
    REFUSED(gpt2, d_model, 50,
            "model.d_model 50 is not a multiple of model.n_head 3; the nearest that fit are 48 and 51");
    REFUSED(gpt2, d_model, 2, "model.d_model 2 is below model.n_head 3; the least that fits is 3");
    REFUSED(llama, n_kv_head, 4, "model.n_kv_head 4 does not divide model.n_head 6; take a divisor of it");
    REFUSED(llama, n_kv_head, 12, "model.n_kv_head 12 does not divide model.n_head 6");
    REFUSED(llama, d_model, 18,
            "model.d_model 18 / model.n_head 6 gives heads of 3: rotary positions need an even head size");
    REFUSED(llama, rope_theta, 0, "model.rope_theta 0 must be a finite number of at least 1");
    REFUSED(llama, rope_theta, INFINITY, "model.rope_theta inf must be");
    REFUSED(llama, rope_theta, NAN, "model.rope_theta");
    REFUSED(gpt2, family, (shd_model_family)7, "model.family 7 is none of gpt2, llama");
}

Test(config, gpt2_needs_no_key_of_llama) {
    shd_model_config config = gpt2;
    config.n_kv_head = -5;
    config.d_ff = -5;
    config.rope_theta = NAN;
    shd_model *model;
    cr_assert_eq(shd_model_create(&config, &model), SHERD_OK, "%s", sherd_last_error());
    shd_model_destroy(model);
}

Test(config, a_frozen_pattern_must_match_a_tensor) {
    shd_model_config config = gpt2;
    config.frozen = (const char *const[]){"wte.*", "wpx.*"};
    config.frozen_count = 2;
    refused(&config, "model.frozen: \"wpx.*\" matches no tensor; there are wte.weight, wpe.weight, h.0.ln_1.weight, ");
    refused(&config, "… ln_f.bias (28 in all)");
    config.frozen = (const char *const[]){"h.*", "[wl]*"};
    refused(&config, "model.frozen leaves nothing to train");
}

Test(config, a_pattern_freezes_what_it_matches_and_nothing_else) {
    shd_model_config config = gpt2;
    config.frozen = (const char *const[]){"h.1.*.bias", "wpe.weight"};
    config.frozen_count = 2;
    shd_model *model;
    cr_assert_eq(shd_model_create(&config, &model), SHERD_OK);
    const sherd_model *d = shd_model_describe(model);
    int frozen = 0;
    for (int32_t t = 0; t < d->tensor_count; t++) {
        const char *name = d->tensors[t].name;
        bool expected = strcmp(name, "wpe.weight") == 0 || (strncmp(name, "h.1.", 4) == 0 && strstr(name, "bias"));
        cr_assert_eq(d->tensors[t].frozen, expected, "%s", name);
        frozen += expected;
    }
    cr_assert_eq(frozen, 7);
    shd_model_destroy(model);
}

static void check_tensor(const sherd_model *d, int32_t index, const char *name, int32_t dims, int64_t a, int64_t b) {
    const sherd_tensor *t = &d->tensors[index];
    cr_assert_str_eq(t->name, name);
    cr_assert_eq(t->dim_count, dims, "%s", name);
    cr_assert_eq(t->shape[0], a, "%s", name);
    if (dims > 1) cr_assert_eq(t->shape[1], b, "%s", name);
}

Test(config, describes_units_of_consecutive_tensors) {
    for (int tied = 0; tied < 2; tied++) {
        shd_model_config config = llama;
        config.tied_embeddings = tied;
        shd_model *model;
        cr_assert_eq(shd_model_create(&config, &model), SHERD_OK);
        const sherd_model *d = shd_model_describe(model);
        cr_assert_eq(d->size, sizeof *d);
        cr_assert_eq(d->unit_count, 3);
        cr_assert_eq(d->tensor_count, 12 - tied);
        cr_assert_str_eq(d->units[0].name, "embedding");
        cr_assert_str_eq(d->units[1].name, "block 0");
        cr_assert_str_eq(d->units[2].name, "head");
        int32_t next = 0;
        for (int32_t u = 0; u < d->unit_count; u++) {
            cr_assert_eq(d->units[u].first_tensor, next);
            next += d->units[u].tensor_count;
            cr_assert_eq(d->units[u].activation_bytes % 64, 0);
        }
        cr_assert_eq(next, d->tensor_count);
        cr_assert_eq(d->units[2].share_count, tied);
        if (tied) cr_assert_eq(d->units[2].shares[0], 0);
        check_tensor(d, 0, "model.embed_tokens.weight", 2, 11, 12);
        check_tensor(d, 1, "model.layers.0.input_layernorm.weight", 1, 12, 0);
        check_tensor(d, 2, "model.layers.0.self_attn.q_proj.weight", 2, 12, 12);
        check_tensor(d, 3, "model.layers.0.self_attn.k_proj.weight", 2, 6, 12);
        check_tensor(d, 9, "model.layers.0.mlp.down_proj.weight", 2, 12, 7);
        check_tensor(d, 10, "model.norm.weight", 1, 12, 0);
        if (!tied) check_tensor(d, 11, "lm_head.weight", 2, 11, 12);
        shd_model_destroy(model);
    }
}

Test(config, an_untied_gpt2_has_an_output_matrix_of_its_own) {
    shd_model_config config = gpt2;
    config.tied_embeddings = false;
    shd_model *model;
    cr_assert_eq(shd_model_create(&config, &model), SHERD_OK);
    const sherd_model *d = shd_model_describe(model);
    check_tensor(d, d->tensor_count - 1, "lm_head.weight", 2, 11, 6);
    check_tensor(d, 4, "h.0.attn.c_attn.weight", 2, 6, 18);
    check_tensor(d, 12, "h.0.mlp.c_proj.weight", 2, 24, 6);
    cr_assert_eq(d->units[3].share_count, 0);
    shd_model_destroy(model);
}
