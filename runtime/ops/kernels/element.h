/* The type in which a table's kernels find and leave what is stored. The build compiles table.c once per instruction
 * set and type, with KERNELS_FP32, KERNELS_BF16 or KERNELS_FP16. */
#ifndef SHD_OPS_KERNELS_ELEMENT_H
#define SHD_OPS_KERNELS_ELEMENT_H

#include "runtime/base/dtype.h"

#include <stdint.h>
#include <string.h>

#if defined(KERNELS_BF16)
typedef uint16_t element;
static inline float widened(element value) { return shd_bf16_widen(value); }
static inline element rounded(float value) { return shd_bf16_round(value); }
#elif defined(KERNELS_FP16)
typedef uint16_t element;
static inline float widened(element value) { return shd_fp16_widen(value); }
static inline element rounded(float value) { return shd_fp16_round(value); }
#else
typedef float element;
static inline float widened(element value) { return value; }
static inline element rounded(float value) { return value; }
#endif

/* Element i of what is stored, and its new value. */
static inline float get(const void *stored, int64_t i) { return widened(((const element *)stored)[i]); }
static inline void put(void *stored, int64_t i, float value) { ((element *)stored)[i] = rounded(value); }

/* `stored` from element i on. */
static inline const void *from(const void *stored, int64_t i) { return (const element *)stored + i; }

#endif
