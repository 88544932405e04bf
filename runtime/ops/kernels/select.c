/* Which table of kernels this processor gets. Feature flags decide, never the model number, which virtual machines make
 * up. */
#include "runtime/ops/kernels/kernels.h"

#include <stdbool.h>

/* A set's three tables, by sherd_dtype. */
#define TABLES(set)                                                                                                    \
    extern const shd_kernels shd_kernels_##set##_fp32, shd_kernels_##set##_bf16, shd_kernels_##set##_fp16;             \
    static const shd_kernels *const set[] = {                                                                          \
        [SHERD_FP32] = &shd_kernels_##set##_fp32,                                                                      \
        [SHERD_BF16] = &shd_kernels_##set##_bf16,                                                                      \
        [SHERD_FP16] = &shd_kernels_##set##_fp16,                                                                      \
    };

TABLES(baseline)

#ifdef SHD_KERNELS_X86
TABLES(avx2)
TABLES(avx512)

const shd_kernels *shd_kernels_get(sherd_dtype dtype) {
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return (has_avx512 ? avx512 : has_avx2 ? avx2 : baseline)[dtype];
}
#else
const shd_kernels *shd_kernels_get(sherd_dtype dtype) { return baseline[dtype]; }
#endif
