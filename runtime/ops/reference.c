/* The reference, once per type. tgmath picks expf or exp by the type, and so on. */
#include "runtime/ops/reference.h"

#include "runtime/base/random.h"

#include <stddef.h>
#include <tgmath.h>

bool shd_reference_drops(const shd_dropout *dropout, uint64_t key, int64_t sequence, int64_t row, int64_t column) {
    uint32_t words[4];
    shd_philox(key, (uint64_t)row << 32 | (uint64_t)column / 8, (uint64_t)sequence, words);
    return (words[column % 8 / 2] >> column % 2 * 16 & 0xffff) < dropout->drop;
}

#define REFERENCE_REAL       float
#define REFERENCE_NAME(name) shd_reference_##name##_f32
#include "runtime/ops/reference.inc"
#undef REFERENCE_REAL
#undef REFERENCE_NAME

#define REFERENCE_REAL       double
#define REFERENCE_NAME(name) shd_reference_##name##_f64
#include "runtime/ops/reference.inc"
