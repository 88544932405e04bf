/* What kernels of operations share: elements as they are stored, packs of them, blocks, and sums over a warp.
 *
 * T is float, __nv_bfloat16 or __half. Elements are widened to float when they are loaded and rounded once when they are
 * stored. A pack is WIDTH neighbours, moved by one access: 16 bytes where memory and row length allow it, else one
 * element; whether they do is asked on the host, once a launch. */
#ifndef SHD_OPS_CUDA_ELEMENTS_CUH
#define SHD_OPS_CUDA_ELEMENTS_CUH

#include "runtime/device/kernel.h"

#include <initializer_list>
#include <sherd/dtype.h>

__device__ inline float widened(float x) { return x; }
__device__ inline float widened(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float widened(__half x) { return __half2float(x); }

template <class T> __device__ T rounded(float x);
template <> __device__ inline float rounded<float>(float x) { return x; }
template <> __device__ inline __nv_bfloat16 rounded<__nv_bfloat16>(float x) { return __float2bfloat16_rn(x); }
template <> __device__ inline __half rounded<__half>(float x) { return __float2half_rn(x); }

template <class T> constexpr int FULL_WIDTH = 16 / sizeof(T);

template <class T, int WIDTH> struct alignas(WIDTH * sizeof(T)) pack { T element[WIDTH]; };

template <int WIDTH, class T> __device__ inline pack<T, WIDTH> load_pack(const T *x, int64_t index) {
    return reinterpret_cast<const pack<T, WIDTH> *>(x)[index];
}

template <class T, int WIDTH> __device__ inline void store_pack(T *y, int64_t index, const float (&values)[WIDTH]) {
    pack<T, WIDTH> stored;
#pragma unroll
    for (int i = 0; i < WIDTH; i++) stored.element[i] = rounded<T>(values[i]);
    reinterpret_cast<pack<T, WIDTH> *>(y)[index] = stored;
}

template <class T, int WIDTH> __device__ inline void widen_pack(const pack<T, WIDTH> &stored, float (&values)[WIDTH]) {
#pragma unroll
    for (int i = 0; i < WIDTH; i++) values[i] = widened(stored.element[i]);
}

/* Pack `index` of x, widened. */
template <class T, int WIDTH> __device__ inline void load_widened(const T *x, int64_t index, float (&values)[WIDTH]) {
    widen_pack(load_pack<WIDTH>(x, index), values);
}

/* WIDTH floats from x on, beside packs of WIDTH narrower elements: up to 16 bytes at once. */
template <int WIDTH> __device__ inline void load_floats(const float *x, float (&values)[WIDTH]) {
    constexpr int AT_ONCE = WIDTH < 4 ? WIDTH : 4;
#pragma unroll
    for (int i = 0; i < WIDTH; i += AT_ONCE) {
        const pack<float, AT_ONCE> part = load_pack<AT_ONCE>(x + i, 0);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) values[i + k] = part.element[k];
    }
}

template <int WIDTH> __device__ inline void store_floats(float *y, const float (&values)[WIDTH]) {
    constexpr int AT_ONCE = WIDTH < 4 ? WIDTH : 4;
#pragma unroll
    for (int i = 0; i < WIDTH; i += AT_ONCE) {
        pack<float, AT_ONCE> part;
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) part.element[k] = values[i + k];
        reinterpret_cast<pack<float, AT_ONCE> *>(y + i)[0] = part;
    }
}

/* Every lane gets the same bits: halves onto halves, in either order of the two addends. */
__device__ inline float warp_sum(float x) {
    for (int apart = 16; apart; apart /= 2) x += __shfl_xor_sync(0xffffffffu, x, apart);
    return x;
}

/* --- on the host -------------------------------------------------------------------------------------------------- */

template <class T> struct type_tag { using type = T; };

/* f(type_tag<T>) for the type that stores `dtype`. */
template <class F> cudaError_t with_type(sherd_dtype dtype, F f) {
    switch (dtype) {
    case SHERD_FP32: return f(type_tag<float>{});
    case SHERD_BF16: return f(type_tag<__nv_bfloat16>{});
    case SHERD_FP16: return f(type_tag<__half>{});
    default: return cudaErrorInvalidValue;
    }
}

template <int N> struct constant { static constexpr int value = N; };

/* f(constant<WIDTH>) with the widest pack of T that rows of `columns` elements, `stride` apart, are made of in all of
 * `pointers`; NULL is at home anywhere. */
template <class T, class F>
cudaError_t with_width(int64_t columns, int64_t stride, std::initializer_list<const void *> pointers, F f) {
    bool full = columns % FULL_WIDTH<T> == 0 && stride % FULL_WIDTH<T> == 0;
    for (const void *pointer : pointers) full = full && reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
    if (full) return f(constant<FULL_WIDTH<T>>{});
    return f(constant<1>{});
}

/* What `count` elements of T take; nothing where there are none. */
template <class T> int64_t bytes_of(const void *elements, int64_t count) {
    return elements ? count * (int64_t)sizeof(T) : 0;
}

/* Blocks for `items` of which a block takes `of_block` at a time. Enough to fill any device several times; kernels go
 * round for what is left. */
static inline unsigned blocks_for(int64_t items, int64_t of_block) {
    const int64_t blocks = (items + of_block - 1) / of_block, most = 4096;
    return (unsigned)(blocks < most ? blocks : most);
}

#endif
