/* Which instruction sets' loops this processor runs: feature flags decide. */
#include "io/planes.h"

extern const shd_plane_kernels shd_plane_kernels_baseline;
#ifdef __x86_64__
extern const shd_plane_kernels shd_plane_kernels_avx2, shd_plane_kernels_avx512;
#endif

int32_t shd_plane_kernels_list(const shd_plane_kernels *list[SHD_PLANE_KERNELS_MAX]) {
    int32_t count = 0;
    list[count++] = &shd_plane_kernels_baseline;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2")) list[count++] = &shd_plane_kernels_avx2;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vbmi"))
        list[count++] = &shd_plane_kernels_avx512;
#endif
    return count;
}

const shd_plane_kernels *shd_plane_kernels_best(void) {
    const shd_plane_kernels *list[SHD_PLANE_KERNELS_MAX];
    return list[shd_plane_kernels_list(list) - 1];
}
