#include "io/hugging_face.h"
#include "runtime/base/memory.h"
#include "tests/io/make_job.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(hugging_face, .init = enter_fresh_folder, .fini = leave_fresh_folder);

Test(hugging_face, names_are_theirs) {
    static const struct {
        shd_job_family family;
        const char *ours, *theirs;
    } rows[] = {
        {SHD_JOB_GPT2, "wte.weight", "transformer.wte.weight"},
        {SHD_JOB_GPT2, "wpe.weight", "transformer.wpe.weight"},
        {SHD_JOB_GPT2, "h.11.attn.c_attn.weight", "transformer.h.11.attn.c_attn.weight"},
        {SHD_JOB_GPT2, "ln_f.bias", "transformer.ln_f.bias"},
        {SHD_JOB_GPT2, "lm_head.weight", "lm_head.weight"},
        {SHD_JOB_LLAMA, "model.embed_tokens.weight", "model.embed_tokens.weight"},
        {SHD_JOB_LLAMA, "model.layers.3.self_attn.q_proj.weight", "model.layers.3.self_attn.q_proj.weight"},
        {SHD_JOB_LLAMA, "lm_head.weight", "lm_head.weight"},
    };
    char name[SHD_HUGGING_FACE_NAME_BYTES], longest[SHD_HUGGING_FACE_NAME_BYTES + 1] = "";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cr_assert_eq(shd_hugging_face_name(rows[i].family, rows[i].ours, name), SHERD_OK);
        cr_assert_str_eq(name, rows[i].theirs);
    }
    memset(longest, 'x', sizeof longest - 1);
    cr_assert_eq(shd_hugging_face_name(SHD_JOB_LLAMA, longest, name), SHERD_ARGUMENT);
    longest[sizeof longest - 2] = 0;
    cr_assert_eq(shd_hugging_face_name(SHD_JOB_LLAMA, longest, name), SHERD_OK);
    cr_assert_eq(shd_hugging_face_name(SHD_JOB_GPT2, longest, name), SHERD_ARGUMENT);
    cr_assert(shd_hugging_face_has(SHD_JOB_GPT2) && shd_hugging_face_has(SHD_JOB_LLAMA));
    cr_assert_not(shd_hugging_face_has(SHD_JOB_MLP));
}

static const char rest[] = "train: {steps: 3, global_batch: 2, micro_batch: 1}\noptimizer: {lr: 1.0e-3}\n";

/* config.json of a job with this model and data. */
static json_t *config_of(const char *model, const char *data, sherd_dtype dtype) {
    char text[1000], *config;
    snprintf(text, sizeof text, "name: a\nmodel: %s\ndata: {train: t.u16%s}\n%s", model, data, rest);
    shd_job *job;
    cr_assert_eq(load_job(text, (const char *const[3]){NULL}, &job), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_hugging_face_config(job, dtype, &config), SHERD_OK);
    json_t *object = json_loads(config, JSON_REJECT_DUPLICATES, NULL);
    cr_assert_not_null(object, "%s", config);
    shd_free(config);
    shd_job_destroy(job);
    return object;
}

/* Every key of `expected` with its value, and no other key. */
static void holds(json_t *config, const char *expected) {
    json_t *wanted = json_loads(expected, 0, NULL);
    cr_assert_not_null(wanted);
    const char *key;
    json_t *value;
    json_object_foreach(wanted, key, value) {
        char *shown = json_dumps(json_object_get(config, key), JSON_ENCODE_ANY);
        cr_expect(json_equal(json_object_get(config, key), value), "%s is %s", key, shown);
        free(shown);
    }
    json_object_foreach(config, key, value) cr_expect(json_object_get(wanted, key), "%s is there", key);
    json_decref(wanted);
    json_decref(config);
}

Test(hugging_face, describes_gpt2) {
    holds(
        config_of("{family: gpt2, vocab_size: 50257, context: 64, d_model: 48, n_layer: 5, n_head: 3, dropout: 0.125}",
                  "", SHERD_BF16),
        "{\"architectures\": [\"GPT2LMHeadModel\"], \"model_type\": \"gpt2\", \"vocab_size\": 50257, "
        "\"tie_word_embeddings\": true, \"dtype\": \"bfloat16\", \"initializer_range\": 0.02, \"use_cache\": true, "
        "\"bos_token_id\": 50256, \"eos_token_id\": 50256, \"n_positions\": 64, \"n_embd\": 48, \"n_layer\": 5, "
        "\"n_head\": 3, \"n_inner\": null, \"activation_function\": \"gelu_new\", \"layer_norm_epsilon\": 1e-05, "
        "\"attn_pdrop\": 0.125, \"embd_pdrop\": 0.125, \"resid_pdrop\": 0.125}");
}

Test(hugging_face, describes_llama) {
    holds(config_of("{family: llama, vocab_size: 60, context: 128, d_model: 48, n_layer: 2, n_head: 6, n_kv_head: 2, "
                    "d_ff: 100, rope_theta: 50000, tied_embeddings: true}",
                    ", document_separator: 7", SHERD_FP32),
          "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"vocab_size\": 60, "
          "\"tie_word_embeddings\": true, \"dtype\": \"float32\", \"initializer_range\": 0.02, \"use_cache\": true, "
          "\"bos_token_id\": 7, \"eos_token_id\": 7, \"hidden_size\": 48, \"intermediate_size\": 100, "
          "\"num_hidden_layers\": 2, \"num_attention_heads\": 6, \"num_key_value_heads\": 2, \"head_dim\": 8, "
          "\"max_position_embeddings\": 128, \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-05, \"rope_theta\": "
          "50000.0, \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 50000.0}, \"attention_bias\": "
          "false, \"mlp_bias\": false, \"attention_dropout\": 0.0}");
}

Test(hugging_face, takes_no_end_of_a_text_for_known_that_is_not) {
    static const struct {
        const char *model;
        int end; /* -1: null */
    } rows[] = {
        {"{family: gpt2, vocab_size: 257, context: 8, d_model: 8, n_layer: 1, n_head: 1}", 256},
        {"{family: gpt2, vocab_size: 256, context: 8, d_model: 8, n_layer: 1, n_head: 1}", -1},
        {"{family: llama, vocab_size: 32000, context: 8, d_model: 8, n_layer: 1, n_head: 1, d_ff: 8}", -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *config = config_of(rows[i].model, "", SHERD_FP16), *end = json_object_get(config, "eos_token_id");
        cr_assert(rows[i].end < 0 ? json_is_null(end) : json_integer_value(end) == rows[i].end);
        cr_assert_str_eq(json_string_value(json_object_get(config, "dtype")), "float16");
        json_decref(config);
    }
}
