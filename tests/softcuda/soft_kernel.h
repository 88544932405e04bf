/* The language of device kernels, for the host's compiler: what runtime/device/kernel.h is without nvcc. Threads of a block
 * take turns (soft_block.h). Only what the host can do as a device does is here: whoever needs more of the language adds
 * it with its meaning, or wraps it. Arithmetic is the host's: approximate functions of a device are exact here. */
#ifndef SHD_TESTS_SOFT_KERNEL_H
#define SHD_TESTS_SOFT_KERNEL_H

#include "tests/softcuda/soft_block.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <new>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tuple>
#include <vector_functions.h>

#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __shared__
#undef __launch_bounds__
#undef __forceinline__
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))

/* Blocks run one after the other, so that one copy of shared memory does for all. */
#define SHD_SHARED                  static
#define SHD_DYNAMIC_SHARED(T, name) T *name = reinterpret_cast<T *>(shd_soft_here.dynamic_shared)

#define threadIdx (shd_soft_here.thread)
#define blockIdx  (shd_soft_here.block)
#define blockDim  (shd_soft_here.block_dim)
#define gridDim   (shd_soft_here.grid_dim)
#define warpSize  32

/* barriers and warps */

#define __syncthreads()             shd_soft_barrier(__LINE__)
#define __syncwarp(...)             shd_soft_warp_barrier(__LINE__, ##__VA_ARGS__)
#define __shfl_sync(...)            shd_soft_shuffle(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...)        shd_soft_shuffle_xor(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...)         shd_soft_shuffle_up(__LINE__, __VA_ARGS__)
#define __shfl_down_sync(...)       shd_soft_shuffle_down(__LINE__, __VA_ARGS__)
#define __ballot_sync(...)          shd_soft_ballot(__LINE__, __VA_ARGS__)
#define __any_sync(mask, predicate) (shd_soft_ballot(__LINE__, mask, predicate) != 0)
#define __all_sync(mask, predicate) (shd_soft_ballot(__LINE__, mask, predicate) == ~0u)

static inline void shd_soft_warp_barrier(int site, unsigned mask = ~0u) { shd_soft_exchange(mask, site, "", 0); }

/* The value of lane `from`, or the own one where there is no such lane. */
template <class T> static inline T shd_soft_take(int site, unsigned mask, T value, unsigned from, bool is_there) {
    static_assert(sizeof(T) <= sizeof(shd_soft_slot), "a shuffle moves at most 16 bytes");
    const shd_soft_slot *slots = shd_soft_exchange(mask, site, &value, sizeof value);
    if (is_there) memcpy(&value, slots[from].bytes, sizeof value);
    return value;
}

template <class T> static inline T shd_soft_shuffle(int site, unsigned mask, T value, int from, int width = 32) {
    unsigned lane = shd_soft_here.lane, w = static_cast<unsigned>(width);
    return shd_soft_take(site, mask, value, lane / w * w + static_cast<unsigned>(from) % w, true);
}

template <class T> static inline T shd_soft_shuffle_xor(int site, unsigned mask, T value, int bits, int width = 32) {
    unsigned lane = shd_soft_here.lane, from = lane ^ static_cast<unsigned>(bits), w = static_cast<unsigned>(width);
    return shd_soft_take(site, mask, value, from, from < 32 && from / w <= lane / w);
}

template <class T> static inline T shd_soft_shuffle_up(int site, unsigned mask, T value, unsigned by, int width = 32) {
    unsigned lane = shd_soft_here.lane;
    return shd_soft_take(site, mask, value, lane - by, lane % static_cast<unsigned>(width) >= by);
}

template <class T>
static inline T shd_soft_shuffle_down(int site, unsigned mask, T value, unsigned by, int width = 32) {
    unsigned lane = shd_soft_here.lane, w = static_cast<unsigned>(width);
    return shd_soft_take(site, mask, value, lane + by, lane % w + by < w);
}

static inline unsigned shd_soft_ballot(int site, unsigned mask, int predicate) {
    unsigned char own = predicate != 0;
    const shd_soft_slot *slots = shd_soft_exchange(mask, site, &own, sizeof own);
    unsigned votes = 0;
    for (unsigned lane = 0; lane < 32; lane++) votes |= static_cast<unsigned>(slots[lane].bytes[0]) << lane;
    return votes;
}

/* atomics, on integers: on floats their order would decide the sum */

