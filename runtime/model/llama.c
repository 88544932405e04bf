/* Llama: RMSNorm, rotary positions, grouped-query attention, SwiGLU, no biases; Touvron et al., "LLaMA: open and
 * efficient foundation language models", 2023. Names and layouts as Hugging Face stores them. */
#include "runtime/model/family.h"

static const shd_tensor_spec embedding_specs[] = {
    {"model.embed_tokens.weight", SHD_START_NORMAL, 2, {SHD_LENGTH_VOCABULARY, SHD_LENGTH_MODEL}},
};

enum slot { INPUT_NORM, QUERY, KEY, VALUE, ATTENTION_OUT, FEED_NORM, GATE, UP, DOWN, SLOT_COUNT };

static const shd_tensor_spec block_specs[SLOT_COUNT] = {
    [INPUT_NORM] = {"input_layernorm.weight", SHD_START_ONES, 1, {SHD_LENGTH_MODEL}},
    [QUERY] = {"self_attn.q_proj.weight", SHD_START_NORMAL, 2, {SHD_LENGTH_MODEL, SHD_LENGTH_MODEL}},
    [KEY] = {"self_attn.k_proj.weight", SHD_START_NORMAL, 2, {SHD_LENGTH_KEYS, SHD_LENGTH_MODEL}},
    [VALUE] = {"self_attn.v_proj.weight", SHD_START_NORMAL, 2, {SHD_LENGTH_KEYS, SHD_LENGTH_MODEL}},
    [ATTENTION_OUT] = {"self_attn.o_proj.weight", SHD_START_RESIDUAL, 2, {SHD_LENGTH_MODEL, SHD_LENGTH_MODEL}},
    [FEED_NORM] = {"post_attention_layernorm.weight", SHD_START_ONES, 1, {SHD_LENGTH_MODEL}},
    [GATE] = {"mlp.gate_proj.weight", SHD_START_NORMAL, 2, {SHD_LENGTH_INNER, SHD_LENGTH_MODEL}},
    [UP] = {"mlp.up_proj.weight", SHD_START_NORMAL, 2, {SHD_LENGTH_INNER, SHD_LENGTH_MODEL}},
    [DOWN] = {"mlp.down_proj.weight", SHD_START_RESIDUAL, 2, {SHD_LENGTH_MODEL, SHD_LENGTH_INNER}},
};

static const shd_tensor_spec head_specs[] = {
    {"model.norm.weight", SHD_START_ONES, 1, {SHD_LENGTH_MODEL}},
};

static void activate(const shd_math *math, int64_t count, void *const inner[SHD_MAX_INNERS], void *out) {
    math->ops->swiglu(math, count, inner[0], inner[1], out);
}

static void activate_backward(const shd_math *math, int64_t count, void *const inner[SHD_MAX_INNERS], void *gradient) {
    math->ops->swiglu_backward(math, count, inner[0], inner[1], gradient, gradient, inner[1]);
}

const shd_family shd_family_llama = {
    .architecture = &shd_transformer,
    .block_prefix = "model.layers.%d.",
    .embedding = {embedding_specs, 1},
    .block = {block_specs, SLOT_COUNT},
    .head = {head_specs, 1},
    .rms_norm = true,
    .rotary = true,
    .norm_1_slot = INPUT_NORM,
    .norm_2_slot = FEED_NORM,
    .attention_out_slot = ATTENTION_OUT,
    .down_slot = DOWN,
    .projection_count = 3,
    .projection_slots = {QUERY, KEY, VALUE},
    .inner_count = 2,
    .inner_slots = {GATE, UP},
    .activate = activate,
    .activate_backward = activate_backward,
    .ignored = {"model.layers.*.self_attn.rotary_emb.inv_freq"}, /* a function of rope_theta, stored by old writers */
};
