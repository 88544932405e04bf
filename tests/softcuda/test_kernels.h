/* Launches of the kernels in test_kernels.cu. */
#ifndef SHD_TESTS_TEST_KERNELS_H
#define SHD_TESTS_TEST_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum wrong_kernel {
    PART_AT_BARRIERS,
    LEAVE_BEFORE_BARRIER,
    LEAVE_BEFORE_SHUFFLE,
    USE_HALF_A_MASK,
    ODD_BLOCK,
    NO_BLOCKS,
    MUCH_SHARED,
    UNDECLARED /* declares the first half of `out` and writes behind it */
} wrong_kernel;

cudaError_t launch_scale_and_add(cudaStream_t stream, const float *x, float *out, int64_t n, float a);
cudaError_t launch_sum_blocks(cudaStream_t stream, const float *x, float *sums, int64_t n, int64_t stretch);
/* 256 numbers a block. */
cudaError_t launch_turn_around(cudaStream_t stream, const int *x, int *out, int64_t blocks, int has_barrier);
cudaError_t launch_warp_facts(cudaStream_t stream, unsigned *out);           /* [8] */
cudaError_t launch_wrong(cudaStream_t stream, wrong_kernel which, int *out); /* [64] */
cudaError_t allow_much_shared(void);

#ifdef __cplusplus
}
#endif

#endif