#define SHD_SOFT_ATOMICS(T)                                                                                            \
    static inline T atomicAdd(T *at, T value) { return __atomic_fetch_add(at, value, __ATOMIC_RELAXED); }              \
    static inline T atomicOr(T *at, T value) { return __atomic_fetch_or(at, value, __ATOMIC_RELAXED); }                \
    static inline T atomicAnd(T *at, T value) { return __atomic_fetch_and(at, value, __ATOMIC_RELAXED); }              \
    static inline T atomicExch(T *at, T value) { return __atomic_exchange_n(at, value, __ATOMIC_RELAXED); }            \
    static inline T atomicCAS(T *at, T expected, T value) {                                                            \
        __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);                  \
        return expected;                                                                                               \
    }                                                                                                                  \
    static inline T atomicMax(T *at, T value) {                                                                        \
        T now = __atomic_load_n(at, __ATOMIC_RELAXED);                                                                 \
        while (now < value &&                                                                                          \
               !__atomic_compare_exchange_n(at, &now, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}             \
        return now;                                                                                                    \
    }                                                                                                                  \
    static inline T atomicMin(T *at, T value) {                                                                        \
        T now = __atomic_load_n(at, __ATOMIC_RELAXED);                                                                 \
        while (value < now &&                                                                                          \
               !__atomic_compare_exchange_n(at, &now, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}             \
        return now;                                                                                                    \
    }
SHD_SOFT_ATOMICS(int)
SHD_SOFT_ATOMICS(unsigned)
SHD_SOFT_ATOMICS(unsigned long long)

static inline void __threadfence(void) {}
static inline void __threadfence_block(void) {}

/* memory and bits */

template <class T> static inline T __ldg(const T *at) { return *at; }

template <class To, class From> static inline To shd_soft_bits(From value) {
    static_assert(sizeof(To) == sizeof(From), "the bits of one are those of the other");
    To out;
    memcpy(&out, &value, sizeof out);
    return out;
}
static inline unsigned __float_as_uint(float x) { return shd_soft_bits<unsigned>(x); }
static inline int __float_as_int(float x) { return shd_soft_bits<int>(x); }
static inline float __uint_as_float(unsigned x) { return shd_soft_bits<float>(x); }
static inline float __int_as_float(int x) { return shd_soft_bits<float>(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}

/* arithmetic, each operation rounded by itself */

static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline float __int2float_rn(int x) { return static_cast<float>(x); }
static inline int __float2int_rn(float x) { return static_cast<int>(rintf(x)); }
static inline int __float2int_rz(float x) { return static_cast<int>(x); }
static inline float __double2float_rn(double x) { return static_cast<float>(x); }

#define SHD_SOFT_MIN_MAX(T)                                                                                            \
    static inline T min(T a, T b) { return b < a ? b : a; }                                                            \
    static inline T max(T a, T b) { return a < b ? b : a; }
SHD_SOFT_MIN_MAX(int)
SHD_SOFT_MIN_MAX(unsigned)
SHD_SOFT_MIN_MAX(long)
SHD_SOFT_MIN_MAX(unsigned long)
SHD_SOFT_MIN_MAX(long long)
SHD_SOFT_MIN_MAX(unsigned long long)
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }

/* launches */

#define SHD_READS_BYTES(p, n)  (softcuda_access{(p), static_cast<size_t>(n), false})
#define SHD_WRITES_BYTES(p, n) (softcuda_access{(p), static_cast<size_t>(n), true})
#define SHD_READS(p, n)        SHD_READS_BYTES(p, static_cast<size_t>(n) * sizeof(*(p)))
#define SHD_WRITES(p, n)       SHD_WRITES_BYTES(p, static_cast<size_t>(n) * sizeof(*(p)))
#define SHD_SOFT_LIST(...)     __VA_ARGS__

/* A kernel with its arguments, which are taken when it is launched. */
template <class... P> struct shd_soft_call {
    void (*kernel)(P...);
    std::tuple<P...> arguments;
    static void run(void *state) {
        auto *call = static_cast<shd_soft_call *>(state);
        std::apply(call->kernel, call->arguments);
    }
    static void drop(void *state) {
        static_cast<shd_soft_call *>(state)->~shd_soft_call();
        free(state);
    }
};

template <class... P> struct shd_soft_kernel {
    void (*kernel)(P...);
    template <class... A> cudaError_t launch(shd_soft_launch what, A... arguments) const {
        what.kernel = reinterpret_cast<const void *>(kernel);
        what.body = shd_soft_call<P...>::run;
        what.drop = shd_soft_call<P...>::drop;
        /* Not by `new`: programs need nothing of the C++ library. */
        what.state = new (malloc(sizeof(shd_soft_call<P...>)))
            shd_soft_call<P...>{kernel, std::tuple<P...>(static_cast<P>(arguments)...)};
        return shd_soft_enqueue_kernel(&what);
    }
};

template <class... P> static inline shd_soft_kernel<P...> shd_soft_kernel_of(void (*kernel)(P...)) { return {kernel}; }

#define SHD_LAUNCH(kernel_, blocks_, threads_, shared_bytes_, stream_, accesses_, ...)                                 \
    [&] {                                                                                                              \
        const softcuda_access list_[] = {softcuda_access{nullptr, 0, false}, SHD_SOFT_LIST accesses_};                 \
        shd_soft_launch launch_ = {};                                                                                  \
        launch_.name = #kernel_;                                                                                       \
        launch_.blocks = static_cast<int64_t>(blocks_);                                                                \
        launch_.threads = static_cast<int64_t>(threads_);                                                              \
        launch_.shared_bytes = static_cast<int64_t>(shared_bytes_);                                                    \
        launch_.stream = (stream_);                                                                                    \
        launch_.accesses = list_;                                                                                      \
        launch_.access_count = sizeof list_ / sizeof *list_;                                                           \
        return shd_soft_kernel_of(kernel_).launch(launch_, ##__VA_ARGS__);                                             \
    }()

#endif
