/* Products by tiles of AMX: tdpbf16ps multiplies 16 rows of 32 numbers of a with 32 × 16 numbers of b, which stand in
 * pairs, and adds to 16 × 16 sums.
 *
 * A tile of the output is 2 × 2 tiles of sums, so that every tile of an operand is loaded for two multiplications;
 * parts that no output needs are left out.
 *
 * Compiled twice: with the processor's instructions, and, for tests on any machine, with their model in C
 * (HALF_TILES_MODEL is then the path's name). */
#include "runtime/ops/half/finish.h"
#include "runtime/ops/half/panel.h"
#include "runtime/ops/half/path.h"

#ifdef HALF_TILES_MODEL
#include "runtime/ops/half/tiles_model.h"
#define PATH      HALF_TILES_MODEL
#define PATH_NAME "amx-model"
#else
#include "runtime/ops/half/tiles.h"
#define PATH      shd_half_amx
#define PATH_NAME "amx"
#endif

enum { TILE = 32, SIDE = TILE_ROWS, PAIRS = TILE_ROW_BYTES / 4 };
enum { ROWS = 512, COLUMNS = 512, DEPTH = 768 };
/* Tiles: sums 0 to 3, row by row; a's at 4 and 5; b's at 6 and 7. */

static void add_up(const half_tile *tile, int64_t pairs, const uint32_t *a, const uint32_t *b) {
    const bool lower = tile->rows > SIDE, right = tile->columns > SIDE;
    const int64_t a_stride = PAIRS * sizeof *a, b_stride = TILE * sizeof *b;
    for (int64_t pair = 0; pair < pairs; pair += PAIRS, a += TILE * PAIRS, b += PAIRS * TILE) {
        tile_load(4, a, a_stride);
        tile_load(6, b, b_stride);
        tile_dot(0, 4, 6);
        if (right) {
            tile_load(7, b + SIDE, b_stride);
            tile_dot(1, 4, 7);
        }
        if (!lower) continue;
        tile_load(5, a + SIDE * PAIRS, a_stride);
        tile_dot(2, 5, 6);
        if (right) tile_dot(3, 5, 7);
    }
}

static void multiply(const half_tile *tile, int64_t pairs, const uint32_t *a, const uint32_t *b, bool add,
                     float *sums) {
    const int64_t stride = TILE * sizeof *sums;
    float *lower = sums + SIDE * TILE;
    if (add) {
        tile_load(0, sums, stride);
        tile_load(1, sums + SIDE, stride);
        tile_load(2, lower, stride);
        tile_load(3, lower + SIDE, stride);
    } else {
        tile_zero(0);
        tile_zero(1);
        tile_zero(2);
        tile_zero(3);
    }
    add_up(tile, pairs, a, b);
    tile_store(0, sums, stride);
    tile_store(1, sums + SIDE, stride);
    tile_store(2, lower, stride);
    tile_store(3, lower + SIDE, stride);
}

static void pack_a(const half_block *block, int64_t pairs, uint32_t *out) { pack_row_panels(block, pairs, TILE, out); }

static void pack_b(const half_block *block, int64_t pairs, uint32_t *out) { pack_pair_panels(block, pairs, TILE, out); }

static void finish(const shd_half_product *product, const half_tile *tile, float *sums) {
    finish_tile(product, tile, TILE, sums);
}

static const shd_half_kernel kernel = {
    .tile_rows = TILE,
    .tile_columns = TILE,
    .rows = ROWS,
    .columns = COLUMNS,
    .depth = DEPTH,
    .depth_step = 2 * PAIRS,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .multiply = multiply,
    .finish = finish,
};

static void run(const shd_half_product *product) {
    tiles_open();
    shd_half_blocked_run(&kernel, product);
    tiles_close();
}

extern const shd_half_path PATH;
const shd_half_path PATH = {PATH_NAME, true, SHD_HALF_SCRATCH_BYTES(ROWS, COLUMNS, DEPTH), run};
