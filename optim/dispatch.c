/* Which instruction sets' loops this CPU runs. */
#include "optim/update_kernels.h"
#include "optim/whole_kernels.h"

/* The loops of one instruction set. */
typedef struct kernel_set {
    const shd_optim_kernels *updates;
    const shd_whole_kernels *whole;
} kernel_set;

#define KERNEL_SET(isa)                                                                                                \
    extern const shd_optim_kernels shd_optim_kernels_##isa;                                                            \
    extern const shd_whole_kernels shd_whole_kernels_##isa;                                                            \
    static const kernel_set isa = {&shd_optim_kernels_##isa, &shd_whole_kernels_##isa};

KERNEL_SET(baseline)
#ifdef __x86_64__
KERNEL_SET(avx2)
KERNEL_SET(avx512)
#endif

/* Slowest first; returns how many. */
static int32_t list_sets(kernel_set list[SHD_OPTIM_KERNELS_MAX]) {
    int32_t count = 0;
    list[count++] = baseline;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2")) list[count++] = avx2;
    if (__builtin_cpu_supports("avx512f")) list[count++] = avx512;
#endif
    return count;
}

static kernel_set best_set(void) {
    kernel_set list[SHD_OPTIM_KERNELS_MAX];
    return list[list_sets(list) - 1];
}

int32_t shd_optim_kernels_list(const shd_optim_kernels *list[SHD_OPTIM_KERNELS_MAX]) {
    kernel_set sets[SHD_OPTIM_KERNELS_MAX];
    int32_t count = list_sets(sets);
    for (int32_t s = 0; s < count; s++) list[s] = sets[s].updates;
    return count;
}

const shd_optim_kernels *shd_optim_kernels_best(void) { return best_set().updates; }

int32_t shd_whole_kernels_list(const shd_whole_kernels *list[SHD_OPTIM_KERNELS_MAX]) {
    kernel_set sets[SHD_OPTIM_KERNELS_MAX];
    int32_t count = list_sets(sets);
    for (int32_t s = 0; s < count; s++) list[s] = sets[s].whole;
    return count;
}

const shd_whole_kernels *shd_whole_kernels_best(void) { return best_set().whole; }
