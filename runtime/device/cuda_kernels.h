/* Every kernel of the program, so that opening a device can load them all: a kernel that CUDA loads at its first launch
 * may wait for the device, and so for a peer that waits for this rank.
 *
 * Nobody keeps a list: a launch by SHD_LAUNCH enters its kernel before main begins (kernel.h). The software device's
 * kernels are functions of the program, and in no list. */
#ifndef SHD_DEVICE_CUDA_KERNELS_H
#define SHD_DEVICE_CUDA_KERNELS_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shd_kernel_entry {
    const void *kernel;
    struct shd_kernel_entry *next;
} shd_kernel_entry;

extern shd_kernel_entry *shd_kernel_entries;

/* Loads them all on the thread's device. The first failure; cudaErrorNoKernelImageForDevice: they were built for other
 * GPUs. */
cudaError_t shd_cuda_load_kernels(void);

#ifdef __cplusplus
}
#endif
#endif
