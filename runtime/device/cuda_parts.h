/* What a CUDA device, its streams and events are: for cuda.c and cuda_memory.c alone. */
#ifndef SHD_DEVICE_CUDA_PARTS_H
#define SHD_DEVICE_CUDA_PARTS_H

#include "runtime/base/memory.h"
#include "runtime/device/cuda_errors.h"
#include "runtime/device/device.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>

/* Memory that is held, so that it can be counted when it is given back. */
typedef struct shd_cuda_block {
    struct shd_cuda_block *next;
    void *address;
    int64_t bytes;
    shd_memory_use use; /* DEVICE or PINNED */
} shd_cuda_block;

struct shd_device {
    shd_device_facts facts; /* free_bytes: at the opening */
    int32_t index;
    cudaStream_t setup; /* for clearing new memory; nothing else runs on it */
    shd_cuda_block *blocks;
    void *products; /* shd_cuda_products */
    void (*destroy_products)(void *products);
    sherd_status failure; /* the first; OK: none */
    char failure_text[SHD_CUDA_TEXT_BYTES];
};

struct shd_stream {
    shd_device *device;
    cudaStream_t native;
    const char *name;
};

struct shd_event {
    shd_device *device;
    cudaEvent_t native;
    bool is_recorded;
};

/* cuda_memory.c: slots of the table. */
sherd_status shd_cuda_allocate(shd_device *device, int64_t bytes, void **out);
sherd_status shd_cuda_allocate_pinned(shd_device *device, int64_t bytes, void **out);
void shd_cuda_release(shd_device *device, void *memory);
sherd_status shd_cuda_pin(shd_device *device, void *memory, int64_t bytes, void **address);
void shd_cuda_unpin(shd_device *device, void *memory);

#endif
