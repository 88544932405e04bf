/* tiles.h in C: what the instructions do to the bit, for machines without them.
 *
 * tdpbf16ps after Intel's "Architectures Software Developer's Manual", volume 2: for each sum the products of the
 * pairs' lower numbers are added up by fused multiply-adds in order, those of the higher numbers likewise, and the two
 * sums are added to one another and then to the old sum. Rounding is to nearest even; subnormal numbers are zero on
 * the way in and on the way out. */
#ifndef SHD_OPS_HALF_TILES_MODEL_H
#define SHD_OPS_HALF_TILES_MODEL_H

#include "runtime/base/dtype.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>

enum { TILE_COUNT = 8, TILE_ROWS = 16, TILE_ROW_BYTES = 64, TILE_COLUMNS = TILE_ROW_BYTES / 4 };

typedef struct tile_model {
    unsigned char rows[TILE_ROWS][TILE_ROW_BYTES];
} tile_model;

static _Thread_local struct {
    bool open;
    tile_model tiles[TILE_COUNT];
} tile_state;

static inline void tiles_open(void) { tile_state.open = true; }
static inline void tiles_close(void) { memset(&tile_state, 0, sizeof tile_state); }

static inline void tile_zero(int tile) {
    assert(tile_state.open);
    memset(&tile_state.tiles[tile], 0, sizeof tile_state.tiles[tile]);
}

static inline void tile_load(int tile, const void *base, int64_t stride) {
    assert(tile_state.open);
    for (int i = 0; i < TILE_ROWS; i++)
        memcpy(tile_state.tiles[tile].rows[i], (const char *)base + i * stride, TILE_ROW_BYTES);
}

static inline void tile_store(int tile, void *base, int64_t stride) {
    assert(tile_state.open);
    for (int i = 0; i < TILE_ROWS; i++)
        memcpy((char *)base + i * stride, tile_state.tiles[tile].rows[i], TILE_ROW_BYTES);
}

/* Zero, of the same sign, for a subnormal number. */
static inline float flushed(float x) {
    const uint32_t bits = shd_float_bits(x);
    return shd_float_of_bits(bits & 0x7f800000u ? bits : bits & 0x80000000u);
}

static inline float add_product(float sum, uint16_t a, uint16_t b) {
    return flushed(fmaf(flushed(shd_bf16_widen(a)), flushed(shd_bf16_widen(b)), sum));
}

static inline void tile_dot(int sums, int left, int right) {
    uint32_t a[TILE_ROWS][TILE_COLUMNS], b[TILE_ROWS][TILE_COLUMNS];
    float c[TILE_ROWS][TILE_COLUMNS];
    assert(tile_state.open);
    memcpy(a, &tile_state.tiles[left], sizeof a);
    memcpy(b, &tile_state.tiles[right], sizeof b);
    memcpy(c, &tile_state.tiles[sums], sizeof c);
    for (int i = 0; i < TILE_ROWS; i++) {
        float low[TILE_COLUMNS] = {0}, high[TILE_COLUMNS] = {0};
        for (int pair = 0; pair < TILE_COLUMNS; pair++)
            for (int j = 0; j < TILE_COLUMNS; j++) {
                low[j] = add_product(low[j], (uint16_t)a[i][pair], (uint16_t)b[pair][j]);
                high[j] = add_product(high[j], (uint16_t)(a[i][pair] >> 16), (uint16_t)(b[pair][j] >> 16));
            }
        for (int j = 0; j < TILE_COLUMNS; j++) c[i][j] = flushed(flushed(c[i][j]) + flushed(low[j] + high[j]));
    }
    memcpy(&tile_state.tiles[sums], c, sizeof c);
}

#endif
