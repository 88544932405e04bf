/* What kernels of spans share: the rules of updates, element by element, in the CPU's arithmetic (update_kernels.c), and
 * rounding to 16 bits with the CPU's bits, NaNs included. Nothing is contracted: nvcc gets --fmad=false. */
#ifndef SHD_OPTIM_CUDA_SPAN_CUH
#define SHD_OPTIM_CUDA_SPAN_CUH

#include "optim/cuda/launch_spans.h"
#include "runtime/device/kernel.h"

#include <string.h>

__device__ inline uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

__device__ inline float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* As shd_bf16_round and shd_fp16_round have them. */
__device__ inline uint16_t bf16_of(float value) {
    const uint32_t bits = bits_of(value);
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

__device__ inline uint16_t fp16_of(float value) {
    const uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1)) >> 13;
    const uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
    const uint32_t special = magnitude > 0x7f800000u ? 0x7e00u | (magnitude >> 13 & 0x3ffu) : 0x7c00u;
    const uint32_t rounded = magnitude < (113u << 23) ? subnormal : normal;
    return (uint16_t)(sign | (magnitude >= 0x477ff000u ? special : rounded));
}

__device__ inline uint16_t rounded_to(sherd_dtype dtype, float value) {
    return dtype == SHERD_BF16 ? bf16_of(value) : fp16_of(value);
}

/* --- rules: each updates its element's states and returns the new parameter ---------------------------------------- */

struct adamw {
    static constexpr int STATES = 2;
    /* Moves the moments; returns what the parameter loses. */
    static __device__ float step(const shd_update_constants &c, float gradient, float &first_moment,
                                 float &second_moment) {
        const float first = c.beta1 * first_moment + c.beta1_rest * gradient;
        const float second = c.beta2 * second_moment + c.beta2_rest * (gradient * gradient);
        first_moment = first;
        second_moment = second;
        return c.step_size * (first / (c.root_factor * sqrtf(second) + c.eps));
    }
    static __device__ float apply(const shd_update_constants &c, float parameter, float gradient, float &s0, float &s1) {
        const float loss = step(c, c.gradient_scale * gradient, s0, s1);
        return c.keep * parameter - loss;
    }
};

struct adam {
    static constexpr int STATES = 2;
    static __device__ float apply(const shd_update_constants &c, float parameter, float gradient, float &s0, float &s1) {
        const float decayed = c.gradient_scale * gradient + c.weight_decay * parameter;
        return parameter - adamw::step(c, decayed, s0, s1);
    }
};

struct lion {
    static constexpr int STATES = 1;
    static __device__ float apply(const shd_update_constants &c, float parameter, float gradient, float &s0, float &) {
        const float scaled = c.gradient_scale * gradient;
        const float direction = c.beta1 * s0 + c.beta1_rest * scaled;
        const float sign = (direction > 0 ? 1.0f : 0.0f) - (direction < 0 ? 1.0f : 0.0f);
        s0 = c.beta2 * s0 + c.beta2_rest * scaled;
        return c.keep * parameter - c.lr * sign;
    }
};

struct sgd {
    static constexpr int STATES = 0;
    static __device__ float apply(const shd_update_constants &c, float parameter, float gradient, float &, float &) {
        const float decayed = c.gradient_scale * gradient + c.weight_decay * parameter;
        return parameter - c.lr * decayed;
    }
};

struct sgd_momentum {
    static constexpr int STATES = 1;
    static __device__ float apply(const shd_update_constants &c, float parameter, float gradient, float &s0, float &) {
        const float decayed = c.gradient_scale * gradient + c.weight_decay * parameter;
        s0 = c.momentum * s0 + decayed;
        return parameter - c.lr * s0;
    }
};

struct sgd_nesterov {
    static constexpr int STATES = 1;
    static __device__ float apply(const shd_update_constants &c, float parameter, float gradient, float &s0, float &) {
        const float decayed = c.gradient_scale * gradient + c.weight_decay * parameter;
        s0 = c.momentum * s0 + decayed;
        return parameter - c.lr * (decayed + c.momentum * s0);
    }
};

/* f(rule) for the rule that is asked for. */
template <class F> cudaError_t with_rule(shd_span_rule rule, F f) {
    switch (rule) {
    case SHD_SPAN_ADAMW: return f(adamw{});
    case SHD_SPAN_ADAM: return f(adam{});
    case SHD_SPAN_LION: return f(lion{});
    case SHD_SPAN_SGD: return f(sgd{});
    case SHD_SPAN_SGD_MOMENTUM: return f(sgd_momentum{});
    case SHD_SPAN_SGD_NESTEROV: return f(sgd_nesterov{});
    }
    return cudaErrorInvalidValue;
}

/* --- packs of four, wherever a span begins ------------------------------------------------------------------------- */

/* Elements from the span's start back to a border of 16 bytes; the same for arrays that begin alike. */
static inline int32_t shift_of(const void *array) { return (int32_t)(reinterpret_cast<uintptr_t>(array) % 16 / 4); }

static inline unsigned span_blocks(int64_t items, int64_t of_block) {
    const int64_t blocks = (items + of_block - 1) / of_block, most = 4096;
    return (unsigned)(blocks < most ? blocks : most);
}

struct alignas(16) four { float at[4]; };

#endif
