/* The vocabulary of the kernels: 16 lanes, FMA where the instruction set has it, and exp.
 *
 * Elementwise code is written for one float and left to the compiler to vectorise: every operation is exact IEEE,
 * nothing is contracted or reordered, so vector body and scalar tail give the same bits. Sums name their lanes, for
 * their order is part of the result. */
#ifndef SHD_OPS_KERNELS_LANES_H
#define SHD_OPS_KERNELS_LANES_H

#include "runtime/ops/kernels/element.h"

enum { LANES = 16 };

/* The width of one register; 16 lanes are as many of them as it takes, so that sums stay in registers in every set. */
#if defined(__AVX512F__)
enum { REGISTER_BYTES = 64 };
#elif defined(__AVX__)
enum { REGISTER_BYTES = 32 };
#else
enum { REGISTER_BYTES = 16 };
#endif
enum { REGISTERS = LANES * sizeof(float) / REGISTER_BYTES };
typedef float lane_register __attribute__((vector_size(REGISTER_BYTES)));
typedef struct lanes {
    lane_register part[REGISTERS];
} lanes;

/* Before a loop whose iterations touch different elements, though its pointers may be the same. */
#ifdef __clang__
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

static inline float fused(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

static inline lanes lanes_of_floats(const float *p) {
    lanes v;
    for (int i = 0; i < REGISTERS; i++) memcpy(&v.part[i], p + i * LANES / REGISTERS, REGISTER_BYTES);
    return v;
}

/* `count` < LANES floats, then zeros. */
static inline lanes lanes_of_part(const float *p, int64_t count) {
    float part[LANES] = {0};
    for (int64_t l = 0; l < count; l++) part[l] = p[l];
    return lanes_of_floats(part);
}

/* Elements from `at` on, widened. */
static inline lanes lanes_load(const void *p, int64_t at) {
    float whole[LANES];
    for (int l = 0; l < LANES; l++) whole[l] = get(p, at + l);
    return lanes_of_floats(whole);
}

/* `count` < LANES elements from `at` on, then `fill`. */
static inline lanes lanes_load_part(const void *p, int64_t at, int64_t count, float fill) {
    float part[LANES];
    for (int l = 0; l < LANES; l++) part[l] = fill;
    for (int64_t l = 0; l < count; l++) part[l] = get(p, at + l);
    return lanes_of_floats(part);
}

static inline lanes lanes_add(lanes a, lanes b) {
    for (int i = 0; i < REGISTERS; i++) a.part[i] += b.part[i];
    return a;
}

static inline lanes lanes_mul(lanes a, lanes b) {
    for (int i = 0; i < REGISTERS; i++) a.part[i] *= b.part[i];
    return a;
}

static inline lanes lanes_subtract(lanes a, float b) {
    for (int i = 0; i < REGISTERS; i++) a.part[i] -= b;
    return a;
}

static inline lanes lanes_scale(lanes a, float b) {
    for (int i = 0; i < REGISTERS; i++) a.part[i] *= b;
    return a;
}

static inline void lanes_store(float *p, lanes v) { memcpy(p, &v, sizeof v); }

/* The lanes' sum, halves onto halves. */
static inline float lanes_sum(lanes v) {
    float s[LANES];
    lanes_store(s, v);
    for (int half = LANES / 2; half; half /= 2)
        for (int l = 0; l < half; l++) s[l] += s[l + half];
    return s[0];
}

/* exp(x) for x ≤ 88, relative error below 1.2e-7; 0 below -87.3; NaN stays NaN. x = n·ln 2 + r, |r| ≤ ln 2 / 2; e^r = 1
 * + r + r²·q(r), q of degree 4 through Chebyshev's points (error 1e-8); 2^n is made from bits. ln 2 is split so that
 * n·LN2_HIGH is exact without FMA too. */
static inline float exp_of(float x) {
    const float rounder = 12582912.0f; /* 1.5·2^23: adding it rounds to an integer, which stands in its low bits */
    const float lowest = -87.33654f;
    float bounded = x < lowest ? lowest : x;
    float shifted = fused(bounded, 1.44269504f, rounder);
    float n = shifted - rounder;
    float r = fused(n, -0.693359375f, bounded);
    r = fused(n, 2.12194440e-4f, r);
    float q = 0.00139262135f;
    q = fused(q, r, 0.00836320297f);
    q = fused(q, r, 0.0416665544f);
    q = fused(q, r, 0.166665768f);
    q = fused(q, r, 0.5f);
    float e = fused(q * r, r, r) + 1.0f;
    int32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (int32_t)((uint32_t)bits << 23) + 0x3f800000;
    float power;
    memcpy(&power, &bits, sizeof power);
    return x < lowest ? 0.0f : e * power;
}

/* 1 / (1 + e^-x), with e = e^-x in *e for those who need 1 - sigmoid = e·sigmoid. Good to a few ulp in both tails; 0
 * below -87. */
static inline float sigmoid_of(float x, float *e) {
    *e = exp_of(x < -87.0f ? 87.0f : -x);
    return x < -87.0f ? 0.0f : 1.0f / (1.0f + *e);
}

#endif
