/* The kernels around products, as their C side sees them. All pointers are of a device; counts are positive. */
#ifndef SHD_OPS_CUDA_PRODUCTS_H
#define SHD_OPS_CUDA_PRODUCTS_H

#include <cuda_runtime_api.h>
#include <sherd/dtype.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* c[i,j] = (accumulate ? c : 0) + bias[j] + residual[i,j], rows of c and residual `stride` apart; bias and residual, of
 * `dtype`, may be NULL. */
typedef struct shd_seed {
    int64_t rows, columns, stride;
    void *c;
    sherd_dtype c_dtype, dtype; /* c_dtype FP32, or the same */
    bool accumulate;
    const void *bias, *residual;
} shd_seed;
cudaError_t shd_launch_seed(cudaStream_t stream, const shd_seed *seed);

/* sum[j] = Σ x[i,j], in an order that goes by the shape and work_bytes alone. `work`: a row of floats for each
 * SHD_COLUMN_SUM_ROWS rows, or for more where that is not enough. */
enum { SHD_COLUMN_SUM_ROWS = 512 };
cudaError_t shd_launch_column_sum(cudaStream_t stream, sherd_dtype dtype, int64_t rows, int64_t columns, const void *x,
                                  float *work, int64_t work_bytes, float *sum);

cudaError_t shd_launch_add_bias(cudaStream_t stream, sherd_dtype dtype, int64_t rows, int64_t columns, const void *bias,
                                float *y);
cudaError_t shd_launch_narrow(cudaStream_t stream, sherd_dtype dtype, int64_t count, const float *x, void *y);

#ifdef __cplusplus
}
#endif
#endif
