/* The language of device kernels: one source for nvcc and, built as C++ for the host, for the software device of the tests
 * (tests/softcuda), which runs threads of a block one after the other and checks what they touch.
 *
 * Rules: 1-D blocks of a multiple of 32 threads, full masks in warp operations, no return before a barrier; static
 * shared memory by SHD_SHARED, dynamic by SHD_DYNAMIC_SHARED; int64_t indices in grid-stride loops; no atomics on floats.
 * A launch names all memory that its kernel reads and writes.
 *
 * SHD_LAUNCH(kernel, blocks, threads, shared_bytes, stream, (SHD_READS(p, n), SHD_WRITES(q, m)), argument, …)
 * gives a cudaError_t. n and m count elements of *p and *q; SHD_READS_BYTES and SHD_WRITES_BYTES take bytes. */
#ifndef SHD_DEVICE_KERNEL_H
#define SHD_DEVICE_KERNEL_H

#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#define SHD_SHARED __shared__
#define SHD_DYNAMIC_SHARED(T, name)                                                                                    \
    extern __shared__ __align__(16) unsigned char shd_dynamic_shared[];                                                \
    T *name = reinterpret_cast<T *>(shd_dynamic_shared)
#define SHD_LAUNCH(kernel, blocks, threads, shared_bytes, stream, accesses, ...)                                       \
    (kernel<<<(unsigned)(blocks), (unsigned)(threads), (size_t)(shared_bytes), (stream)>>>(__VA_ARGS__),               \
     cudaGetLastError())

#else

#include <soft_kernel.h> /* tests/softcuda */

#endif

#endif
