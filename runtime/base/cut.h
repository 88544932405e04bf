/* How mathematics is cut for threads: borders follow from the shape alone. */
#ifndef SHD_BASE_CUT_H
#define SHD_BASE_CUT_H

#include "runtime/base/arith.h"

/* Elements an elementwise task takes: some microseconds of work, and its operands fit the L2 cache. */
enum { SHD_SPAN = 16384 };

/* Rows of `columns` elements that a row-wise task takes. */
static inline int64_t shd_rows_per_task(int64_t columns) { return shd_max(1, SHD_SPAN / shd_max(columns, 1)); }

/* Piece `index` of [0, count) cut every `piece`: its start, and its length in *length. */
static inline int64_t shd_cut(int64_t count, int64_t piece, int64_t index, int64_t *length) {
    int64_t start = index * piece;
    *length = shd_min(piece, count - start);
    return start;
}

#endif
