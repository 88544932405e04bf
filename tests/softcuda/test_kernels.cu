/* Kernels that the software device's own tests launch, right ones and wrong ones. */
#include "runtime/device/kernel.h"

#include "tests/softcuda/test_kernels.h"

/* out[i] = a · x[i] + out[i] */
__global__ void scale_and_add(const float *x, float *out, int64_t n, float a) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        out[i] = fmaf(a, x[i], out[i]);
}

/* Sums of a block's stretch: within warps by shuffles, between them through shared memory. */
template <class T> static __device__ T warp_sum(T value) {
    for (int bits = 16; bits > 0; bits /= 2) value += __shfl_xor_sync(0xffffffffu, value, bits);
    return value;
}

__global__ void sum_blocks(const float *x, float *sums, int64_t n, int64_t stretch) {
    SHD_SHARED float warps[32];
    int64_t begin = blockIdx.x * stretch, end = begin + stretch < n ? begin + stretch : n;
    float sum = 0;
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) sum += x[i];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = warp_sum(threadIdx.x < blockDim.x / 32 ? warps[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0) sums[blockIdx.x] = sum;
    }
}

/* Turns each block's 256 numbers around, through dynamic shared memory; without the barrier it is wrong. */
template <bool HAS_BARRIER> __global__ void turn_around(const int *x, int *out) {
    SHD_DYNAMIC_SHARED(int, all);
    int64_t base = (int64_t)blockIdx.x * blockDim.x;
    all[threadIdx.x] = x[base + threadIdx.x];
    if (HAS_BARRIER) __syncthreads();
    out[base + threadIdx.x] = all[blockDim.x - 1 - threadIdx.x];
}

__global__ void warp_facts(unsigned *out) {
    unsigned lane = threadIdx.x % 32;
    unsigned odd = __ballot_sync(0xffffffffu, lane % 2);
    unsigned up = __shfl_up_sync(0xffffffffu, lane, 1u), down = __shfl_down_sync(0xffffffffu, lane, 1u);
    unsigned third = __shfl_sync(0xffffffffu, lane * 10, 3);
    if (lane == 5) {
        out[0] = odd;
        out[1] = up;
        out[2] = down;
        out[3] = third;
    }
    atomicAdd(&out[4], 1u);
    atomicMax(&out[5], threadIdx.x);
    atomicOr(&out[6], 1u << lane);
    int any = __any_sync(0xffffffffu, threadIdx.x == 7), all = __all_sync(0xffffffffu, lane < 31);
    __nv_bfloat16 rounded = __float2bfloat16_rn(1.00390625f); /* between two: the even one */
    if (threadIdx.x == 0) out[7] = __float_as_uint(__bfloat162float(rounded)) + (any ? 1 : 0) + (all ? 2 : 0);
}

__global__ void part_at_barriers(int *out) {
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        out[0] = 1;
        __syncthreads();
    }
}

__global__ void leave_before_barrier(int *out) {
    if (threadIdx.x == 0) return;
    __syncthreads();
    out[threadIdx.x] = 1;
}

__global__ void leave_before_shuffle(int *out) {
    if (threadIdx.x == 0) return;
    out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1, 1);
}

__global__ void use_half_a_mask(int *out) { out[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, (int)threadIdx.x, 1); }

__global__ void write_at(int *out, int64_t i) {
    if (threadIdx.x == 0) out[i] = 1;
}

extern "C" cudaError_t launch_scale_and_add(cudaStream_t stream, const float *x, float *out, int64_t n, float a) {
    return SHD_LAUNCH(scale_and_add, 3, 64, 0, stream, (SHD_READS(x, n), SHD_READS(out, n), SHD_WRITES(out, n)), x, out, n, a);
}

extern "C" cudaError_t launch_sum_blocks(cudaStream_t stream, const float *x, float *sums, int64_t n, int64_t stretch) {
    int64_t blocks = (n + stretch - 1) / stretch;
    return SHD_LAUNCH(sum_blocks, blocks, 256, 0, stream, (SHD_READS(x, n), SHD_WRITES(sums, blocks)), x, sums, n, stretch);
}

extern "C" cudaError_t launch_turn_around(cudaStream_t stream, const int *x, int *out, int64_t blocks, int has_barrier) {
    if (!has_barrier)
        return SHD_LAUNCH(turn_around<false>, blocks, 256, 256 * sizeof(int), stream,
                          (SHD_READS(x, 256 * blocks), SHD_WRITES(out, 256 * blocks)), x, out);
    return SHD_LAUNCH(turn_around<true>, blocks, 256, 256 * sizeof(int), stream,
                      (SHD_READS(x, 256 * blocks), SHD_WRITES(out, 256 * blocks)), x, out);
}

extern "C" cudaError_t launch_warp_facts(cudaStream_t stream, unsigned *out) {
    return SHD_LAUNCH(warp_facts, 2, 64, 0, stream, (SHD_READS(out, 8), SHD_WRITES(out, 8)), out);
}

extern "C" cudaError_t launch_wrong(cudaStream_t stream, wrong_kernel which, int *out) {
    switch (which) {
    case PART_AT_BARRIERS: return SHD_LAUNCH(part_at_barriers, 1, 64, 0, stream, (SHD_WRITES(out, 64)), out);
    case LEAVE_BEFORE_BARRIER: return SHD_LAUNCH(leave_before_barrier, 1, 64, 0, stream, (SHD_WRITES(out, 64)), out);
    case LEAVE_BEFORE_SHUFFLE: return SHD_LAUNCH(leave_before_shuffle, 1, 32, 0, stream, (SHD_WRITES(out, 64)), out);
    case USE_HALF_A_MASK: return SHD_LAUNCH(use_half_a_mask, 1, 32, 0, stream, (SHD_WRITES(out, 64)), out);
    case ODD_BLOCK: return SHD_LAUNCH(write_at, 1, 40, 0, stream, (SHD_WRITES(out, 64)), out, 0);
    case NO_BLOCKS: return SHD_LAUNCH(write_at, 0, 32, 0, stream, (SHD_WRITES(out, 64)), out, 0);
    case MUCH_SHARED: return SHD_LAUNCH(write_at, 1, 32, 64 << 10, stream, (SHD_WRITES(out, 64)), out, 0);
    case UNDECLARED: return SHD_LAUNCH(write_at, 1, 32, 0, stream, (SHD_WRITES(out, 32)), out, 40);
    }
    return cudaErrorInvalidValue;
}

extern "C" cudaError_t allow_much_shared(void) {
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(write_at), cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10);
}
