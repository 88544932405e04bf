/* Which table of kernels this processor gets. Feature flags decide, never the model number, which virtual machines make
 * up. */
#include "runtime/ops/kernels/kernels.h"

#include <stdbool.h>

extern const shd_kernels shd_kernels_baseline;

#ifdef SHD_KERNELS_X86
extern const shd_kernels shd_kernels_avx2, shd_kernels_avx512;

const shd_kernels *shd_kernels_get(void) {
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return avx512 ? &shd_kernels_avx512 : avx2 ? &shd_kernels_avx2 : &shd_kernels_baseline;
}
#else
const shd_kernels *shd_kernels_get(void) { return &shd_kernels_baseline; }
#endif
