/* Products by vdpbf16ps: every lane adds the two products of a pair to its sum.
 *
 * Half a tile, 8 × 48 outputs, is 24 registers of sums; for each pair of the inner dimension three registers of b's
 * panel meet eight pairs of a's, each copied to all lanes. */
#include "runtime/ops/half/finish.h"
#include "runtime/ops/half/panel.h"
#include "runtime/ops/half/path.h"

#include <immintrin.h>

enum { LANES = 16, ROWS_AT_ONCE = 8, VECTORS = 3 };
enum { TILE_ROWS = 16, TILE_COLUMNS = VECTORS * LANES };
enum { ROWS = 512, COLUMNS = 576, DEPTH = 768 };

/* sums (+)= a·b for 8 rows and `vectors` times 16 columns. */
static inline __attribute__((always_inline)) void multiply_rows(const int vectors, int64_t pairs, const uint32_t *a,
                                                                const uint32_t *b, bool add, float *sums) {
    __m512 c[ROWS_AT_ONCE][VECTORS];
    for (int i = 0; i < ROWS_AT_ONCE; i++)
        for (int v = 0; v < vectors; v++)
            c[i][v] = add ? _mm512_load_ps(sums + i * TILE_COLUMNS + v * LANES) : _mm512_setzero_ps();
    for (int64_t pair = 0; pair < pairs; pair++, a += TILE_ROWS, b += TILE_COLUMNS) {
        __m512bh right[VECTORS];
        for (int v = 0; v < vectors; v++) right[v] = (__m512bh)_mm512_load_si512(b + v * LANES);
        for (int i = 0; i < ROWS_AT_ONCE; i++) {
            const __m512bh left = (__m512bh)_mm512_set1_epi32((int)a[i]);
            for (int v = 0; v < vectors; v++) c[i][v] = _mm512_dpbf16_ps(c[i][v], left, right[v]);
        }
    }
    for (int i = 0; i < ROWS_AT_ONCE; i++)
        for (int v = 0; v < vectors; v++) _mm512_store_ps(sums + i * TILE_COLUMNS + v * LANES, c[i][v]);
}

static void multiply(const half_tile *tile, int64_t pairs, const uint32_t *a, const uint32_t *b, bool add,
                     float *sums) {
    for (int64_t row = 0; row < tile->rows; row += ROWS_AT_ONCE) {
        if (tile->columns > 2 * LANES)
            multiply_rows(3, pairs, a + row, b, add, sums + row * TILE_COLUMNS);
        else if (tile->columns > LANES)
            multiply_rows(2, pairs, a + row, b, add, sums + row * TILE_COLUMNS);
        else
            multiply_rows(1, pairs, a + row, b, add, sums + row * TILE_COLUMNS);
    }
}

static void pack_a(const half_block *block, int64_t pairs, uint32_t *out) {
    pack_pair_panels(block, pairs, TILE_ROWS, out);
}

static void pack_b(const half_block *block, int64_t pairs, uint32_t *out) {
    pack_pair_panels(block, pairs, TILE_COLUMNS, out);
}

static void finish(const shd_half_product *product, const half_tile *tile, float *sums) {
    finish_tile(product, tile, TILE_COLUMNS, sums);
}

static const shd_half_kernel kernel = {
    .tile_rows = TILE_ROWS,
    .tile_columns = TILE_COLUMNS,
    .rows = ROWS,
    .columns = COLUMNS,
    .depth = DEPTH,
    .depth_step = 2,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .multiply = multiply,
    .finish = finish,
};

static void run(const shd_half_product *product) { shd_half_blocked_run(&kernel, product); }

const shd_half_path shd_half_avx512_bf16 = {"avx512-bf16", true, SHD_HALF_SCRATCH_BYTES(ROWS, COLUMNS, DEPTH), run};
