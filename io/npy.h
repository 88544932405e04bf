/* The header of a .npy file, as NumPy's format says (numpy.lib.format, versions 1.0 to 3.0): the magic, a version, the
 * length of what follows, and a Python dictionary of descr, fortran_order and shape.
 *
 * The reader trusts nothing and takes no more of Python than NumPy writes. Refused, with the reason: big-endian numbers,
 * complex ones, texts, records and Python objects; Fortran order; a size other than the shape says. */
#ifndef SHD_IO_NPY_H
#define SHD_IO_NPY_H

#include "io/array_type.h"
#include "io/data_file.h"

#include <stdbool.h>

typedef struct shd_npy_header {
    shd_array_type type;
    int32_t dim_count;
    int64_t shape[SHD_ARRAY_DIMS];
    int64_t first_byte; /* of the data, which reach to the file's end */
} shd_npy_header;

enum { SHD_NPY_MAGIC_BYTES = 6 };
/* Whether a file that begins with these bytes is a .npy file. */
bool shd_npy_is(const unsigned char start[SHD_NPY_MAGIC_BYTES]);

/* Fails: DATA (the file and what is wrong with it), IO. */
sherd_status shd_npy_read_header(shd_data_file *file, shd_npy_header *out);

#endif
