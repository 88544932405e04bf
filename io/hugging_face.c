#include "io/hugging_face.h"

#include "io/json.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <stdio.h>
#include <string.h>

/* Tokens of a vocabulary of bytes, whose next one ends a text; GPT-2's own vocabulary, whose last one does. */
enum { BYTE_TOKENS = 256, GPT2_TOKENS = 50257 };

/* As the model has it; <https://huggingface.co/docs/transformers>, GPT2Config and LlamaConfig. */
static const double NORM_EPS = 1e-5, INITIAL_DEVIATION = 0.02;

bool shd_hugging_face_has(shd_job_family family) { return family == SHD_JOB_GPT2 || family == SHD_JOB_LLAMA; }

sherd_status shd_hugging_face_name(shd_job_family family, const char *name, char out[SHD_HUGGING_FACE_NAME_BYTES]) {
    /* GPT-2's are those of the model below the output matrix; Llama's come whole. */
    const bool inner = family == SHD_JOB_GPT2 && strcmp(name, "lm_head.weight") != 0;
    int length = snprintf(out, SHD_HUGGING_FACE_NAME_BYTES, "%s%s", inner ? "transformer." : "", name);
    if (length >= SHD_HUGGING_FACE_NAME_BYTES)
        return shd_fail(SHERD_ARGUMENT, "the name of parameter %.64s… is too long", name);
    return SHERD_OK;
}

static const char *dtype_text(sherd_dtype dtype) {
    return dtype == SHERD_BF16 ? "bfloat16" : dtype == SHERD_FP16 ? "float16" : "float32";
}

/* The token that ends a text, null where none is known: transformers would take one of its own. */
static json_t *end_token(const shd_job *job) {
    if (job->data.document_separator >= 0) return json_integer(job->data.document_separator);
    if (job->model.vocab_size == BYTE_TOKENS + 1) return json_integer(BYTE_TOKENS);
    if (job->model.vocab_size == GPT2_TOKENS) return json_integer(GPT2_TOKENS - 1);
    return json_null();
}

/* What both have. */
static json_t *common_config(const shd_job *job, sherd_dtype dtype, const char *architecture, const char *type) {
    return json_pack("{s:[s], s:s, s:I, s:b, s:s, s:f, s:b, s:o, s:o}", "architectures", architecture, "model_type",
                     type, "vocab_size", (json_int_t)job->model.vocab_size, "tie_word_embeddings",
                     (int)job->model.tied_embeddings, "dtype", dtype_text(dtype), "initializer_range",
                     INITIAL_DEVIATION, "use_cache", 1, "bos_token_id", end_token(job), "eos_token_id", end_token(job));
}

static json_t *gpt2_config(const shd_job *job) {
    double dropout = job->model.dropout;
    return json_pack("{s:I, s:I, s:I, s:I, s:n, s:s, s:f, s:f, s:f, s:f}", "n_positions",
                     (json_int_t)job->model.context, "n_embd", (json_int_t)job->model.d_model, "n_layer",
                     (json_int_t)job->model.n_layer, "n_head", (json_int_t)job->model.n_head, "n_inner",
                     "activation_function", "gelu_new", "layer_norm_epsilon", NORM_EPS, "attn_pdrop", dropout,
                     "embd_pdrop", dropout, "resid_pdrop", dropout);
}

/* rope_theta stands where releases before 5 look for it, and where later ones do. */
static json_t *llama_config(const shd_job *job) {
    const double theta = job->model.rope_theta;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:{s:s, s:f}, s:b, s:b, s:f}", "hidden_size",
                     (json_int_t)job->model.d_model, "intermediate_size", (json_int_t)job->model.d_ff,
                     "num_hidden_layers", (json_int_t)job->model.n_layer, "num_attention_heads",
                     (json_int_t)job->model.n_head, "num_key_value_heads", (json_int_t)job->model.n_kv_head, "head_dim",
                     (json_int_t)(job->model.d_model / job->model.n_head), "max_position_embeddings",
                     (json_int_t)job->model.context, "hidden_act", "silu", "rms_norm_eps", NORM_EPS, "rope_theta",
                     theta, "rope_parameters", "rope_type", "default", "rope_theta", theta, "attention_bias", 0,
                     "mlp_bias", 0, "attention_dropout", job->model.dropout);
}

sherd_status shd_hugging_face_config(const shd_job *job, sherd_dtype dtype, char **out) {
    const bool llama = job->model.family == SHD_JOB_LLAMA;
    json_t *config =
        common_config(job, dtype, llama ? "LlamaForCausalLM" : "GPT2LMHeadModel", llama ? "llama" : "gpt2");
    json_t *own = llama ? llama_config(job) : gpt2_config(job);
    sherd_status status = config && own && json_object_update(config, own) == 0
                              ? shd_json_print(config, 2, out)
                              : shd_fail(SHERD_MEMORY, "no memory for config.json");
    json_decref(own);
    json_decref(config);
    return status;
}
