/* What optimizers and sums of gradients do to spans of device memory: one table of operations per backend, the
 * counterparts of optimizer.h, rounding.h and the fold of runtime/comm/reduce.c, in the same arithmetic and order, so
 * that results are those of the CPU (NUMERICS.md says where bits may differ: nowhere here but in contraction-free
 * rounding of roots and divisions, which IEEE fixes).
 *
 * All pointers are device memory, all calls enqueue on the stream; failures stick to its device (device.h). */
#ifndef SHD_OPTIM_SPANS_H
#define SHD_OPTIM_SPANS_H

#include "optim/optimizer.h"
#include "runtime/device/device.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct shd_span_ops {
    /* shd_optimizer_update. The blocks of states in 8 bits are device memory, codebooks the host's. */
    void (*update)(shd_stream *stream, const sherd_optimizer *optimizer, const shd_update *update);

    /* *sum += Σ values², exactly: partial sums as shd_square_sum has them, added to the digits of *sum by integers, so
     * that no order matters, and none is carried: room for 2^30 blocks of 256 between clearings. `sum`: device memory, a
     * shd_exact_sum. count: a multiple of 256. */
    void (*square_sum)(shd_stream *stream, const float *values, int64_t count, shd_exact_sum *sum);

    /* to[i] = from[i] in `dtype`, as shd_round_span. */
    void (*round)(shd_stream *stream, sherd_dtype dtype, int64_t count, const float *from, void *to);

    /* accumulator[i] = (first ? parts 0 : accumulator[i] + parts 0) + parts 1 + …, each addition rounded to fp32:
     * part k is the `count` numbers of `dtype`, FP32 or BF16, at parts[k], a table in host memory of `part_count` ≤ 64 pointers that go
     * up, all into one piece of device memory. A number that is not finite in part k sets bit k of *nonfinite (device memory; may be NULL). */
    void (*fold)(shd_stream *stream, float *accumulator, const void *const *parts, int32_t part_count,
                 sherd_dtype dtype, int64_t count, bool first, uint64_t *nonfinite);
} shd_span_ops;

/* Where the program is linked without it: NULL. */
extern const shd_span_ops shd_spans_cuda __attribute__((weak));
static inline const shd_span_ops *shd_spans_device(void) { return &shd_spans_cuda; }

#endif
