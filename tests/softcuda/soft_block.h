/* How kernels run: blocks one after the other, each in one host thread. A CUDA thread runs until it meets a barrier or a
 * warp operation, then another one does; it has a stack of its own only once that happens. Which warp runs ahead, and
 * from which end of it, is drawn for each block.
 *
 * Behind soft_kernel.h, and for wrappers of PTX with a host version: shd_soft_exchange. */
#ifndef SHD_TESTS_SOFT_BLOCK_H
#define SHD_TESTS_SOFT_BLOCK_H

#include "tests/softcuda/softcuda.h"

#include <vector_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where the running thread is. */
typedef struct shd_soft_place {
    uint3 thread, block, block_dim, grid_dim;
    unsigned lane;
    unsigned char *dynamic_shared; /* 16-byte aligned, 0xFF at the begin of a block */
} shd_soft_place;

extern shd_soft_place shd_soft_here;

/* One lane's value in an exchange. */
typedef struct shd_soft_slot {
    unsigned char bytes[16];
} shd_soft_slot;

/* __syncthreads; `site` tells one barrier of a kernel from another: its line. */
void shd_soft_barrier(int site);
/* All 32 lanes of a warp give a value of at most 16 bytes, and get those of all: [32], by lane, valid until the thread's
 * next exchange. Reported: lanes that are missing from `mask`, lanes that meet at different sites. */
const shd_soft_slot *shd_soft_exchange(unsigned mask, int site, const void *value, size_t bytes);

typedef struct shd_soft_launch {
    const char *name;
    const void *kernel; /* the function, as cudaFuncSetAttribute knows it */
    int64_t blocks, threads, shared_bytes;
    cudaStream_t stream;
    const softcuda_access *accesses;
    size_t access_count;
    void (*body)(void *state); /* one thread of it */
    void (*drop)(void *state);
    void *state; /* passes hands */
} shd_soft_launch;

/* Enqueues it, as cudaLaunchKernel does. Returns as cudaGetLastError would behind it. */
cudaError_t shd_soft_enqueue_kernel(const shd_soft_launch *launch);

#ifdef __cplusplus
}
#endif

#endif
