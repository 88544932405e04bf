#include "optim/update_kernels.h"
#include "optim/whole_kernels.h"

extern const shd_optim_kernels shd_optim_kernels_baseline;
#ifdef __x86_64__
extern const shd_optim_kernels shd_optim_kernels_avx2, shd_optim_kernels_avx512;
#endif

int32_t shd_optim_kernels_list(const shd_optim_kernels *list[SHD_OPTIM_KERNELS_MAX]) {
    int32_t count = 0;
    list[count++] = &shd_optim_kernels_baseline;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2")) list[count++] = &shd_optim_kernels_avx2;
    if (__builtin_cpu_supports("avx512f")) list[count++] = &shd_optim_kernels_avx512;
#endif
    return count;
}

const shd_optim_kernels *shd_optim_kernels_best(void) {
    const shd_optim_kernels *list[SHD_OPTIM_KERNELS_MAX];
    return list[shd_optim_kernels_list(list) - 1];
}

extern const shd_whole_kernels shd_whole_kernels_baseline;
#ifdef __x86_64__
extern const shd_whole_kernels shd_whole_kernels_avx2, shd_whole_kernels_avx512;
#endif

int32_t shd_whole_kernels_list(const shd_whole_kernels *list[SHD_OPTIM_KERNELS_MAX]) {
    int32_t count = 0;
    list[count++] = &shd_whole_kernels_baseline;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2")) list[count++] = &shd_whole_kernels_avx2;
    if (__builtin_cpu_supports("avx512f")) list[count++] = &shd_whole_kernels_avx512;
#endif
    return count;
}

const shd_whole_kernels *shd_whole_kernels_best(void) {
    const shd_whole_kernels *list[SHD_OPTIM_KERNELS_MAX];
    return list[shd_whole_kernels_list(list) - 1];
}
