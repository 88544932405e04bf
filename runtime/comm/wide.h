/* The loops over whole shards: a rank-ordered sum and a copy. Work is cut into chunks of fixed size, so that neither
 * the threads nor who runs what can change a result. */
#ifndef SHD_COMM_WIDE_H
#define SHD_COMM_WIDE_H

#include "runtime/base/dtype.h"
#include "runtime/device/pool.h"

#include <stdbool.h>
#include <stdint.h>

/* accumulator[i] = (first ? sources[0][i] : accumulator[i] + sources[0][i]) + sources[1][i] + …, left to right, each
 * sum rounded to fp32. Sources are of type `dtype`: FP32 or BF16, which is widened. Every source is read once; there
 * are at most SHD_COMM_MAX_RANKS. accumulator overlaps no source. pool may be NULL: the caller's thread alone.
 * *nonfinite: a bit for each source that holds a number that is not finite. It costs a look at sums that are still in the
 * cache, and sources are looked at only where a sum is not finite. */
void shd_wide_fold(shd_pool *pool, float *accumulator, const void *const *sources, sherd_dtype dtype,
                   int32_t source_count, int64_t count, bool first, uint64_t *nonfinite);

/* out[i] = sources[0][i] + sources[1][i] + …, fp32, left to right, as fold does; `out` may be one of the sources. */
void shd_wide_sum(shd_pool *pool, float *out, const void *const *sources, int32_t source_count, int64_t count);

/* Copies `bytes` from one place to another that does not overlap it. */
void shd_wide_copy(shd_pool *pool, unsigned char *to, const unsigned char *from, int64_t bytes);

/* Copies sources[r] to full + r·bytes for every r, beginning after `own` so that ranks do not all read the same one
 * first; a source already in its place is left alone. */
void shd_wide_gather(shd_pool *pool, unsigned char *full, const unsigned char *const *sources, int32_t source_count,
                     int32_t own, int64_t bytes);

#endif
