/* What units promise beyond right numbers: frozen tensors, bits, chunks, ignored targets. */
#include "harness.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const shd_model_config configs[] = {
    {.family = SHD_MODEL_GPT2,
     .vocab_size = 61,
     .context = 13,
     .d_model = 20,
     .n_layer = 3,
     .n_head = 5,
     .tied_embeddings = true,
     .micro_batch = 3,
     .threads = 1},
    {.family = SHD_MODEL_GPT2,
     .vocab_size = 61,
     .context = 13,
     .d_model = 20,
     .n_layer = 3,
     .n_head = 5,
     .micro_batch = 3,
     .threads = 1},
    {.family = SHD_MODEL_LLAMA,
     .vocab_size = 61,
     .context = 13,
     .d_model = 24,
     .n_layer = 3,
     .n_head = 4,
     .n_kv_head = 2,
     .d_ff = 37,
     .rope_theta = 1e4,
     .tied_embeddings = true,
     .micro_batch = 3,
     .threads = 1},
    {.family = SHD_MODEL_LLAMA,
     .vocab_size = 61,
     .context = 13,
     .d_model = 24,
     .n_layer = 3,
     .n_head = 4,
     .n_kv_head = 2,
     .d_ff = 37,
     .rope_theta = 1e4,
     .micro_batch = 3,
     .threads = 1},
};
enum { CONFIGS = sizeof configs / sizeof *configs, PRECISIONS = 3 };

/* Every config in every precision: number `which` of CONFIGS · PRECISIONS. */
static shd_model_config config_of(int which) {
    shd_model_config config = configs[which % CONFIGS];
    config.precision = (sherd_dtype)(which / CONFIGS);
    return config;
}

static float scale_of(const harness *h) { return 1.0f / (float)harness_counted(h); }

/* Tensors trained in both have the same gradient bits; so have the losses. Returns how many tensors were compared. */
static int32_t same_bits(const harness *a, const harness *b) {
    int32_t compared = 0;
    cr_assert_eq(memcmp(a->losses, b->losses, (size_t)a->rows * sizeof *a->losses), 0);
    for (int32_t t = 0; t < a->description->tensor_count; t++) {
        if (!a->gradients[t] || !b->gradients[t]) continue;
        cr_assert_eq(memcmp(a->gradients[t], b->gradients[t], (size_t)harness_elements(a, t) * 4), 0,
                     "the gradient of %s differs", a->description->tensors[t].name);
        compared++;
    }
    return compared;
}

static void check_frozen_in(sherd_dtype precision, const shd_model_config *config, int32_t frozen_count,
                            const char *const *frozen, int32_t left) {
    shd_model_config warm = *config;
    warm.precision = precision;
    shd_model_config cold = warm;
    cold.frozen = frozen;
    cold.frozen_count = frozen_count;
    harness a, b;
    harness_open(&a, &warm, 0.3, 3);
    harness_open(&b, &cold, 0.3, 3);
    harness_train(&a, scale_of(&a));
    harness_train(&b, scale_of(&b));
    cr_assert_eq(same_bits(&a, &b), left, "%d tensors are still trained, expected %d", same_bits(&a, &b), left);
    harness_close(&a);
    harness_close(&b);
}

static void check_frozen(const shd_model_config *config, int32_t frozen_count, const char *const *frozen,
                         int32_t left) {
    for (sherd_dtype precision = SHERD_FP32; precision <= SHERD_FP16; precision++)
        check_frozen_in(precision, config, frozen_count, frozen, left);
}

Test(units, frozen_tensors_leave_the_bits_of_all_other_gradients_gpt2) {
    check_frozen(&configs[0], 1, (const char *const[]){"wte.weight"}, 40 - 1);
    check_frozen(&configs[0], 1, (const char *const[]){"w*"}, 40 - 2);
    check_frozen(&configs[0], 2, (const char *const[]){"h.1.*", "h.2.attn.c_proj.bias"}, 40 - 13);
    check_frozen(&configs[0], 1, (const char *const[]){"*.bias"}, 40 - 19);
    check_frozen(&configs[0], 1, (const char *const[]){"*.weight"}, 19);
    check_frozen(&configs[0], 3, (const char *const[]){"w?e.*", "h.[01].*", "h.2.ln_*"}, 40 - 2 - 24 - 4);
    check_frozen(&configs[1], 1, (const char *const[]){"lm_head.weight"}, 40);
    check_frozen(&configs[1], 1, (const char *const[]){"[!l]*"}, 3);
}

