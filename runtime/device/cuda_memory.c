#include "runtime/base/spare.h"
#include "runtime/base/status.h"
#include "runtime/device/cuda_parts.h"

#include <stdio.h>
#include <string.h>

/* Waits for the setup stream alone, which nothing else uses. */
static cudaError_t clear(shd_device *device, void *memory, int64_t bytes) {
    cudaError_t error = cudaMemsetAsync(memory, 0, (size_t)bytes, device->setup);
    return error == cudaSuccess ? cudaStreamSynchronize(device->setup) : error;
}

/* Takes memory of either kind into the device's list. */
static sherd_status keep(shd_device *device, shd_memory_use use, void *address, int64_t bytes) {
    shd_cuda_block *block = shd_alloc(1, sizeof *block);
    if (!block) return shd_fail(SHERD_MEMORY, "no memory to keep track of the GPU's");
    *block = (shd_cuda_block){.next = device->blocks, .address = address, .bytes = bytes, .use = use};
    device->blocks = block;
    shd_memory_note(use, bytes);
    return SHERD_OK;
}

sherd_status shd_cuda_allocate(shd_device *device, int64_t bytes, void **out) {
    size_t free_bytes = 0, total_bytes = 0;
    void *memory;
    if (bytes < 1) bytes = 1;
    cudaError_t error = cudaMalloc(&memory, (size_t)bytes);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        shd_cuda_ignore(cudaMemGetInfo(&free_bytes, &total_bytes));
        return shd_fail(SHERD_MEMORY,
                        "GPU %d (%s) has no room for %lld bytes: %zu of its %zu are free. Other programs on it may "
                        "hold memory, nvidia-smi lists them",
                        (int)device->index, device->facts.name, (long long)bytes, free_bytes, total_bytes);
    }
    SHD_TRY(shd_cuda_refuse(error, "allocating memory of the GPU"));
    sherd_status status = shd_cuda_refuse(clear(device, memory, bytes), "clearing new memory of the GPU");
    if (status == SHERD_OK) status = keep(device, SHD_MEMORY_DEVICE, memory, bytes);
    if (status == SHERD_OK)
        *out = memory;
    else
        shd_cuda_ignore(cudaFree(memory));
    return status;
}

sherd_status shd_cuda_allocate_pinned(shd_device *device, int64_t bytes, void **out) {
    void *memory;
    if (bytes < 1) bytes = 1;
    /* The driver takes pages without asking what the control group can spare. */
    cudaError_t error = cudaErrorMemoryAllocation;
    if (shd_memory_can_spare(bytes)) error = cudaHostAlloc(&memory, (size_t)bytes, cudaHostAllocDefault);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return shd_fail(SHERD_MEMORY, "no room for %lld bytes of pinned host memory: %lld are free", (long long)bytes,
                        (long long)shd_memory_free());
    }
    SHD_TRY(shd_cuda_refuse(error, "allocating pinned host memory"));
    memset(memory, 0, (size_t)bytes);
    sherd_status status = keep(device, SHD_MEMORY_PINNED, memory, bytes);
    if (status == SHERD_OK)
        *out = memory;
    else
        shd_cuda_ignore(cudaFreeHost(memory));
    return status;
}

/* On a device that has failed CUDA refuses to free, and gives everything back when the process ends. */
void shd_cuda_release(shd_device *device, void *memory) {
    shd_cuda_block **link = &device->blocks;
    while (*link && (*link)->address != memory) link = &(*link)->next;
    shd_cuda_block *block = *link;
    if (!block) return;
    *link = block->next;
    shd_memory_note(block->use, -block->bytes);
    shd_cuda_ignore(block->use == SHD_MEMORY_PINNED ? cudaFreeHost(memory) : cudaFree(memory));
    shd_free(block);
}

sherd_status shd_cuda_pin(shd_device *device, void *memory, int64_t bytes, void **address) {
    char where[160];
    snprintf(where, sizeof where, "pinning %lld bytes of host memory for GPU %d", (long long)bytes, (int)device->index);
    SHD_TRY(shd_cuda_refuse(cudaHostRegister(memory, (size_t)bytes, cudaHostRegisterMapped), where));
    sherd_status status = shd_cuda_refuse(cudaHostGetDevicePointer(address, memory, 0), where);
    if (status != SHERD_OK) shd_cuda_ignore(cudaHostUnregister(memory));
    return status;
}

void shd_cuda_unpin(shd_device *device, void *memory) {
    (void)device;
    if (memory) shd_cuda_ignore(cudaHostUnregister(memory));
}
