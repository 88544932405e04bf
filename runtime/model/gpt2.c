/* GPT-2: pre-LayerNorm, learned positions, one fused projection, tanh-GELU; Radford et al., "Language models are
 * unsupervised multitask learners", 2019. Names and layouts as Hugging Face stores them. */
#include "runtime/model/family.h"

static const shd_tensor_spec embedding_specs[] = {
    {"wte.weight", SHD_START_NORMAL, 2, {SHD_LENGTH_VOCABULARY, SHD_LENGTH_MODEL}},
    {"wpe.weight", SHD_START_NORMAL, 2, {SHD_LENGTH_CONTEXT, SHD_LENGTH_MODEL}},
};

enum slot {
    LN_1,
    LN_1_BIAS,
    ATTN,
    ATTN_BIAS,
    PROJ,
    PROJ_BIAS,
    LN_2,
    LN_2_BIAS,
    FC,
    FC_BIAS,
    DOWN,
    DOWN_BIAS,
    SLOT_COUNT
};

static const shd_tensor_spec block_specs[SLOT_COUNT] = {
    [LN_1] = {"ln_1.weight", SHD_START_ONES, 1, {SHD_LENGTH_MODEL}},
    [LN_1_BIAS] = {"ln_1.bias", SHD_START_ZEROS, 1, {SHD_LENGTH_MODEL}},
    [ATTN] = {"attn.c_attn.weight", SHD_START_NORMAL, 2, {SHD_LENGTH_MODEL, SHD_LENGTH_PROJECTED}},
    [ATTN_BIAS] = {"attn.c_attn.bias", SHD_START_ZEROS, 1, {SHD_LENGTH_PROJECTED}},
    [PROJ] = {"attn.c_proj.weight", SHD_START_RESIDUAL, 2, {SHD_LENGTH_MODEL, SHD_LENGTH_MODEL}},
    [PROJ_BIAS] = {"attn.c_proj.bias", SHD_START_ZEROS, 1, {SHD_LENGTH_MODEL}},
    [LN_2] = {"ln_2.weight", SHD_START_ONES, 1, {SHD_LENGTH_MODEL}},
    [LN_2_BIAS] = {"ln_2.bias", SHD_START_ZEROS, 1, {SHD_LENGTH_MODEL}},
    [FC] = {"mlp.c_fc.weight", SHD_START_NORMAL, 2, {SHD_LENGTH_MODEL, SHD_LENGTH_INNER}},
    [FC_BIAS] = {"mlp.c_fc.bias", SHD_START_ZEROS, 1, {SHD_LENGTH_INNER}},
    [DOWN] = {"mlp.c_proj.weight", SHD_START_RESIDUAL, 2, {SHD_LENGTH_INNER, SHD_LENGTH_MODEL}},
    [DOWN_BIAS] = {"mlp.c_proj.bias", SHD_START_ZEROS, 1, {SHD_LENGTH_MODEL}},
};

static const shd_tensor_spec head_specs[] = {
    {"ln_f.weight", SHD_START_ONES, 1, {SHD_LENGTH_MODEL}},
    {"ln_f.bias", SHD_START_ZEROS, 1, {SHD_LENGTH_MODEL}},
};

static void activate(const shd_math *math, int64_t count, void *const inner[SHD_MAX_INNERS], void *out) {
    math->ops->gelu(math, count, inner[0], out);
}

static void activate_backward(const shd_math *math, int64_t count, void *const inner[SHD_MAX_INNERS], void *gradient) {
    math->ops->gelu_backward(math, count, inner[0], gradient, gradient);
}

const shd_family shd_family_gpt2 = {
    .architecture = &shd_transformer,
    .block_prefix = "h.%d.",
    .embedding = {embedding_specs, 2},
    .block = {block_specs, SLOT_COUNT},
    .head = {head_specs, 2},
    .conv1d = true,
    .biased = true,
    .norm_1_slot = LN_1,
    .norm_2_slot = LN_2,
    .attention_out_slot = PROJ,
    .down_slot = DOWN,
    .projection_count = 1,
    .projection_slots = {ATTN},
    .inner_count = 1,
    .inner_slots = {FC},
    .activate = activate,
    .activate_backward = activate_backward,
    .stored_prefix = "transformer.",
    .ignored = {"h.*.attn.bias", "h.*.attn.masked_bias"}, /* the causal mask, stored as buffers */
};
