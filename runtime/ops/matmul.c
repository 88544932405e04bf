/* Products: the output is cut in tiles, each one single-threaded call: of OpenBLAS in fp32, of half_product.h in 16
 * bits. OpenBLAS's own threads would cut by their number, and with it change the bits.
 *
 * In fp32 bias, residual and the old output are written to a tile before its product is added to it, while the tile is
 * on its way to the cache: the product then needs no pass of its own to clear it. In 16 bits they are added to the fp32
 * sums before these are rounded. */
#include "runtime/ops/ops.h"

#include "runtime/base/clock.h"
#include "runtime/base/cut.h"
#include "runtime/base/dtype.h"
#include "runtime/base/log.h"
#include "runtime/ops/half_product.h"
#include "runtime/ops/kernels/kernels.h"
#include "runtime/ops/product.h"

#include <assert.h>
#include <cblas.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* The tiles' bounds, and how many are wanted, so that some threads can share them evenly. Every tile packs its operands
 * anew: 4 tiles run at 95 % of one plain call, 8 at 93 %, so more are not worth having; above 512×1024 the output
 * leaves the cache. */
enum { TILE_ROWS = 512, TILE_COLUMNS = 1024, TILE_LEAST = 128, TILES_WANTED = 8, TILE_STEP = 16, ALIGNMENT = 64 };

/* What benchmarks and metrics read; of this process, since pools share the library. */
static _Atomic int64_t spent_ns, done_flop;

typedef struct tiled_product {
    const shd_matmul *product;
    const shd_kernels *kernels;
    sherd_dtype dtype;
    char *scratch;
    int64_t tile_rows, tile_columns, tiles_across;
} tiled_product;

/* A tile of the output. */
typedef struct tile {
    int64_t row, column, rows, columns;
} tile;

void shd_ops_init_quietly(void) { openblas_set_num_threads(1); }

void shd_ops_kernels(char *text, size_t bytes) {
    snprintf(text, bytes, "kernels: %s; products: OpenBLAS, %s; of bf16: %s, of fp16: %s",
             shd_kernels_get(SHERD_FP32)->name, openblas_get_corename(), shd_half_product_name(SHERD_BF16),
             shd_half_product_name(SHERD_FP16));
}

/* "OpenBLAS 0.3.21": the first two words of what it says of itself. */
void shd_ops_library(char *text, size_t bytes) {
    const char *config = openblas_get_config(), *space = strchr(config, ' ');
    size_t length = space ? (size_t)(space - config) + 1 + strcspn(space + 1, " ") : strlen(config);
    snprintf(text, bytes, "%.*s", (int)length, config);
}

void shd_ops_init(void) {
    char text[256];
    shd_ops_init_quietly();
    shd_ops_kernels(text, sizeof text);
    shd_log(SHERD_LOG_INFO, "%s", text);
}

/* The length of pieces that cut `size` in `pieces` nearly equal ones, in whole steps. */
static int64_t piece_length(int64_t size, int64_t pieces) {
    return shd_min(size, shd_round_up(shd_div_ceil(size, pieces), TILE_STEP));
}

/* Halves the longer side until there are `wanted` tiles or they would be too small. */
static void choose_tiles(tiled_product *t, int64_t wanted) {
    const shd_matmul *p = t->product;
    int64_t down = shd_div_ceil(p->m, TILE_ROWS), across = shd_div_ceil(p->n, TILE_COLUMNS);
    while (down * across < wanted) {
        const int64_t rows = shd_div_ceil(p->m, down), columns = shd_div_ceil(p->n, across);
        if (shd_max(rows, columns) < 2 * TILE_LEAST) break;
        if (rows >= columns)
            down *= 2;
        else
            across *= 2;
    }
    t->tile_rows = piece_length(p->m, down);
    t->tile_columns = piece_length(p->n, across);
    t->tiles_across = shd_div_ceil(p->n, t->tile_columns);
}

/* The tiles that `threads` share when their borders cannot show in the bits: no more than it takes, each in panels
 * of the kernels' widths. */
static void choose_free_tiles(tiled_product *t, int32_t threads) {
    enum { PER_THREAD = 2, PANELS = 96 };
    const shd_matmul *p = t->product;
    t->tile_rows = p->m, t->tile_columns = p->n;
    if (threads > 1) {
        choose_tiles(t, PER_THREAD * threads);
        t->tile_columns = shd_min(p->n, shd_round_up(t->tile_columns, PANELS));
    }
    t->tiles_across = shd_div_ceil(p->n, t->tile_columns);
}

/* What a row of the tile starts from: the sum of those operands that are there. `c` may be among them. */
static void seed_row(const shd_kernels *kernels, int64_t columns, const float *const operands[3], float *c) {
    const float *sum = NULL;
    for (int i = 0; i < 3; i++) {
        if (!operands[i]) continue;
        if (sum) kernels->add(columns, sum, operands[i], c);
        sum = sum ? c : operands[i];
    }
    if (sum != c) memcpy(c, sum, sizeof(float) * (size_t)columns);
}

