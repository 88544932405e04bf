/* The kernels of spans, as their C side sees them. All pointers are of a device. Counts are
 * positive. */
#ifndef SHD_OPTIM_CUDA_LAUNCH_SPANS_H
#define SHD_OPTIM_CUDA_LAUNCH_SPANS_H

#include "optim/update_kernels.h"
#include "runtime/base/exact_sum.h"

#include <cuda_runtime_api.h>
#include <sherd/dtype.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum shd_span_rule {
    SHD_SPAN_ADAMW,
    SHD_SPAN_ADAM,
    SHD_SPAN_LION,
    SHD_SPAN_SGD,
    SHD_SPAN_SGD_MOMENTUM,
    SHD_SPAN_SGD_NESTEROV
} shd_span_rule;

typedef struct shd_span_update {
    shd_update_constants constants;
    float *parameters;
    const float *gradients;
    float *states[2];  /* as many as the rule has */
    uint16_t *rounded; /* NULL: none */
    sherd_dtype rounded_dtype;
    int64_t count;
} shd_span_update;

/* Both codebooks (codebook.h), as small as a kernel's arguments have to be: of values with a sign the magnitudes alone. */
enum { SHD_SPAN_MAGNITUDES = SHD_CODES / 2 };
typedef struct shd_span_codes {
    shd_code_block *blocks[2]; /* the states in place of shd_span_update.states, as many as the rule has */
    bool root[2];
    float shares[SHD_SPAN_MAGNITUDES], borders[SHD_SPAN_MAGNITUDES];
    float root_shares[SHD_CODES], root_borders[SHD_CODES];
} shd_span_codes;

cudaError_t shd_launch_update(cudaStream_t stream, shd_span_rule rule, const shd_span_update *update);
/* The same with states in 8 bits; a rule with states. */
cudaError_t shd_launch_update_codes(cudaStream_t stream, shd_span_rule rule, const shd_span_update *update,
                                    const shd_span_codes *codes);
cudaError_t shd_launch_square_sum(cudaStream_t stream, const float *values, int64_t block_count, shd_exact_sum *sum);

cudaError_t shd_launch_round(cudaStream_t stream, sherd_dtype dtype, int64_t count, const float *from, void *to);

enum { SHD_FOLD_PARTS = 64 };
typedef struct shd_fold_parts {
    const void *at[SHD_FOLD_PARTS];
    int32_t count;
} shd_fold_parts;
cudaError_t shd_launch_fold(cudaStream_t stream, float *accumulator, const shd_fold_parts *parts, sherd_dtype dtype,
                            int64_t count, bool first, uint64_t *nonfinite);

#ifdef __cplusplus
}
#endif
#endif
