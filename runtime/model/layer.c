/* The layers units are made of: products with weights, and norms. */
#include "runtime/base/random.h"
#include "runtime/model/units.h"
#include "runtime/ops/ops.h"

#include <assert.h>

bool shd_pass_dropout(const shd_pass *pass, shd_dropout_place place, shd_dropout *out) {
    const shd_model_config *config = &pass->model->config;
    if (config->dropout == 0 || !pass->view->training) return false;
    uint64_t of_unit = shd_random_subkey(shd_random_key(config->seed, "dropout"), (uint64_t)pass->view->unit);
    *out = shd_dropout_make(config->dropout, shd_random_subkey(of_unit, place), pass->batch.first_sequence);
    return true;
}

shd_linear shd_pass_linear(const shd_pass *pass, int32_t slot) {
    const shd_model *model = pass->model;
    const sherd_tensor *tensor = &model->tensors[model->units[pass->view->unit].first_tensor + slot];
    bool conv1d = model->family->conv1d;
    return (shd_linear){
        .weight = shd_pass_parameter(pass, slot),
        .bias = model->family->biased ? shd_pass_parameter(pass, slot + 1) : (shd_parameter){NULL, NULL},
        .in = tensor->shape[conv1d ? 0 : 1],
        .out = tensor->shape[conv1d ? 1 : 0],
        .conv1d = conv1d,
    };
}

void shd_linear_forward(const shd_math *math, const shd_linear *linear, int64_t rows, const void *x, void *y,
                        int64_t y_stride, const void *residual) {
    shd_matmul product = {
        .m = rows,
        .n = linear->out,
        .k = linear->in,
        .a = x,
        .lda = linear->in,
        .b = linear->weight.value,
        .ldb = linear->conv1d ? linear->out : linear->in,
        .b_transposed = !linear->conv1d,
        .c = y,
        .ldc = y_stride,
        .bias = linear->bias.value,
        .residual = residual,
        .wide_c = linear->wide,
    };
    math->ops->matmul(math, &product);
}

void shd_linear_backward_weight(const shd_math *math, const shd_linear *linear, int64_t rows, const void *x,
                                const void *dy, int64_t dy_stride, bool accumulate) {
    if (linear->bias.gradient) {
        assert(dy_stride == linear->out && !accumulate);
        math->ops->column_sum(math, rows, linear->out, dy, linear->bias.gradient);
    }
    if (!linear->weight.gradient) return;
    /* xᵀ·dy is [in, out]; dyᵀ·x is [out, in]. */
    bool conv1d = linear->conv1d;
    shd_matmul product = {
        .m = conv1d ? linear->in : linear->out,
        .n = conv1d ? linear->out : linear->in,
        .k = rows,
        .a = conv1d ? x : dy,
        .lda = conv1d ? linear->in : dy_stride,
        .a_transposed = true,
        .b = conv1d ? dy : x,
        .ldb = conv1d ? dy_stride : linear->in,
        .c = linear->weight.gradient,
        .ldc = conv1d ? linear->out : linear->in,
        .accumulate = accumulate,
        .wide_c = true,
    };
    math->ops->matmul(math, &product);
}

void shd_linear_backward_input(const shd_math *math, const shd_linear *linear, int64_t rows, const void *dy,
                               int64_t dy_stride, void *dx, bool accumulate) {
    shd_matmul product = {
        .m = rows,
        .n = linear->in,
        .k = linear->out,
        .a = dy,
        .lda = dy_stride,
        .b = linear->weight.value,
        .ldb = linear->conv1d ? linear->out : linear->in,
        .b_transposed = linear->conv1d,
        .c = dx,
        .ldc = linear->in,
        .accumulate = accumulate,
    };
    math->ops->matmul(math, &product);
}

void shd_norm_forward(const shd_pass *pass, int32_t slot, int64_t rows, const void *x, void *y) {
    int64_t columns = pass->model->lengths[SHD_LENGTH_MODEL];
    const void *weight = shd_pass_parameter(pass, slot).value;
    if (pass->model->family->rms_norm)
        pass->math.ops->rmsnorm(&pass->math, rows, columns, SHD_NORM_EPS, x, weight, y, pass->rstd);
    else
        pass->math.ops->layernorm(&pass->math, rows, columns, SHD_NORM_EPS, x, weight,
                                  shd_pass_parameter(pass, slot + 1).value, y, pass->mean, pass->rstd);
}

void shd_norm_backward(const shd_pass *pass, int32_t slot, const void *x, const void *dy, bool add) {
    int64_t rows = pass->rows, columns = pass->model->lengths[SHD_LENGTH_MODEL];
    shd_parameter weight = shd_pass_parameter(pass, slot);
    const void *residual = add ? pass->flow : NULL;
    if (pass->model->family->rms_norm)
        pass->math.ops->rmsnorm_backward(&pass->math, rows, columns, x, weight.value, pass->rstd, dy, residual,
                                         pass->flow, weight.gradient);
    else
        pass->math.ops->layernorm_backward(&pass->math, rows, columns, x, weight.value, pass->mean, pass->rstd, dy,
                                           residual, pass->flow, weight.gradient,
                                           shd_pass_parameter(pass, slot + 1).gradient);
}
