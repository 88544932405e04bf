/* The kernels of losses, dropout and attention, as their C side sees them. All pointers are of a device; counts are
 * positive. */
#ifndef SHD_OPS_CUDA_LOSSES_H
#define SHD_OPS_CUDA_LOSSES_H

#include "runtime/ops/ops.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t shd_launch_cross_entropy(cudaStream_t stream, sherd_dtype dtype, int64_t rows, int64_t vocabulary,
                                     float *logits, const int32_t *targets, float scale, bool gradient, double *loss);
cudaError_t shd_launch_correct(cudaStream_t stream, int64_t rows, int64_t classes, const float *logits,
                               const int32_t *targets, double *correct);
cudaError_t shd_launch_square_error(cudaStream_t stream, sherd_dtype dtype, int64_t rows, int64_t columns,
                                    float *outputs, const float *targets, float scale, bool gradient, double *loss);
/* In 16 bits. */
cudaError_t shd_launch_join_rows(cudaStream_t stream, int64_t rows, int64_t columns, uint16_t *x);
cudaError_t shd_launch_dropout(cudaStream_t stream, sherd_dtype dtype, const shd_dropout *dropout, int64_t rows,
                               int64_t context, int64_t columns, const void *x, const void *residual, void *y);

cudaError_t shd_launch_attention(cudaStream_t stream, sherd_dtype dtype, const shd_attention *attention);
/* `means`: work memory, a float for each query of each head. */
cudaError_t shd_launch_attention_backward(cudaStream_t stream, sherd_dtype dtype, const shd_attention *forward,
                                          const void *dout, void *dq, void *dk, void *dv, float *means);

#ifdef __cplusplus
}
#endif
#endif
