/* The last unit: norm, logits and cross-entropy.
 *
 * The logits of a micro-batch are never there at once: chunks of `chunk_rows` rows, whose borders the shape alone
 * fixes, go through the view's logits memory, in fp32. In training that happens once, in backward: loss, the logits' gradient
 * in place, from it the gradients of the norm's output and of the output matrix, which the first chunk writes and
 * later ones add to. */
#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "runtime/model/units.h"
#include "runtime/ops/ops.h"

enum slot { NORM };

static shd_linear output_of(const shd_pass *pass) {
    const shd_model *model = pass->model;
    return (shd_linear){
        .weight = shd_pass_tensor(pass, model->output_tensor),
        .in = model->config.d_model,
        .out = model->config.vocab_size,
        .wide = true,
    };
}

void shd_head_forward(const shd_pass *pass) {
    const shd_model *model = pass->model;
    const sherd_dtype dtype = pass->math.dtype;
    int64_t columns = model->config.d_model, vocabulary = model->config.vocab_size;
    const void *x = shd_pass_input(pass);
    shd_linear output = output_of(pass);

    if (pass->logits_wanted) {
        shd_norm_forward(pass, NORM, 1, shd_const_element(dtype, x, (pass->rows - 1) * columns), pass->normed);
        shd_linear_forward(&pass->math, &output, 1, pass->normed, pass->logits_wanted, vocabulary, NULL);
        return;
    }
    shd_norm_forward(pass, NORM, pass->rows, x, pass->normed);
    if (pass->view->training) return;
    for (int64_t first = 0; first < pass->rows; first += model->chunk_rows) {
        int64_t rows = shd_min(model->chunk_rows, pass->rows - first);
        shd_linear_forward(&pass->math, &output, rows, shd_element(dtype, pass->normed, first * columns),
                           pass->view->logits, vocabulary, NULL);
        pass->math.ops->cross_entropy(&pass->math, rows, vocabulary, pass->view->logits, pass->batch.targets + first, 0,
                                      false, pass->batch.losses + first);
    }
}

void shd_head_backward(const shd_pass *pass) {
    const shd_model *model = pass->model;
    const sherd_dtype dtype = pass->math.dtype;
    int64_t columns = model->config.d_model, vocabulary = model->config.vocab_size;
    float *logits = pass->view->logits;
    /* Rows of the logits' gradient begin where rows of logits did. */
    int64_t stride = vocabulary * (int64_t)sizeof(float) / shd_dtype_bytes(dtype);
    shd_linear output = output_of(pass);

    for (int64_t first = 0; first < pass->rows; first += model->chunk_rows) {
        int64_t rows = shd_min(model->chunk_rows, pass->rows - first);
        const void *normed = shd_element(dtype, pass->normed, first * columns);
        shd_linear_forward(&pass->math, &output, rows, normed, logits, vocabulary, NULL);
        pass->math.ops->cross_entropy(&pass->math, rows, vocabulary, logits, pass->batch.targets + first,
                                      pass->view->loss_scale, true, pass->batch.losses + first);
        shd_linear_backward_weight(&pass->math, &output, rows, normed, logits, stride, first > 0);
        shd_linear_backward_input(&pass->math, &output, rows, logits, stride,
                                  shd_element(dtype, pass->wide, first * columns), false);
    }
    shd_norm_backward(pass, NORM, shd_pass_input(pass), pass->wide, false);
}
