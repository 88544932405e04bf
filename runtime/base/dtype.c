#include "runtime/base/dtype.h"

const char *shd_dtype_text(sherd_dtype dtype) {
    switch (dtype) {
    case SHERD_FP32: return "fp32";
    case SHERD_BF16: return "bf16";
    case SHERD_FP16: return "fp16";
    case SHERD_INT8: return "int8";
    }
    return "unknown";
}

void shd_widen(sherd_dtype dtype, int64_t count, const void *from, float *to) {
    const uint16_t *halves = from;
    if (dtype == SHERD_FP32 && count > 0) memcpy(to, from, (size_t)count * sizeof *to);
    if (dtype == SHERD_BF16)
        for (int64_t i = 0; i < count; i++) to[i] = shd_bf16_widen(halves[i]);
    if (dtype == SHERD_FP16)
        for (int64_t i = 0; i < count; i++) to[i] = shd_fp16_widen(halves[i]);
}

void shd_round(sherd_dtype dtype, int64_t count, const float *from, void *to) {
    uint16_t *halves = to;
    if (dtype == SHERD_FP32 && count > 0) memcpy(to, from, (size_t)count * sizeof *from);
    if (dtype == SHERD_BF16)
        for (int64_t i = 0; i < count; i++) halves[i] = shd_bf16_round(from[i]);
    if (dtype == SHERD_FP16)
        for (int64_t i = 0; i < count; i++) halves[i] = shd_fp16_round(from[i]);
}
