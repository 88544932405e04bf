/* Packing: operands of 16-bit numbers as panels, in which neighbours of the inner dimension stand together.
 *
 * A pair is two such neighbours in 32 bits, the lower one first: what one lane of the bf16 instructions multiplies. A
 * stored matrix has its inner dimension ("depth") either across rows or along them; its other dimension ("width") is m
 * for a, n for b. Panels are `panel_width` wide:
 * - pair panels hold for every pair of depths the pairs of all widths: [depth / 2][panel_width];
 * - row panels hold for every 16 pairs of depths a row of pairs for each width: [depth / 32][panel_width][16].
 * What there is no operand for is zero: widths up to a multiple of 16, depths up to `pairs` pairs.
 *
 * Vectors are the compiler's, so that the same text serves every instruction set. */
#ifndef SHD_OPS_HALF_PANEL_H
#define SHD_OPS_HALF_PANEL_H

#include "runtime/base/arith.h"
#include "runtime/ops/half/blocked.h"

#include <string.h>

enum { BLOCK = 16 };            /* pairs in a vector, vectors in a block */
enum { LINE = 32, AHEAD = 16 }; /* numbers in a cache line; how many pairs ahead memory is asked for */

typedef uint32_t pair_vector __attribute__((vector_size(BLOCK * sizeof(uint32_t))));

#define SHUFFLE __builtin_shufflevector

