/* The loops around a kernel that multiplies packed panels: how an output is cut so that what is read again and again
 * stays in the L2 cache.
 *
 * An output of at most ROWS × COLUMNS is computed at a time. The inner dimension is cut in nearly equal blocks; for
 * each one both operands are packed, and every tile of the output adds the block to its sums. Sums are kept tile by
 * tile, and finished after the last block. Each output element is one sum in the order of the inner dimension, however
 * the output is cut. */
#ifndef SHD_OPS_HALF_BLOCKED_H
#define SHD_OPS_HALF_BLOCKED_H

#include "runtime/ops/half_product.h"

/* A part of a stored matrix. */
typedef struct half_block {
    const uint16_t *x;
    int64_t stride;
    bool depth_along_rows; /* element (depth, width) is x[width·stride + depth], not x[depth·stride + width] */
    int64_t depth, width;
} half_block;

/* The part of a tile that there is. */
typedef struct half_tile {
    int64_t row, column, rows, columns;
} half_tile;

typedef struct shd_half_kernel {
    int64_t tile_rows, tile_columns; /* of a's panels and b's, multiples of 16 */
    int64_t rows, columns;           /* of the output computed at a time: multiples of the tile's */
    int64_t depth;                   /* of a block of the inner dimension, at most: a multiple of depth_step */
    int64_t depth_step;              /* even; operands are padded with zeros to a multiple of it */
    void (*pack_a)(const half_block *block, int64_t pairs, uint32_t *out);
    void (*pack_b)(const half_block *block, int64_t pairs, uint32_t *out);
    /* sums[tile_rows][tile_columns] = (add ? sums : 0) + a·b, for a panel of each over `pairs` pairs. Only the part
     * that is in `tile` is needed. */
    void (*multiply)(const half_tile *tile, int64_t pairs, const uint32_t *a, const uint32_t *b, bool add, float *sums);
    /* Writes the output from the sums, which are used up. */
    void (*finish)(const shd_half_product *product, const half_tile *tile, float *sums);
} shd_half_kernel;

/* The scratch of a kernel with these bounds: a's block, b's block, sums. */
#define SHD_HALF_SCRATCH_BYTES(rows, columns, depth)                                                                   \
    (((rows) + (columns)) * (depth) * (int64_t)sizeof(uint16_t) + (rows) * (columns) * (int64_t)sizeof(float))

/* m and n are above 0. Scratch: SHD_HALF_SCRATCH_BYTES of the kernel's bounds. Threads: as shd_half_product_run. */
void shd_half_blocked_run(const shd_half_kernel *kernel, const shd_half_product *product);

#endif
