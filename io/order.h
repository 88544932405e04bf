/* Which sequence of a source comes when. A source's sequence number q is in epoch q div S at position perm(q mod S), S
 * its sequences: nothing is dropped at an epoch's end, and nothing depends on ranks. With one source, q is the sequence
 * number of the run: step · global_batch + place in the batch. */
#ifndef SHD_IO_ORDER_H
#define SHD_IO_ORDER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct shd_order {
    uint64_t seed;
    uint64_t source;        /* its place in the mixture: sources have permutations of their own */
    int64_t sequence_count; /* S > 0 */
    bool shuffle;           /* a permutation per epoch, a function of seed, source and epoch; false: file order */
} shd_order;

/* The index in [0, S) of sequence number `q` ≥ 0. O(1). */
int64_t shd_order_index(const shd_order *order, int64_t q);

#endif