Test(units, frozen_tensors_leave_the_bits_of_all_other_gradients_llama) {
    check_frozen(&configs[2], 1, (const char *const[]){"model.embed_tokens.weight"}, 28);
    check_frozen(&configs[2], 1, (const char *const[]){"model.layers.*"}, 2);
    check_frozen(&configs[3], 2, (const char *const[]){"*_proj.weight", "lm_head.*"}, 30 - 22);
    check_frozen(&configs[3], 2, (const char *const[]){"*norm.weight", "*.mlp.up_proj.*"}, 30 - 10);
    check_frozen(&configs[3], 1, (const char *const[]){"model.*"}, 1);
}

Test(units, give_the_same_bits_with_any_number_of_threads) {
    for (int c = 0; c < CONFIGS * PRECISIONS; c++)
        for (int big = 0; big < 2; big++) {
            shd_model_config config = config_of(c);
            if (big) { /* several tiles, several chunks */
                config.context = 101;
                config.d_model = 160;
                config.vocab_size = 601;
                config.n_layer = 1;
            }
            harness a, b;
            harness_open(&a, &config, 0.1, 5);
            harness_train(&a, scale_of(&a));
            for (int32_t threads = 2; threads <= 3; threads++) {
                config.threads = threads;
                harness_open(&b, &config, 0.1, 5);
                harness_train(&b, scale_of(&b));
                cr_assert_eq(same_bits(&a, &b), a.description->tensor_count);
                harness_close(&b);
            }
            harness_close(&a);
        }
}

Test(units, evaluate_to_the_losses_of_training) {
    for (int c = 0; c < CONFIGS * PRECISIONS; c++) {
        shd_model_config config = config_of(c);
        config.context = 100; /* 300 rows: two chunks */
        harness h;
        harness_open(&h, &config, 0.3, 7);
        harness_train(&h, scale_of(&h));
        double *trained = malloc((size_t)h.rows * sizeof *trained);
        memcpy(trained, h.losses, (size_t)h.rows * sizeof *trained);
        harness_evaluate(&h);
        cr_assert_eq(memcmp(trained, h.losses, (size_t)h.rows * sizeof *trained), 0);
        for (int64_t i = 0; i < h.rows; i++) cr_assert_eq(h.losses[i] > 0, h.targets[i] >= 0);
        free(trained);
        harness_close(&h);
    }
}

Test(units, give_zero_gradients_when_every_target_is_ignored) {
    for (int c = 0; c < CONFIGS * PRECISIONS; c++) {
        harness h;
        const shd_model_config config = config_of(c);
        harness_open(&h, &config, 0.3, 9);
        for (int64_t i = 0; i < h.rows; i++) h.targets[i] = -1;
        harness_train(&h, 0.25f);
        for (int64_t i = 0; i < h.rows; i++) cr_assert_eq(h.losses[i], 0);
        for (int32_t t = 0; t < h.description->tensor_count; t++)
            for (int64_t i = 0; i < harness_elements(&h, t); i++) cr_assert_eq(h.gradients[t][i], 0);
        harness_close(&h);
    }
}

/* The plain losses are those of a batch where other sequences are ignored: nothing leaks from one sequence to
 * another. */
Test(units, keep_sequences_apart) {
    for (int c = 0; c < CONFIGS * PRECISIONS; c++) {
        harness a, b;
        const shd_model_config config = config_of(c);
        harness_open(&a, &config, 0.3, 11);
        harness_open(&b, &config, 0.3, 11);
        int64_t context = config.context;
        for (int64_t i = 0; i < a.rows; i++) {
            if (i / context == 1) continue;
            b.inputs[i] = (a.inputs[i] + 1) % (int32_t)config.vocab_size;
            b.targets[i] = -1;
        }
        harness_train(&a, 1);
        harness_train(&b, 1);
        cr_assert_eq(memcmp(a.losses + context, b.losses + context, (size_t)context * sizeof *a.losses), 0);
        harness_close(&a);
        harness_close(&b);
    }
}

Test(units, hold_few_logits_at_once) {
    shd_model_config config = configs[0];
    config.context = 4096;
    shd_model *model;
    cr_assert_eq(shd_model_create(&config, &model), SHERD_OK);
    cr_assert_eq(shd_model_describe(model)->logits_bytes, 256 * 61 * 4);
    shd_model_destroy(model);
    config.vocab_size = 128256;
    cr_assert_eq(shd_model_create(&config, &model), SHERD_OK);
    cr_assert_eq(shd_model_describe(model)->logits_bytes, (int64_t)128 * 128256 * 4);
    shd_model_destroy(model);
}

Test(units, need_a_micro_batch) {
    shd_model *model;
    cr_assert_eq(shd_model_create(&configs[0], &model), SHERD_OK);
    cr_assert_eq(shd_model_forward(model, &(sherd_view){.unit = 0}), SHERD_STATE);
    cr_assert_eq(shd_model_backward(model, &(sherd_view){.unit = 0}), SHERD_STATE);
    shd_model_destroy(model);
}
