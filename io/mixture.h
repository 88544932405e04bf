/* Which source of a weighted mixture gives which sequence: a function of the sequence number alone.
 *
 * A balanced binary tree over the sources: of the first n sequences that reach a node with shares a (left) and b
 * (both), round(n·a/b) go left. So nothing is remembered, any number can be asked for, and of every first n sequences a
 * source has its share but for at most half a sequence a level, log2(sources) levels. */
#ifndef SHD_IO_MIXTURE_H
#define SHD_IO_MIXTURE_H

#include <stdint.h>

enum { SHD_MIXTURE_SOURCES = 64 };

typedef struct shd_mixture {
    int32_t source_count;
    uint64_t below[SHD_MIXTURE_SOURCES + 1]; /* the sum of the shares of all sources before this one */
} shd_mixture;

/* 1 to SHD_MIXTURE_SOURCES weights, each above 0, whose sum is finite. */
shd_mixture shd_mixture_make(const double *weights, int32_t source_count);

typedef struct shd_mixture_place {
    int32_t source;
    int64_t number; /* of the sequence within its source, from 0 */
} shd_mixture_place;

/* Where sequence number `q` ≥ 0 comes from. */
shd_mixture_place shd_mixture_find(const shd_mixture *mixture, int64_t q);
/* How many of the first `q` sequences come from `source`. */
int64_t shd_mixture_count(const shd_mixture *mixture, int32_t source, int64_t q);

#endif
