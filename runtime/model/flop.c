/* How much work a model is: floating-point operations, counted from its shape. */
#include "runtime/model/model.h"

/* Elements of the matrices that each token, or sample, is multiplied by. */
static double count_multiplied(const shd_model_config *c) {
    double d = (double)c->d_model, layers = (double)c->n_layer, head = d * (double)c->vocab_size;
    double inputs = (double)c->inputs, hidden = (double)c->hidden, outputs = (double)c->outputs;
    switch (c->family) {
    case SHD_MODEL_GPT2: return layers * 12 * d * d + head;
    case SHD_MODEL_LLAMA: {
        double keys = d * d * (double)c->n_kv_head / (double)c->n_head;
        return layers * (2 * d * d + 2 * keys + 3 * d * (double)c->d_ff) + head;
    }
    case SHD_MODEL_MLP: return inputs * hidden + (layers - 1) * hidden * hidden + hidden * outputs;
    }
    return 0;
}

double shd_model_flop(const shd_model_config *config) {
    double attention = config->family == SHD_MODEL_MLP
                           ? 0
                           : 12.0 * (double)config->n_layer * (double)config->d_model * (double)config->context;
    return 6 * count_multiplied(config) + attention;
}
