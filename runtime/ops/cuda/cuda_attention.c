/* Attention, losses and dropout: from the math to launches on its stream. */
#include "runtime/base/dtype.h"
#include "runtime/device/cuda.h"
#include "runtime/ops/cuda/cuda_ops.h"
#include "runtime/ops/cuda/losses.h"

#include <assert.h>

int64_t shd_cuda_attention_scratch_bytes(sherd_dtype dtype, int64_t sequences, int64_t context, int64_t heads,
                                         int64_t head_size, int32_t threads, bool backward) {
    (void)dtype, (void)head_size, (void)threads;
    return backward ? sequences * heads * context * (int64_t)sizeof(float) : 0;
}

static bool is_empty(const shd_attention *a) { return a->sequences == 0 || a->context == 0; }

void shd_cuda_attention(const shd_math *math, const shd_attention *attention) {
    assert(attention->past == 0 && attention->head_size <= SHD_DEVICE_HEAD_MAX);
    if (is_empty(attention)) return;
    shd_cuda_note(math->stream, shd_launch_attention(shd_cuda_stream(math->stream), math->dtype, attention),
                  "attention");
}

void shd_cuda_attention_backward(const shd_math *math, const shd_attention *forward, const void *dout, void *dq,
                                 void *dk, void *dv) {
    assert(forward->past == 0 && forward->head_size <= SHD_DEVICE_HEAD_MAX);
    if (is_empty(forward)) return;
    shd_cuda_note(math->stream,
                  shd_launch_attention_backward(shd_cuda_stream(math->stream), math->dtype, forward, dout, dq, dk, dv,
                                                forward->scratch),
                  "the backward of attention");
}

void shd_cuda_dropout(const shd_math *math, const shd_dropout *dropout, int64_t rows, int64_t context, int64_t columns,
                      const void *x, const void *residual, void *y) {
    if (rows == 0 || columns == 0) return;
    shd_cuda_note(
        math->stream,
        shd_launch_dropout(shd_cuda_stream(math->stream), math->dtype, dropout, rows, context, columns, x, residual, y),
        "dropout");
}

void shd_cuda_cross_entropy(const shd_math *math, int64_t rows, int64_t vocabulary, float *logits,
                            const int32_t *targets, float scale, bool gradient, double *loss) {
    if (rows == 0) return;
    shd_cuda_note(math->stream,
                  shd_launch_cross_entropy(shd_cuda_stream(math->stream), math->dtype, rows, vocabulary, logits,
                                           targets, scale, gradient, loss),
                  "cross-entropy");
}

void shd_cuda_correct(const shd_math *math, int64_t rows, int64_t classes, const float *logits, const int32_t *targets,
                      double *correct) {
    if (rows == 0) return;
    shd_cuda_note(math->stream,
                  shd_launch_correct(shd_cuda_stream(math->stream), rows, classes, logits, targets, correct),
                  "a look at predictions");
}

void shd_cuda_square_error(const shd_math *math, int64_t rows, int64_t columns, float *outputs, const float *targets,
                           float scale, bool gradient, double *loss) {
    if (rows == 0 || columns == 0) return;
    shd_cuda_note(math->stream,
                  shd_launch_square_error(shd_cuda_stream(math->stream), math->dtype, rows, columns, outputs, targets,
                                          scale, gradient, loss),
                  "squared errors");
}

void shd_cuda_join_rows(const shd_math *math, int64_t rows, int64_t columns, void *x) {
    if (rows == 0 || columns == 0 || math->dtype == SHERD_FP32) return;
    shd_cuda_note(math->stream, shd_launch_join_rows(shd_cuda_stream(math->stream), rows, columns, x),
                  "rows of a gradient");
}
