/* Launches of the kernels of norms, activations, rotary positions and embeddings. What they compute, of which shapes and
 * with which aliasing: ops.h, by the same names; `dtype` is the math's. Empty operands launch nothing.
 *
 * Fails: what the launch failed with. Threads: as the stream. */
#ifndef SHD_OPS_CUDA_POINTWISE_H
#define SHD_OPS_CUDA_POINTWISE_H

#include <cuda_runtime_api.h>
#include <sherd/dtype.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* activation.cu */
cudaError_t shd_launch_gelu(cudaStream_t stream, sherd_dtype dtype, int64_t count, const void *x, void *y);
cudaError_t shd_launch_gelu_backward(cudaStream_t stream, sherd_dtype dtype, int64_t count, const void *x,
                                     const void *dy, void *dx);
cudaError_t shd_launch_relu(cudaStream_t stream, sherd_dtype dtype, int64_t count, const void *x, void *y);
cudaError_t shd_launch_relu_backward(cudaStream_t stream, sherd_dtype dtype, int64_t count, const void *y,
                                     const void *dy, void *dx);
cudaError_t shd_launch_swiglu(cudaStream_t stream, sherd_dtype dtype, int64_t count, const void *gate, const void *up,
                              void *y);
cudaError_t shd_launch_swiglu_backward(cudaStream_t stream, sherd_dtype dtype, int64_t count, const void *gate,
                                       const void *up, const void *dy, void *dgate, void *dup);

/* norm.cu: a norm's rows. `mean` and `bias` are NULL for RMSNorm, which leaves both out. */
typedef struct shd_norm_rows {
    int64_t rows, columns;
    const void *x, *weight, *bias;
    float eps;
    void *y;            /* forward */
    float *mean, *rstd; /* [rows]; forward writes them */
    const void *dy, *residual;
    void *dx;
} shd_norm_rows;
cudaError_t shd_launch_norm(cudaStream_t stream, sherd_dtype dtype, const shd_norm_rows *norm);
cudaError_t shd_launch_norm_backward(cudaStream_t stream, sherd_dtype dtype, const shd_norm_rows *norm);

/* norm_weight.cu: dweight and dbias, either may be NULL, from x, dy, mean and rstd of `norm`. `work` is for sums of parts
 * of the rows: SHD_NORM_WORK_BYTES of the device, 16-byte aligned. */
enum { SHD_NORM_WORK_BYTES = 8 << 20 };
cudaError_t shd_launch_norm_weight(cudaStream_t stream, sherd_dtype dtype, const shd_norm_rows *norm, void *work,
                                   float *dweight, float *dbias);

/* rope.cu */
cudaError_t shd_launch_rope(cudaStream_t stream, sherd_dtype dtype, int64_t rows, int64_t context, int64_t heads,
                            int64_t head_size, int64_t stride, const float *table, bool inverse, void *x);

/* embedding.cu */
cudaError_t shd_launch_embedding(cudaStream_t stream, sherd_dtype dtype, int64_t rows, int64_t context, int64_t columns,
                                 int64_t vocabulary, const int32_t *ids, const void *token, const void *position,
                                 void *y);
/* dtoken[ids[i]] += dy[i], for rows in order; not zeroed before. */
cudaError_t shd_launch_embedding_scatter(cudaStream_t stream, sherd_dtype dtype, int64_t rows, int64_t columns,
                                         int64_t vocabulary, const int32_t *ids, const void *dy, float *dtoken);
cudaError_t shd_launch_position_sum(cudaStream_t stream, sherd_dtype dtype, int64_t rows, int64_t context,
                                    int64_t columns, const void *dy, float *dposition);

#ifdef __cplusplus
}
#endif
#endif