/* Writes what the product is to be added to; false when that is nothing. */
static bool seed_tile(const tiled_product *t, const tile *at) {
    const shd_matmul *p = t->product;
    if (!p->bias && !p->residual) return p->accumulate;
    for (int64_t i = at->row; i < at->row + at->rows; i++) {
        float *c = (float *)p->c + i * p->ldc + at->column;
        const float *bias = p->bias, *residual = p->residual;
        const float *operands[] = {p->accumulate ? c : NULL, residual ? residual + i * p->ldc + at->column : NULL,
                                   bias ? bias + at->column : NULL};
        seed_row(t->kernels, at->columns, operands, c);
    }
    return true;
}

static tile tile_at(const tiled_product *t, int64_t index) {
    tile at;
    at.row = shd_cut(t->product->m, t->tile_rows, index / t->tiles_across, &at.rows);
    at.column = shd_cut(t->product->n, t->tile_columns, index % t->tiles_across, &at.columns);
    return at;
}

static void float_task(void *argument, int64_t index, int32_t worker) {
    (void)worker;
    const tiled_product *t = argument;
    const shd_matmul *p = t->product;
    const tile at = tile_at(t, index);
    const bool seeded = seed_tile(t, &at);
    float *c = (float *)p->c + at.row * p->ldc + at.column;
    if (p->k == 0) {
        for (int64_t i = 0; i < at.rows && !seeded; i++) memset(c + i * p->ldc, 0, sizeof(float) * (size_t)at.columns);
        return;
    }
    const float *a = (const float *)p->a + (p->a_transposed ? at.row : at.row * p->lda);
    const float *b = (const float *)p->b + (p->b_transposed ? at.column * p->ldb : at.column);
    shd_product_run(p->a_transposed, p->b_transposed, at.rows, at.columns, p->k, 1.0f, a, p->lda, b, p->ldb, seeded, c,
                    p->ldc);
}

static int64_t half_scratch_bytes(void) { return shd_round_up(shd_half_product_scratch_bytes(), ALIGNMENT); }

static void half_task(void *argument, int64_t index, int32_t worker) {
    const tiled_product *t = argument;
    const shd_matmul *p = t->product;
    const tile at = tile_at(t, index);
    const int64_t c_at = at.row * p->ldc + at.column;
    const sherd_dtype c_dtype = p->wide_c ? SHERD_FP32 : t->dtype;
    /* What is added to a rounded output is a residual like any other. */
    const void *residual = p->accumulate && !p->wide_c ? p->c : p->residual;
    const shd_half_product half = {
        .dtype = t->dtype,
        .a_transposed = p->a_transposed,
        .b_transposed = p->b_transposed,
        .m = at.rows,
        .n = at.columns,
        .k = p->k,
        .a = shd_const_element(t->dtype, p->a, p->a_transposed ? at.row : at.row * p->lda),
        .lda = p->lda,
        .b = shd_const_element(t->dtype, p->b, p->b_transposed ? at.column * p->ldb : at.column),
        .ldb = p->ldb,
        .c_dtype = c_dtype,
        .c = shd_element(c_dtype, p->c, c_at),
        .ldc = p->ldc,
        .accumulate = p->accumulate && p->wide_c,
        .bias = p->bias ? shd_const_element(t->dtype, p->bias, at.column) : NULL,
        .residual = residual ? shd_const_element(t->dtype, residual, c_at) : NULL,
        .scratch = t->scratch + worker * half_scratch_bytes(),
    };
    shd_half_product_run(&half);
}

int64_t shd_op_matmul_scratch_bytes(sherd_dtype dtype, int32_t threads) {
    return dtype == SHERD_FP32 ? 0 : threads * half_scratch_bytes();
}

void shd_op_matmul(const shd_math *math, const shd_matmul *product) {
    const bool wide = math->dtype == SHERD_FP32;
    assert(wide || !product->wide_c || (!product->bias && !product->residual));
    assert(wide || product->wide_c || !product->accumulate || !product->residual);
    if (product->m == 0 || product->n == 0) return;
    const double start = shd_clock_ms();
    tiled_product t = {
        .product = product, .kernels = shd_kernels_get(SHERD_FP32), .dtype = math->dtype, .scratch = math->scratch};
    if (!wide && shd_half_product_cuts_freely(math->dtype))
        choose_free_tiles(&t, shd_pool_threads(math->pool));
    else
        choose_tiles(&t, TILES_WANTED);
    shd_pool_run(math->pool, wide ? float_task : half_task, &t, shd_div_ceil(product->m, t.tile_rows) * t.tiles_across);
    atomic_fetch_add_explicit(&done_flop, 2 * product->m * product->n * product->k, memory_order_relaxed);
    atomic_fetch_add_explicit(&spent_ns, (int64_t)((shd_clock_ms() - start) * 1e6), memory_order_relaxed);
}

void shd_matmul_stats_get(shd_matmul_stats *out) {
    out->ms = (double)atomic_load_explicit(&spent_ns, memory_order_relaxed) * 1e-6;
    out->flop = (double)atomic_load_explicit(&done_flop, memory_order_relaxed);
}

void shd_matmul_stats_reset(void) {
    atomic_store_explicit(&spent_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&done_flop, 0, memory_order_relaxed);
}
