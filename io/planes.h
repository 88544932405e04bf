/* Planes: numbers taken apart into bytes of equal significance and put together again, and the checksum over them, with
 * the widest instructions that the processor has.
 *
 * Each value's bits are rotated left by one first, so that the exponent fills the highest byte (of FP16: with the upper
 * bits of the fraction) and the sign is the lowest bit. All sets give the same bytes. */
#ifndef SHD_IO_PLANES_H
#define SHD_IO_PLANES_H

#include <stddef.h>
#include <stdint.h>

enum { SHD_PLANE_KERNELS_MAX = 3 };

/* The loops of one instruction set. `values` need not be aligned, planes have `count` bytes each, the lowest first, and
 * nothing overlaps. */
typedef struct shd_plane_kernels {
    const char *name;
    void (*split4)(int64_t count, const void *values, unsigned char *const planes[4]);
    void (*join4)(int64_t count, const unsigned char *const planes[4], void *values);
    void (*split2)(int64_t count, const void *values, unsigned char *const planes[2]);
    void (*join2)(int64_t count, const unsigned char *const planes[2], void *values);
    uint64_t (*hash)(const void *data, size_t bytes); /* XXH3, 64 bits */
} shd_plane_kernels;

/* Those that this processor runs, slowest first; returns how many. */
int32_t shd_plane_kernels_list(const shd_plane_kernels *list[SHD_PLANE_KERNELS_MAX]);
/* The last of them. */
const shd_plane_kernels *shd_plane_kernels_best(void);

#endif
