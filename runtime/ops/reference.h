/* Every operation of ops.h in plain C, once in float (shd_reference_*_f32) and once in double (_f64): the definition of
 * the formulas and the oracle of the tests. One thread, loops in the order one would write them, libm for exp and tanh.
 *
 * Shapes, strides and aliasing are those of ops.h; ids, targets and flags too. `real` below is float or double; the
 * double forms take every real-valued operand in double. Losses are double in both. */
#ifndef SHD_OPS_REFERENCE_H
#define SHD_OPS_REFERENCE_H

#include "runtime/ops/dropout.h"

#include <stdbool.h>
#include <stdint.h>

/* Whether an element goes. Attention asks with the key of a head. */
bool shd_reference_drops(const shd_dropout *dropout, uint64_t key, int64_t sequence, int64_t row, int64_t column);

#define REFERENCE_REAL       float
#define REFERENCE_NAME(name) shd_reference_##name##_f32
#include "runtime/ops/reference_declare.inc"
#undef REFERENCE_REAL
#undef REFERENCE_NAME

#define REFERENCE_REAL       double
#define REFERENCE_NAME(name) shd_reference_##name##_f64
#include "runtime/ops/reference_declare.inc"
#undef REFERENCE_REAL
#undef REFERENCE_NAME

#endif
