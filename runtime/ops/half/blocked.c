#include "runtime/ops/half/blocked.h"

#include "runtime/base/arith.h"

typedef struct blocked_product {
    const shd_half_kernel *kernel;
    const shd_half_product *product;
    uint32_t *a, *b;
    float *sums;
    int64_t depth;  /* of a block: as equal as steps allow */
    half_tile area; /* of the output, the one being computed */
} blocked_product;

static half_block block_of_a(const blocked_product *p, int64_t inner, int64_t depth) {
    const shd_half_product *c = p->product;
    const int64_t at = c->a_transposed ? inner * c->lda + p->area.row : p->area.row * c->lda + inner;
    return (half_block){c->a + at, c->lda, !c->a_transposed, depth, p->area.rows};
}

static half_block block_of_b(const blocked_product *p, int64_t inner, int64_t depth) {
    const shd_half_product *c = p->product;
    const int64_t at = c->b_transposed ? p->area.column * c->ldb + inner : inner * c->ldb + p->area.column;
    return (half_block){c->b + at, c->ldb, c->b_transposed, depth, p->area.columns};
}

/* Adds a packed block to all tiles of the area: a's panel stays in the L1 cache while b's go by. Without earlier and
 * later blocks the sums of all tiles share one place, which stays there as well. */
static void multiply_area(const blocked_product *p, int64_t pairs, bool first, bool last) {
    const shd_half_kernel *kernel = p->kernel;
    const int64_t tile_count = kernel->tile_rows * kernel->tile_columns;
    float *sums = p->sums;
    for (int64_t row = 0; row < p->area.rows; row += kernel->tile_rows)
        for (int64_t column = 0; column < p->area.columns; column += kernel->tile_columns) {
            const half_tile tile = {p->area.row + row, p->area.column + column,
                                    shd_min(kernel->tile_rows, p->area.rows - row),
                                    shd_min(kernel->tile_columns, p->area.columns - column)};
            kernel->multiply(&tile, pairs, p->a + row * pairs, p->b + column * pairs, !first, sums);
            if (last) kernel->finish(p->product, &tile, sums);
            if (!first || !last) sums += tile_count;
        }
}

static void compute_area(const blocked_product *p, bool a_packed) {
    const int64_t k = p->product->k;
    int64_t inner = 0;
    do {
        const int64_t depth = shd_min(p->depth, k - inner);
        const int64_t pairs = shd_round_up(depth, p->kernel->depth_step) / 2;
        const half_block a = block_of_a(p, inner, depth), b = block_of_b(p, inner, depth);
        if (!a_packed) p->kernel->pack_a(&a, pairs, p->a);
        p->kernel->pack_b(&b, pairs, p->b);
        multiply_area(p, pairs, inner == 0, inner + depth == k);
        inner += depth;
    } while (inner < k);
}

/* Nearly equal pieces of at most `most`, in whole steps. */
static int64_t even_piece(int64_t size, int64_t most, int64_t step) {
    return shd_round_up(shd_div_ceil(size, shd_max(1, shd_div_ceil(size, most))), step);
}

void shd_half_blocked_run(const shd_half_kernel *kernel, const shd_half_product *product) {
    blocked_product p = {.kernel = kernel, .product = product, .a = product->scratch};
    p.b = p.a + kernel->rows * kernel->depth / 2;
    p.sums = (float *)(p.b + kernel->columns * kernel->depth / 2);
    p.depth = even_piece(product->k, kernel->depth, kernel->depth_step);
    const int64_t rows = even_piece(product->m, kernel->rows, kernel->tile_rows);
    const int64_t columns = even_piece(product->n, kernel->columns, kernel->tile_columns);
    for (int64_t row = 0; row < product->m; row += rows)
        for (int64_t column = 0; column < product->n; column += columns) {
            p.area = (half_tile){row, column, shd_min(rows, product->m - row), shd_min(columns, product->n - column)};
            compute_area(&p, column > 0 && p.depth >= product->k);
        }
}
