/* The reference, once per type. tgmath picks expf or exp by the type, and so on. */
#include "runtime/ops/reference.h"

#include <stddef.h>
#include <tgmath.h>

#define REFERENCE_REAL       float
#define REFERENCE_NAME(name) shd_reference_##name##_f32
#include "runtime/ops/reference.inc"
#undef REFERENCE_REAL
#undef REFERENCE_NAME

#define REFERENCE_REAL       double
#define REFERENCE_NAME(name) shd_reference_##name##_f64
#include "runtime/ops/reference.inc"
