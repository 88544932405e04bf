/* What a model's configuration must satisfy, and which tensors its frozen patterns mean. Keys are named as in the
 * job file. */
#include "runtime/base/pattern.h"
#include "runtime/base/status.h"
#include "runtime/model/units.h"

#include <inttypes.h>
#include <math.h>

/* Bounds that keep every row length and index in the 31 bits that products and token ids have. */
enum { MAX_LENGTH = 1 << 28, MAX_LAYERS = 1 << 16 };

static sherd_status check_range(const char *key, int64_t value, int64_t max) {
    if (value < 1) return shd_fail(SHERD_CONFIG, "%s %" PRId64 " must be at least 1", key, value);
    if (value > max) return shd_fail(SHERD_CONFIG, "%s %" PRId64 " is above %" PRId64, key, value, max);
    return SHERD_OK;
}

static sherd_status check_heads(const shd_model_config *c) {
    int64_t below = c->d_model / c->n_head * c->n_head, above = below + c->n_head;
    if (below == c->d_model) return SHERD_OK;
    if (below == 0)
        return shd_fail(SHERD_CONFIG,
                        "model.d_model %" PRId64 " is below model.n_head %" PRId64 "; the least that fits is %" PRId64,
                        c->d_model, c->n_head, above);
    return shd_fail(SHERD_CONFIG,
                    "model.d_model %" PRId64 " is not a multiple of model.n_head %" PRId64
                    "; the nearest that fit are %" PRId64 " and %" PRId64,
                    c->d_model, c->n_head, below, above);
}

static sherd_status check_llama(const shd_model_config *c) {
    SHD_TRY(check_range("model.n_kv_head", c->n_kv_head, MAX_LENGTH));
    SHD_TRY(check_range("model.d_ff", c->d_ff, MAX_LENGTH));
    if (c->n_head % c->n_kv_head)
        return shd_fail(SHERD_CONFIG,
                        "model.n_kv_head %" PRId64 " does not divide model.n_head %" PRId64 "; take a divisor of it",
                        c->n_kv_head, c->n_head);
    int64_t head_size = c->d_model / c->n_head;
    if (head_size % 2)
        return shd_fail(SHERD_CONFIG,
                        "model.d_model %" PRId64 " / model.n_head %" PRId64 " gives heads of %" PRId64
                        ": rotary positions need an even head size",
                        c->d_model, c->n_head, head_size);
    if (!(c->rope_theta >= 1) || !isfinite(c->rope_theta))
        return shd_fail(SHERD_CONFIG, "model.rope_theta %g must be a finite number of at least 1", c->rope_theta);
    return SHERD_OK;
}

/* Doubles cannot overflow here, and 2^58 leaves room for any rounding and for sums over what is counted. */
static sherd_status check_sum(double parameters, double activations) {
    if (parameters + activations < 0x1p58) return SHERD_OK;
    return shd_fail(
        SHERD_CONFIG,
        "the sizes in model and train.micro_batch are too large together: %.3g parameters and %.3g activations",
        parameters, activations);
}

static sherd_status check_total(const shd_model_config *c) {
    double d = (double)c->d_model, layers = (double)c->n_layer, rows = (double)c->micro_batch * (double)c->context;
    double inner = c->family == SHD_MODEL_LLAMA ? (double)c->d_ff : 4 * d;
    double parameters = d * (2 * (double)c->vocab_size + (double)c->context) + layers * d * (4 * d + 3 * inner + 16);
    return check_sum(parameters, (layers + 1) * rows * (8 * d + 3 * inner + (double)c->n_head));
}

