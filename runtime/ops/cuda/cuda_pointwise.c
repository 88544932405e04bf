/* Norms, activations, rotary positions and embeddings: from the math to launches on its stream. */
#include "runtime/device/cuda.h"
#include "runtime/ops/cuda/cuda_ops.h"
#include "runtime/ops/cuda/pointwise.h"

#include <stddef.h>

static void note(const shd_math *math, cudaError_t error, const char *what) {
    shd_cuda_note(math->stream, error, what);
}

static void norm_forward(const shd_math *math, const shd_norm_rows *norm, const char *what) {
    note(math, shd_launch_norm(shd_cuda_stream(math->stream), math->dtype, norm), what);
}

static void norm_backward(const shd_math *math, const shd_norm_rows *norm, float *dweight, float *dbias,
                          const char *what) {
    const cudaStream_t stream = shd_cuda_stream(math->stream);
    note(math, shd_launch_norm_backward(stream, math->dtype, norm), what);
    note(math, shd_launch_norm_weight(stream, math->dtype, norm, math->scratch, dweight, dbias), what);
}

void shd_cuda_layernorm(const shd_math *math, int64_t rows, int64_t columns, float eps, const void *x,
                        const void *weight, const void *bias, void *y, float *mean, float *rstd) {
    norm_forward(math,
                 &(shd_norm_rows){.rows = rows,
                                  .columns = columns,
                                  .x = x,
                                  .weight = weight,
                                  .bias = bias,
                                  .eps = eps,
                                  .y = y,
                                  .mean = mean,
                                  .rstd = rstd},
                 "LayerNorm");
}

void shd_cuda_layernorm_backward(const shd_math *math, int64_t rows, int64_t columns, const void *x, const void *weight,
                                 const float *mean, const float *rstd, const void *dy, const void *residual, void *dx,
                                 float *dweight, float *dbias) {
    norm_backward(math,
                  &(shd_norm_rows){.rows = rows,
                                   .columns = columns,
                                   .x = x,
                                   .weight = weight,
                                   .mean = (float *)mean,
                                   .rstd = (float *)rstd,
                                   .dy = dy,
                                   .residual = residual,
                                   .dx = dx},
                  dweight, dbias, "the backward of LayerNorm");
}

void shd_cuda_rmsnorm(const shd_math *math, int64_t rows, int64_t columns, float eps, const void *x, const void *weight,
                      void *y, float *rstd) {
    norm_forward(
        math,
        &(shd_norm_rows){.rows = rows, .columns = columns, .x = x, .weight = weight, .eps = eps, .y = y, .rstd = rstd},
        "RMSNorm");
}

void shd_cuda_rmsnorm_backward(const shd_math *math, int64_t rows, int64_t columns, const void *x, const void *weight,
                               const float *rstd, const void *dy, const void *residual, void *dx, float *dweight) {
    norm_backward(math,
                  &(shd_norm_rows){.rows = rows,
                                   .columns = columns,
                                   .x = x,
                                   .weight = weight,
                                   .rstd = (float *)rstd,
                                   .dy = dy,
                                   .residual = residual,
                                   .dx = dx},
                  dweight, NULL, "the backward of RMSNorm");
}

void shd_cuda_gelu(const shd_math *math, int64_t count, const void *x, void *y) {
    note(math, shd_launch_gelu(shd_cuda_stream(math->stream), math->dtype, count, x, y), "GELU");
}

void shd_cuda_gelu_backward(const shd_math *math, int64_t count, const void *x, const void *dy, void *dx) {
    note(math, shd_launch_gelu_backward(shd_cuda_stream(math->stream), math->dtype, count, x, dy, dx),
         "the backward of GELU");
}

void shd_cuda_relu(const shd_math *math, int64_t count, const void *x, void *y) {
    note(math, shd_launch_relu(shd_cuda_stream(math->stream), math->dtype, count, x, y), "ReLU");
}

void shd_cuda_relu_backward(const shd_math *math, int64_t count, const void *y, const void *dy, void *dx) {
    note(math, shd_launch_relu_backward(shd_cuda_stream(math->stream), math->dtype, count, y, dy, dx),
         "the backward of ReLU");
}

void shd_cuda_swiglu(const shd_math *math, int64_t count, const void *gate, const void *up, void *y) {
    note(math, shd_launch_swiglu(shd_cuda_stream(math->stream), math->dtype, count, gate, up, y), "SwiGLU");
}

void shd_cuda_swiglu_backward(const shd_math *math, int64_t count, const void *gate, const void *up, const void *dy,
                              void *dgate, void *dup) {
    note(math, shd_launch_swiglu_backward(shd_cuda_stream(math->stream), math->dtype, count, gate, up, dy, dgate, dup),
         "the backward of SwiGLU");
}

void shd_cuda_rope(const shd_math *math, int64_t rows, int64_t context, int64_t heads, int64_t head_size,
                   int64_t stride, const float *table, bool inverse, void *x) {
    note(math,
         shd_launch_rope(shd_cuda_stream(math->stream), math->dtype, rows, context, heads, head_size, stride, table,
                         inverse, x),
         "rotary positions");
}

void shd_cuda_embedding(const shd_math *math, int64_t rows, int64_t context, int64_t columns, int64_t vocabulary,
                        const int32_t *ids, const void *token, const void *position, void *y) {
    note(math,
         shd_launch_embedding(shd_cuda_stream(math->stream), math->dtype, rows, context, columns, vocabulary, ids,
                              token, position, y),
         "the embedding");
}

void shd_cuda_embedding_backward(const shd_math *math, int64_t rows, int64_t context, int64_t columns,
                                 int64_t vocabulary, const int32_t *ids, const void *dy, bool accumulate, float *dtoken,
                                 float *dposition) {
    const cudaStream_t stream = shd_cuda_stream(math->stream);
    if (dtoken) {
        if (!accumulate) math->device_ops->clear(math->stream, dtoken, vocabulary * columns * (int64_t)sizeof *dtoken);
        note(math, shd_launch_embedding_scatter(stream, math->dtype, rows, columns, vocabulary, ids, dy, dtoken),
             "the gradients of tokens");
    }
    if (dposition)
        note(math, shd_launch_position_sum(stream, math->dtype, rows, context, columns, dy, dposition),
             "the gradients of positions");
}
