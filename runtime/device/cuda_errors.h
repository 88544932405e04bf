/* What CUDA's errors mean for whoever runs sherd: a status, and what can be done. */
#ifndef SHD_DEVICE_CUDA_ERRORS_H
#define SHD_DEVICE_CUDA_ERRORS_H

#include <cuda_runtime_api.h>
#include <sherd/status.h>
#include <stddef.h>

enum { SHD_CUDA_TEXT_BYTES = 1024 };

/* Writes "`where`: cudaErrorX (number), CUDA's words. What can be done" and returns the status: CONFIG where the machine
 * or its settings are at fault, MEMORY, else DEVICE; OK, and "", of cudaSuccess. */
sherd_status shd_cuda_explain(cudaError_t error, const char *where, char *out, size_t bytes);

/* The same as this thread's last failure. Takes the error from CUDA's own memory of it, so that no later launch finds
 * it. */
sherd_status shd_cuda_refuse(cudaError_t error, const char *where);

/* Of calls whose failure changes nothing, as of freeing on a device that has failed: takes the error from CUDA alone. */
static inline void shd_cuda_ignore(cudaError_t error) {
    if (error != cudaSuccess) (void)cudaGetLastError();
}

#endif
