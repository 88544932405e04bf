/* The tile instructions of AMX: eight tiles of 16 rows of 64 bytes. Tile numbers are part of the instructions, hence
 * macros. Between tiles_open and tiles_close the thread's tiles are in use; what is outside pays nothing for them. */
#ifndef SHD_OPS_HALF_TILES_H
#define SHD_OPS_HALF_TILES_H

#include <immintrin.h>
#include <stdint.h>

enum { TILE_ROWS = 16, TILE_ROW_BYTES = 64 };

/* As LDTILECFG reads it. */
typedef struct tile_layout {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_layout;
_Static_assert(sizeof(tile_layout) == 64, "64 bytes are loaded");

static const tile_layout tile_layout_all = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

static inline void tiles_open(void) { _tile_loadconfig(&tile_layout_all); }
static inline void tiles_close(void) { _tile_release(); }

#define tile_zero(tile) _tile_zero(tile)
/* gcc's intrinsic does not say that it reads memory: what was written must be there before. */
#define tile_load(tile, base, stride)                                                                                  \
    do {                                                                                                               \
        __asm__ volatile("" ::: "memory");                                                                             \
        _tile_loadd(tile, base, stride);                                                                               \
    } while (0)
#define tile_store(tile, base, stride) _tile_stored(tile, base, stride)
/* sums[16][16] += a[16][16 pairs] · b[16 pairs][16]. */
#define tile_dot(sums, a, b) _tile_dpbf16ps(sums, a, b)

#endif
