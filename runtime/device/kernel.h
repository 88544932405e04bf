/* The language of device kernels: one source for nvcc and, built as C++ for the host, for the software device of the tests
 * (tests/softcuda), which runs threads of a block one after the other and checks what they touch.
 *
 * Rules: 1-D blocks of a multiple of 32 threads, full masks in warp operations, no return before a barrier; static
 * shared memory by SHD_SHARED, dynamic by SHD_DYNAMIC_SHARED; int64_t indices in grid-stride loops; no atomics on floats.
 * A launch names all memory that its kernel reads and writes.
 *
 * SHD_LAUNCH(kernel, blocks, threads, shared_bytes, stream, (SHD_READS(p, n), SHD_WRITES(q, m)), argument, …)
 * gives a cudaError_t. `kernel` is a kernel's name, no variable; in parentheses where it has commas: (rows<float, 4>).
 * n and m count elements of *p and *q; SHD_READS_BYTES and SHD_WRITES_BYTES take bytes. */
#ifndef SHD_DEVICE_KERNEL_H
#define SHD_DEVICE_KERNEL_H

#ifdef __CUDACC__

#include "runtime/device/cuda_kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#define SHD_SHARED __shared__
#define SHD_DYNAMIC_SHARED(T, name)                                                                                    \
    extern __shared__ __align__(16) unsigned char shd_dynamic_shared[];                                                \
    T *name = reinterpret_cast<T *>(shd_dynamic_shared)

/* What a launch names is of use on the software device only. */
#define SHD_READS(p, n)        (p), (n)
#define SHD_WRITES(p, n)       (p), (n)
#define SHD_READS_BYTES(p, n)  (p), (n)
#define SHD_WRITES_BYTES(p, n) (p), (n)
template <class... T> constexpr void shd_name_unused(const T &...) {}

#define SHD_LAUNCH(kernel, blocks, threads, shared_bytes, stream, accesses, ...)                                       \
    (shd_name_unused accesses, (void)&shd_kernel_of<(kernel)>::entry,                                                  \
     kernel<<<(unsigned)(blocks), (unsigned)(threads), (size_t)(shared_bytes), (stream)>>>(__VA_ARGS__),               \
     cudaGetLastError())

/* Enters itself in the list of kernels (cuda_kernels.h), when the program starts. */
struct shd_kernel_listed : shd_kernel_entry {
    explicit shd_kernel_listed(const void *function) : shd_kernel_entry{function, shd_kernel_entries} {
        shd_kernel_entries = this;
    }
};
template <auto kernel> struct shd_kernel_of { static shd_kernel_listed entry; };
template <auto kernel> shd_kernel_listed shd_kernel_of<kernel>::entry(reinterpret_cast<const void *>(kernel));

#else

#include <soft_kernel.h> /* tests/softcuda */

#endif

#endif
