/* The work of a model against what its tensors say: 2 operations forward and 4 backward for every element of a matrix
 * that a token meets. */
#include "runtime/model/model.h"

#include <criterion/criterion.h>
#include <string.h>

static double matrix_elements(const shd_model_config *config, const char *looked_up) {
    shd_model *model;
    cr_assert_eq(shd_model_create(config, &model), SHERD_OK, "%s", sherd_last_error());
    const sherd_model *description = shd_model_describe(model);
    double all = 0;
    for (int32_t t = 0; t < description->tensor_count; t++) {
        const sherd_tensor *tensor = &description->tensors[t];
        bool skipped = looked_up && strstr(looked_up, tensor->name);
        if (tensor->dim_count == 2 && !skipped) all += (double)tensor->shape[0] * (double)tensor->shape[1];
    }
    shd_model_destroy(model);
    return all;
}

static const shd_model_config gpt2 = {.family = SHD_MODEL_GPT2,
                                      .n_layer = 3,
                                      .vocab_size = 257,
                                      .context = 32,
                                      .d_model = 48,
                                      .n_head = 3,
                                      .tied_embeddings = true,
                                      .micro_batch = 1,
                                      .threads = 1};

Test(flop, of_gpt2_counts_the_output_layer_tied_or_not) {
    /* The embedding is looked up, but multiplied by as the output layer; positions are only looked up. */
    double matrices = matrix_elements(&gpt2, "wpe.weight");
    cr_assert_eq(shd_model_flop(&gpt2), 6 * matrices + 12.0 * 3 * 48 * 32);
    shd_model_config untied = gpt2;
    untied.tied_embeddings = false;
    cr_assert_eq(shd_model_flop(&untied), shd_model_flop(&gpt2));
}

Test(flop, of_llama_counts_shared_keys_once) {
    shd_model_config config = {.family = SHD_MODEL_LLAMA,
                               .n_layer = 2,
                               .vocab_size = 100,
                               .context = 16,
                               .d_model = 32,
                               .n_head = 4,
                               .n_kv_head = 2,
                               .d_ff = 80,
                               .rope_theta = 10000,
                               .micro_batch = 1,
                               .threads = 1};
    double matrices = matrix_elements(&config, "model.embed_tokens.weight");
    cr_assert_eq(shd_model_flop(&config), 6 * matrices + 12.0 * 2 * 32 * 16);
}

Test(flop, of_mlp_counts_every_layer) {
    for (int64_t layers = 1; layers <= 4; layers++) {
        shd_model_config config = {.family = SHD_MODEL_MLP,
                                   .n_layer = layers,
                                   .context = 1,
                                   .inputs = 17,
                                   .outputs = 5,
                                   .hidden = 11,
                                   .micro_batch = 1,
                                   .threads = 1};
        cr_assert_eq(shd_model_flop(&config), 6 * matrix_elements(&config, NULL));
    }
}

/* GPT-2 124M at its full context: 124 million parameters and attention over 1024 tokens, some 0.86 GFLOP a token. */
Test(flop, of_gpt2_124m_is_what_papers_say) {
    const shd_model_config config = {.family = SHD_MODEL_GPT2,
                                     .n_layer = 12,
                                     .vocab_size = 50257,
                                     .context = 1024,
                                     .d_model = 768,
                                     .n_head = 12,
                                     .tied_embeddings = true};
    cr_assert_float_eq(shd_model_flop(&config) / 1e9, 0.854, 0.001);
}
