/* How numbers are stored, and the way between float32 and the 16-bit types: rounding to nearest, ties to even.
 *
 * Widening is exact; narrowing a widened value gives the same bits back, but for the payload of a NaN, which stays a
 * quiet NaN. Everything is branch-free integer arithmetic and exact float operations: loops over it are vectorised, and
 * give the same bits with every instruction set. Subnormal values are kept, whatever the processor's own conversion
 * does with them. */
#ifndef SHD_BASE_DTYPE_H
#define SHD_BASE_DTYPE_H

#include <sherd/dtype.h>
#include <stdint.h>
#include <string.h>

/* INT8 comes in blocks of so many values, each a scale and the values' codes. */
enum { SHD_CODE_BLOCK_COUNT = 256, SHD_CODE_BLOCK_BYTES = 4 + SHD_CODE_BLOCK_COUNT };

/* Bytes of an element; not of INT8, which has none by itself. */
static inline int64_t shd_dtype_bytes(sherd_dtype dtype) { return dtype == SHERD_FP32 ? 4 : 2; }
/* Bytes of `count` elements from the start of an array, or of a block, on; the last block is always whole. */
static inline int64_t shd_span_bytes(sherd_dtype dtype, int64_t count) {
    if (dtype != SHERD_INT8) return count * shd_dtype_bytes(dtype);
    return (count + SHD_CODE_BLOCK_COUNT - 1) / SHD_CODE_BLOCK_COUNT * SHD_CODE_BLOCK_BYTES;
}
/* The place of element `index` in an array of `dtype`. */
static inline void *shd_element(sherd_dtype dtype, void *array, int64_t index) {
    return (char *)array + index * shd_dtype_bytes(dtype);
}
static inline const void *shd_const_element(sherd_dtype dtype, const void *array, int64_t index) {
    return (const char *)array + index * shd_dtype_bytes(dtype);
}
/* "fp32", "bf16", "fp16", "int8", as a job file has them. */
const char *shd_dtype_text(sherd_dtype dtype);

static inline uint32_t shd_float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float shd_float_of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float shd_bf16_widen(uint16_t value) { return shd_float_of_bits((uint32_t)value << 16); }

static inline uint16_t shd_bf16_round(float value) {
    uint32_t bits = shd_float_bits(value);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    uint32_t quiet = bits >> 16 | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

/* A binary16's magnitude, shifted to where a binary32 has its fraction, is its value · 2^-112: exact also for subnormal
 * ones. Infinities and NaNs, of the highest exponent, get binary32's. */
static inline float shd_fp16_widen(uint16_t value) {
    uint32_t magnitude = (uint32_t)(value & 0x7fffu) << 13, sign = (uint32_t)(value & 0x8000u) << 16;
    uint32_t finite = shd_float_bits(shd_float_of_bits(magnitude) * 0x1p112f);
    uint32_t special = magnitude | 0x7f800000u;
    return shd_float_of_bits(sign | (magnitude >= 0x0f800000u ? special : finite));
}

/* Normal results round as integers, the exponent being rebased; subnormal ones by adding ½, whose last place is theirs. */
static inline uint16_t shd_fp16_round(float value) {
    uint32_t bits = shd_float_bits(value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    uint32_t normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1)) >> 13;
    uint32_t subnormal = shd_float_bits(shd_float_of_bits(magnitude) + 0.5f) - shd_float_bits(0.5f);
    uint32_t special = magnitude > 0x7f800000u ? 0x7e00u | (magnitude >> 13 & 0x3ffu) : 0x7c00u;
    uint32_t rounded = magnitude < (113u << 23) ? subnormal : normal;
    return (uint16_t)(sign | (magnitude >= 0x477ff000u ? special : rounded));
}

/* to[i] = from[i] in float32. `from` and `to` do not overlap. Threads: the caller's alone. */
void shd_widen(sherd_dtype dtype, int64_t count, const void *from, float *to);
/* to[i] = from[i] in `dtype`. Likewise. */
void shd_round(sherd_dtype dtype, int64_t count, const float *from, void *to);

#endif
