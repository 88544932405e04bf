/* Multilayer perceptron: y = W_n · f(… f(W_0 · x + b_0) …) + b_n, for classification and regression of samples. A unit is
 * one layer: hidden layers, then the output layer with the loss.
 *
 * Where a pass's numbers live, in the model's precision but for logits, which are fp32. rows: micro_batch.
 *
 * | unit         | `outputs`      | kept in `activations`                  | recomputed in backward |
 * | ------------ | -------------- | -------------------------------------- | ---------------------- |
 * | hidden layer | [rows, hidden] | gelu: its argument, [rows, hidden];    | -                      |
 * |              |                | relu: nothing, its result tells enough |                        |
 * | output layer | -              | -                                      | all, in its backward   |
 *
 * | scratch               | holds                                                                                  |
 * | --------------------- | -------------------------------------------------------------------------------------- |
 * | flow, wide [rows,     | the gradient of a hidden layer's output, in flow that of even layers: it becomes that of |
 * | hidden]               | the layer's argument in place, from which that of the layer below goes to the other one  |
 * | normed [rows, inputs] | in 16 bits: the features, rounded, from the first unit's forward to its backward         |
 * | operation             | work memory of products                                                                  |
 *
 * `logits` [rows, outputs]: the outputs, then their gradient, whose rows are brought together in 16 bits. */
#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "runtime/base/status.h"
#include "runtime/model/units.h"

#include <stdio.h>

enum slot { WEIGHT, BIAS };

/* --- description -------------------------------------------------------------------------------------------------- */

static int64_t in_length(const shd_model *model, int32_t unit) {
    return unit == 0 ? model->config.inputs : model->config.hidden;
}

static bool is_output(const shd_model *model, int32_t unit) { return unit == (int32_t)model->config.n_layer; }

static int64_t out_length(const shd_model *model, int32_t unit) {
    return is_output(model, unit) ? model->config.outputs : model->config.hidden;
}

static sherd_status list_tensors(shd_model *model) {
    int32_t unit_count = (int32_t)model->config.n_layer + 1;
    char *names = NULL, name[32], prefix[32];
    SHD_TRY(shd_model_take_lists(model, unit_count, 2 * unit_count, &names));
    for (int32_t u = 0; u < unit_count; u++) {
        bool output = is_output(model, u);
        snprintf(name, sizeof name, "layer %d", u);
        snprintf(prefix, sizeof prefix, "layers.%d.", u);
        sherd_unit *unit = shd_model_add_unit(model, &names, output ? "output" : name);
        sherd_tensor *weight = shd_model_add_tensor(model, &names, unit, prefix, "weight",
                                                    output ? SHD_START_LINEAR : SHD_START_ACTIVATED);
        weight->dim_count = 2;
        weight->shape[0] = out_length(model, u);
        weight->shape[1] = in_length(model, u);
        sherd_tensor *bias = shd_model_add_tensor(model, &names, unit, prefix, "bias", SHD_START_ZEROS);
        bias->dim_count = 1;
        bias->shape[0] = out_length(model, u);
    }
    model->config.context = 1; /* a sample stands for a sequence of one */
    model->rows = model->config.micro_batch;
    return SHERD_OK;
}

static sherd_status lay_out(shd_model *model) {
    const shd_model_config *config = &model->config;
    const sherd_dtype precision = config->precision;
    const int64_t rows = model->rows;
    shd_layout *layout = &model->layout;
    layout->work.flow = shd_layout_take(&layout->work_bytes, precision, rows, config->hidden);
    layout->work.wide = shd_layout_take(&layout->work_bytes, precision, rows, config->hidden);
    layout->work.normed =
        shd_layout_take(&layout->work_bytes, precision, rows, precision == SHERD_FP32 ? 0 : config->inputs);
    layout->work.mean = layout->work.rstd = layout->work.operation = layout->work_bytes;
    layout->work_bytes += model->ops->matmul_scratch_bytes(precision, config->threads);
    shd_model_lay_out_carried(model);
    for (int32_t u = 0; u < model->description.unit_count - 1; u++) {
        (void)shd_layout_take(&model->units[u].output_bytes, precision, rows, config->hidden);
        if (config->activation == SHD_MODEL_GELU) model->units[u].activation_bytes = model->units[u].output_bytes;
    }
    model->description.scratch_bytes = layout->work_bytes;
    (void)shd_layout_take(&model->description.logits_bytes, SHERD_FP32, rows, config->outputs);
    return SHERD_OK;
}

/* --- layers ------------------------------------------------------------------------------------------------------- */

