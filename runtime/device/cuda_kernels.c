#include "runtime/device/cuda_kernels.h"

#include <stddef.h>

shd_kernel_entry *shd_kernel_entries;

cudaError_t shd_cuda_load_kernels(void) {
    struct cudaFuncAttributes attributes;
    cudaError_t error = cudaSuccess;
    for (const shd_kernel_entry *entry = shd_kernel_entries; entry && error == cudaSuccess; entry = entry->next)
        error = cudaFuncGetAttributes(&attributes, entry->kernel);
    return error;
}
