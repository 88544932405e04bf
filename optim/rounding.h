/* Spans rounded from fp32 to 16 bits, on many threads. */
#ifndef SHD_OPTIM_ROUNDING_H
#define SHD_OPTIM_ROUNDING_H

#include "runtime/device/pool.h"

#include <sherd/dtype.h>
#include <stdint.h>

/* to[i] = from[i] in `dtype`, BF16 or FP16, to nearest, ties to even. `from` and `to` do not overlap.
 * Threads: spreads over `pool`. */
void shd_round_span(shd_pool *pool, sherd_dtype dtype, int64_t count, const float *from, void *to);

#endif