static sherd_status check_mlp(const shd_model_config *c) {
    SHD_TRY(check_range("model.inputs", c->inputs, MAX_LENGTH));
    SHD_TRY(check_range("model.outputs", c->outputs, MAX_LENGTH));
    SHD_TRY(check_range("model.hidden", c->hidden, MAX_LENGTH));
    if (c->activation != SHD_MODEL_RELU && c->activation != SHD_MODEL_GELU)
        return shd_fail(SHERD_CONFIG, "model.activation %d is none of relu, gelu", (int)c->activation);
    if (c->loss != SHD_MODEL_CROSS_ENTROPY && c->loss != SHD_MODEL_MSE)
        return shd_fail(SHERD_CONFIG, "model.loss %d is none of cross_entropy, mse", (int)c->loss);
    if (c->loss == SHD_MODEL_CROSS_ENTROPY && c->outputs < 2)
        return shd_fail(
            SHERD_CONFIG,
            "model.outputs 1 is too few for model.loss cross_entropy, which tells classes apart; take 2 for "
            "yes and no, or mse for one number");
    double inputs = (double)c->inputs, outputs = (double)c->outputs, hidden = (double)c->hidden;
    double layers = (double)c->n_layer, rows = (double)c->micro_batch;
    double parameters = hidden * (inputs + outputs + layers * (hidden + 1)) + outputs;
    double activations = rows * (2 * hidden * (layers + 1) + inputs + 4 * outputs);
    return check_sum(parameters, activations);
}

sherd_status shd_config_check(const shd_model_config *c) {
    if (c->family != SHD_MODEL_GPT2 && c->family != SHD_MODEL_LLAMA && c->family != SHD_MODEL_MLP)
        return shd_fail(SHERD_CONFIG, "model.family %d is none of gpt2, llama, mlp", (int)c->family);
    if (c->precision != SHERD_FP32 && c->precision != SHERD_BF16 && c->precision != SHERD_FP16)
        return shd_fail(SHERD_CONFIG, "train.precision %d is none of fp32, bf16, fp16", (int)c->precision);
    SHD_TRY(check_range("model.n_layer", c->n_layer, MAX_LAYERS));
    SHD_TRY(check_range("train.micro_batch", c->micro_batch, MAX_LENGTH));
    SHD_TRY(check_range("run.threads", c->threads, MAX_LENGTH));
    if (c->family == SHD_MODEL_MLP) return check_mlp(c);
    SHD_TRY(check_range("model.vocab_size", c->vocab_size, INT32_MAX));
    SHD_TRY(check_range("model.context", c->context, MAX_LENGTH));
    SHD_TRY(check_range("model.d_model", c->d_model, MAX_LENGTH));
    SHD_TRY(check_range("model.n_head", c->n_head, MAX_LENGTH));
    if (!(c->dropout >= 0) || c->dropout >= 1)
        return shd_fail(SHERD_CONFIG, "model.dropout %g must be a number from 0 on and below 1", c->dropout);
    SHD_TRY(check_heads(c));
    if (c->family == SHD_MODEL_LLAMA) SHD_TRY(check_llama(c));
    if (c->micro_batch * c->context > INT32_MAX)
        return shd_fail(SHERD_CONFIG,
                        "train.micro_batch %" PRId64 " × model.context %" PRId64 " is above %d tokens at once; "
                        "take a smaller micro-batch",
                        c->micro_batch, c->context, INT32_MAX);
    return check_total(c);
}

sherd_status shd_model_freeze(shd_model *model, const char *const *patterns, int32_t pattern_count) {
    for (int32_t p = 0; p < pattern_count; p++) {
        bool matched = false;
        for (int32_t i = 0; i < model->description.tensor_count; i++) {
            if (!shd_pattern_matches(patterns[p], model->tensors[i].name)) continue;
            model->tensors[i].frozen = true;
            matched = true;
        }
        if (!matched)
            return shd_pattern_fail("model.frozen", patterns[p], model->tensors, model->description.tensor_count);
    }
    for (int32_t u = 0; u < model->description.unit_count; u++) {
        const sherd_unit *unit = &model->units[u];
        for (int32_t i = 0; i < unit->tensor_count; i++) {
            if (model->tensors[unit->first_tensor + i].frozen) continue;
            model->first_trained_unit = u;
            return SHERD_OK;
        }
    }
    return shd_fail(SHERD_CONFIG, "model.frozen leaves nothing to train");
}