/* Turns 16 vectors of 16 by swapping ever larger squares: single pairs, twos, fours, eights. */
static inline __attribute__((always_inline)) void transpose(pair_vector v[BLOCK]) {
    pair_vector t[BLOCK];
    for (int i = 0; i < BLOCK; i += 2) {
        t[i] = SHUFFLE(v[i], v[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
        t[i + 1] = SHUFFLE(v[i], v[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
    }
    for (int i = 0; i < BLOCK; i += 4)
        for (int j = 0; j < 2; j++) {
            const pair_vector low = t[i + j], high = t[i + j + 2];
            v[i + 2 * j] = SHUFFLE(low, high, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
            v[i + 2 * j + 1] = SHUFFLE(low, high, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
        }
    for (int i = 0; i < BLOCK; i += 8)
        for (int j = 0; j < 4; j++) {
            const pair_vector low = v[i + j], high = v[i + j + 4];
            t[i + j] = SHUFFLE(low, high, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
            t[i + j + 4] = SHUFFLE(low, high, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
        }
    for (int j = 0; j < 8; j++) {
        v[j] = SHUFFLE(t[j], t[j + 8], 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
        v[j + 8] = SHUFFLE(t[j], t[j + 8], 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
    }
}

/* `count` numbers, and zeros after them. */
static inline void load_along(const uint16_t *x, int64_t count, pair_vector *v) {
    *v = (pair_vector){0};
    if (count >= 2 * BLOCK)
        memcpy(v, x, sizeof *v);
    else if (count > 0)
        memcpy(v, x, (size_t)count * sizeof *x);
}

/* Pairs of `even` and `odd`, `count` of them, and zeros after them. */
static inline void pair_up(const uint16_t *even, const uint16_t *odd, int64_t count, uint32_t *pairs) {
    if (count >= BLOCK) {
        for (int j = 0; j < BLOCK; j++) pairs[j] = (uint32_t)even[j] | (uint32_t)odd[j] << 16;
    } else {
        for (int j = 0; j < BLOCK; j++) pairs[j] = j < count ? (uint32_t)even[j] | (uint32_t)odd[j] << 16 : 0;
    }
}

/* 16 widths of the pair of depths `pair`: zeros where there is none. */
static inline void load_pair(const half_block *b, int64_t pair, int64_t width, uint32_t *pairs) {
    static const uint16_t zeros[BLOCK];
    const int64_t depth = 2 * pair;
    const uint16_t *even = b->x + depth * b->stride + width;
    if (depth < b->depth)
        pair_up(even, depth + 1 < b->depth ? even + b->stride : zeros, b->width - width, pairs);
    else
        memset(pairs, 0, BLOCK * sizeof *pairs);
}

/* v[i] holds 16 pairs, from `pair` on, of the width `width + i`. */
static inline void load_rows(const half_block *b, int64_t pair, int64_t width, pair_vector v[BLOCK]) {
    const uint16_t *x = b->x + width * b->stride + 2 * pair;
    for (int i = 0; i < BLOCK; i++) {
        __builtin_prefetch(x + i * b->stride + 2 * AHEAD);
        load_along(x + i * b->stride, width + i < b->width ? b->depth - 2 * pair : 0, &v[i]);
    }
}

/* Asks for what will be read of the rows that hold `pair`, `count` numbers from `width` on: the jumps from row to row
 * are beyond what processors foresee. (Inlined by force: gcc takes a function that does nothing else for one without
 * effects, and drops its calls.) */
static inline __attribute__((always_inline)) void prefetch_pair(const half_block *b, int64_t pair, int64_t width,
                                                                int64_t count) {
    if (2 * pair + 1 >= b->depth) return;
    const uint16_t *even = b->x + 2 * pair * b->stride + width;
    for (int64_t j = 0; j < shd_min(count, b->width - width); j += LINE) {
        __builtin_prefetch(even + j);
        __builtin_prefetch(even + b->stride + j);
    }
}

/* Pair panels of a block whose depth is across rows: some rows at a time, so that they are read nearly as they lie, and
 * a panel gets more than a line at once. */
static inline void pair_panels_across(const half_block *b, int64_t pairs, int panel_width, uint32_t *out) {
    for (int64_t first = 0; first < pairs; first += BLOCK / 2)
        for (int64_t panel = 0; panel < b->width; panel += panel_width)
            for (int64_t pair = first; pair < shd_min(first + BLOCK / 2, pairs); pair++) {
                uint32_t *to = out + panel * pairs + pair * panel_width;
                prefetch_pair(b, pair + AHEAD, panel, panel_width);
                for (int64_t width = 0; width < shd_min(panel_width, b->width - panel); width += BLOCK)
                    load_pair(b, pair, panel + width, to + width);
            }
}

static inline void pair_panels_along(const half_block *b, int64_t pairs, int panel_width, uint32_t *out) {
    for (int64_t width = 0; width < b->width; width += BLOCK)
        for (int64_t pair = 0; pair < pairs; pair += BLOCK) {
            pair_vector v[BLOCK];
            load_rows(b, pair, width, v);
            transpose(v);
            uint32_t *to = out + width / panel_width * pairs * panel_width + pair * panel_width + width % panel_width;
            for (int64_t i = 0; i < shd_min(BLOCK, pairs - pair); i++) memcpy(to + i * panel_width, &v[i], sizeof v[i]);
        }
}

/* `panel_width` is a multiple of 16. Of the last panel only blocks of 16 widths that hold an operand are written. */
static inline void pack_pair_panels(const half_block *b, int64_t pairs, int panel_width, uint32_t *out) {
    if (b->depth_along_rows)
        pair_panels_along(b, pairs, panel_width, out);
    else
        pair_panels_across(b, pairs, panel_width, out);
}

/* The place of 16 widths' rows of 16 pairs in row panels. */
static inline uint32_t *row_panel_at(int64_t pair, int64_t width, int64_t pairs, int panel_width, uint32_t *out) {
    return out + width / panel_width * pairs * panel_width + pair * panel_width + width % panel_width * BLOCK;
}

static inline void row_panels_along(const half_block *b, int64_t pairs, int panel_width, uint32_t *out) {
    for (int64_t width = 0; width < b->width; width += BLOCK)
        for (int64_t pair = 0; pair < pairs; pair += BLOCK) {
            pair_vector v[BLOCK];
            load_rows(b, pair, width, v);
            memcpy(row_panel_at(pair, width, pairs, panel_width, out), v, sizeof v);
        }
}

/* 32 rows at a time are read from end to end, by whole cache lines. */
static inline void row_panels_across(const half_block *b, int64_t pairs, int panel_width, uint32_t *out) {
    enum { HALVES = LINE / BLOCK };
    for (int64_t pair = 0; pair < pairs; pair += BLOCK)
        for (int64_t width = 0; width < b->width; width += LINE) {
            uint32_t rows[HALVES][BLOCK][BLOCK];
            for (int i = 0; i < BLOCK; i++) {
                prefetch_pair(b, pair + AHEAD + i, width, LINE);
                for (int h = 0; h < HALVES && width + h * BLOCK < b->width; h++)
                    load_pair(b, pair + i, width + h * BLOCK, rows[h][i]);
            }
            for (int h = 0; h < HALVES && width + h * BLOCK < b->width; h++) {
                pair_vector v[BLOCK];
                memcpy(v, rows[h], sizeof v);
                transpose(v);
                memcpy(row_panel_at(pair, width + h * BLOCK, pairs, panel_width, out), v, sizeof v);
            }
        }
}

/* `pairs` and `panel_width` are multiples of 16. */
static inline void pack_row_panels(const half_block *b, int64_t pairs, int panel_width, uint32_t *out) {
    if (b->depth_along_rows)
        row_panels_along(b, pairs, panel_width, out);
    else
        row_panels_across(b, pairs, panel_width, out);
}

#endif