static shd_linear layer_of(const shd_pass *pass) {
    return (shd_linear){
        .weight = shd_pass_parameter(pass, WEIGHT),
        .bias = shd_pass_parameter(pass, BIAS),
        .in = in_length(pass->model, pass->view->unit),
        .out = out_length(pass->model, pass->view->unit),
    };
}

/* What the unit's layer is applied to. */
static const void *input_of(const shd_pass *pass) {
    if (pass->view->unit > 0) return shd_pass_input(pass);
    return pass->math.dtype == SHERD_FP32 ? pass->batch.features : pass->normed;
}

static void take_features(const shd_pass *pass) {
    if (pass->math.dtype == SHERD_FP32) return;
    pass->math.ops->narrow(&pass->math, pass->rows * pass->model->config.inputs, pass->batch.features, pass->normed);
}

/* The gradient of hidden layer `unit`. */
static void *flow_of(const shd_pass *pass, int32_t unit) { return unit % 2 ? pass->wide : pass->flow; }

static void hidden_forward(const shd_pass *pass) {
    const int32_t unit = pass->view->unit;
    const int64_t width = pass->model->config.hidden;
    const bool gelu = pass->model->config.activation == SHD_MODEL_GELU;
    void *out = pass->view->outputs[unit], *argument = gelu ? pass->view->activations[unit] : out;
    shd_linear layer = layer_of(pass);
    if (unit == 0) take_features(pass);
    shd_linear_forward(&pass->math, &layer, pass->rows, input_of(pass), argument, width, NULL);
    if (gelu)
        pass->math.ops->gelu(&pass->math, pass->rows * width, argument, out);
    else
        pass->math.ops->relu(&pass->math, pass->rows * width, out, out);
}

/* `dy` is the gradient of the layer's result; the layer below gets its own, where that is wanted. */
static void layer_backward(const shd_pass *pass, const void *dy) {
    const int32_t unit = pass->view->unit;
    shd_linear layer = layer_of(pass);
    shd_linear_backward_weight(&pass->math, &layer, pass->rows, input_of(pass), dy, layer.out, false);
    if (unit > pass->model->first_trained_unit)
        shd_linear_backward_input(&pass->math, &layer, pass->rows, dy, layer.out, flow_of(pass, unit - 1), false);
}

static void hidden_backward(const shd_pass *pass) {
    const int32_t unit = pass->view->unit;
    const int64_t count = pass->rows * pass->model->config.hidden;
    void *flow = flow_of(pass, unit);
    if (pass->model->config.activation == SHD_MODEL_GELU)
        pass->math.ops->gelu_backward(&pass->math, count, pass->view->activations[unit], flow, flow);
    else
        pass->math.ops->relu_backward(&pass->math, count, pass->view->outputs[unit], flow, flow);
    layer_backward(pass, flow);
}

/* --- the output layer --------------------------------------------------------------------------------------------- */

/* Outputs, losses and what was predicted; with `gradient` the outputs become their gradient. */
static void run_output(const shd_pass *pass, bool gradient) {
    const int64_t outputs = pass->model->config.outputs;
    float *logits = pass->view->logits;
    shd_linear layer = layer_of(pass);
    const void *bias = layer.bias.value;
    layer.wide = true;
    layer.bias = (shd_parameter){NULL, NULL};
    shd_linear_forward(&pass->math, &layer, pass->rows, shd_pass_input(pass), logits, outputs, NULL);
    pass->math.ops->add_bias(&pass->math, pass->rows, outputs, bias, logits);
    if (pass->model->config.loss == SHD_MODEL_MSE) {
        pass->math.ops->square_error(&pass->math, pass->rows, outputs, logits, pass->batch.values,
                                     pass->view->loss_scale, gradient, pass->batch.losses);
        return;
    }
    pass->math.ops->correct(&pass->math, pass->rows, outputs, logits, pass->batch.targets, pass->batch.correct);
    pass->math.ops->cross_entropy(&pass->math, pass->rows, outputs, logits, pass->batch.targets, pass->view->loss_scale,
                                  gradient, pass->batch.losses);
}

static void forward(const shd_pass *pass) {
    if (!is_output(pass->model, pass->view->unit))
        hidden_forward(pass);
    else if (!pass->view->training)
        run_output(pass, false);
}

static void backward(const shd_pass *pass) {
    if (!is_output(pass->model, pass->view->unit)) {
        hidden_backward(pass);
        return;
    }
    run_output(pass, true);
    pass->math.ops->join_rows(&pass->math, pass->rows, pass->model->config.outputs, pass->view->logits);
    layer_backward(pass, pass->view->logits);
}

static const shd_architecture mlp = {
    .list_tensors = list_tensors,
    .lay_out = lay_out,
    .forward = forward,
    .backward = backward,
};

const shd_family shd_family_mlp = {.architecture = &mlp, .biased = true};
