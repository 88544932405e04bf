/* The operations of ops.h on a GPU, by the names of their places in the table: contracts are there. Each is enqueued on
 * math->stream; failures stick to its device.
 *
 * math->scratch is there in every type: what matmul_scratch_bytes says, of the device, 16-byte aligned. Other operations
 * than products use it too. */
#ifndef SHD_OPS_CUDA_CUDA_OPS_H
#define SHD_OPS_CUDA_CUDA_OPS_H

#include "runtime/ops/ops.h"

/* cuda_pointwise.c */
void shd_cuda_layernorm(const shd_math *math, int64_t rows, int64_t columns, float eps, const void *x,
                        const void *weight, const void *bias, void *y, float *mean, float *rstd);
void shd_cuda_layernorm_backward(const shd_math *math, int64_t rows, int64_t columns, const void *x, const void *weight,
                                 const float *mean, const float *rstd, const void *dy, const void *residual, void *dx,
                                 float *dweight, float *dbias);
void shd_cuda_rmsnorm(const shd_math *math, int64_t rows, int64_t columns, float eps, const void *x, const void *weight,
                      void *y, float *rstd);
void shd_cuda_rmsnorm_backward(const shd_math *math, int64_t rows, int64_t columns, const void *x, const void *weight,
                               const float *rstd, const void *dy, const void *residual, void *dx, float *dweight);
void shd_cuda_gelu(const shd_math *math, int64_t count, const void *x, void *y);
void shd_cuda_gelu_backward(const shd_math *math, int64_t count, const void *x, const void *dy, void *dx);
void shd_cuda_relu(const shd_math *math, int64_t count, const void *x, void *y);
void shd_cuda_relu_backward(const shd_math *math, int64_t count, const void *y, const void *dy, void *dx);
void shd_cuda_swiglu(const shd_math *math, int64_t count, const void *gate, const void *up, void *y);
void shd_cuda_swiglu_backward(const shd_math *math, int64_t count, const void *gate, const void *up, const void *dy,
                              void *dgate, void *dup);
void shd_cuda_rope(const shd_math *math, int64_t rows, int64_t context, int64_t heads, int64_t head_size,
                   int64_t stride, const float *table, bool inverse, void *x);
void shd_cuda_embedding(const shd_math *math, int64_t rows, int64_t context, int64_t columns, int64_t vocabulary,
                        const int32_t *ids, const void *token, const void *position, void *y);
void shd_cuda_embedding_backward(const shd_math *math, int64_t rows, int64_t context, int64_t columns,
                                 int64_t vocabulary, const int32_t *ids, const void *dy, bool accumulate, float *dtoken,
                                 float *dposition);

/* The files of products (math->scratch is theirs). */
int64_t shd_cuda_matmul_scratch_bytes(sherd_dtype dtype, int32_t threads);
void shd_cuda_matmul(const shd_math *math, const shd_matmul *product);
void shd_cuda_column_sum(const shd_math *math, int64_t rows, int64_t columns, const void *x, float *sum);
void shd_cuda_add_bias(const shd_math *math, int64_t rows, int64_t columns, const void *bias, float *y);
void shd_cuda_narrow(const shd_math *math, int64_t count, const float *x, void *y);

/* The files of attention and losses. */
int64_t shd_cuda_attention_scratch_bytes(sherd_dtype dtype, int64_t sequences, int64_t context, int64_t heads,
                                         int64_t head_size, int32_t threads, bool backward);
void shd_cuda_attention(const shd_math *math, const shd_attention *attention);
void shd_cuda_attention_backward(const shd_math *math, const shd_attention *forward, const void *dout, void *dq,
                                 void *dk, void *dv);
void shd_cuda_dropout(const shd_math *math, const shd_dropout *dropout, int64_t rows, int64_t context, int64_t columns,
                      const void *x, const void *residual, void *y);
void shd_cuda_cross_entropy(const shd_math *math, int64_t rows, int64_t vocabulary, float *logits,
                            const int32_t *targets, float scale, bool gradient, double *loss);
void shd_cuda_correct(const shd_math *math, int64_t rows, int64_t classes, const float *logits, const int32_t *targets,
                      double *correct);
void shd_cuda_square_error(const shd_math *math, int64_t rows, int64_t columns, float *outputs, const float *targets,
                           float scale, bool gradient, double *loss);
void shd_cuda_join_rows(const shd_math *math, int64_t rows, int64_t columns, void *x);

#endif
