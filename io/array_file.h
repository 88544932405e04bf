/* An array on disk, row by row: a .npy file, or a tensor of a safetensors file. Its first dimension counts the rows. */
#ifndef SHD_IO_ARRAY_FILE_H
#define SHD_IO_ARRAY_FILE_H

#include "io/array_type.h"
#include "io/data_file.h"

#include <stdbool.h>

/* As NumPy names it: "float32". */
const char *shd_array_type_text(shd_array_type type);
int64_t shd_array_type_bytes(shd_array_type type);
/* Whole numbers, bool among them. */
bool shd_array_type_is_integer(shd_array_type type);
/* The bytes of such an array; false when 64 bits do not hold them, even without the dimensions that are 0. */
bool shd_array_bytes(shd_array_type type, int32_t dim_count, const int64_t *shape, int64_t *out);

typedef struct shd_array_file {
    shd_data_file file;
    bool npy; /* else safetensors */
    shd_array_type type;
    int32_t dim_count; /* at least 1 */
    int64_t shape[SHD_ARRAY_DIMS];
    int64_t row_count, row_elements; /* the first dimension, and the product of the others */
    int64_t first_byte;
} shd_array_file;

/* Opens an array. `tensor`: which one, where the file is a safetensors file. `group`: as for a shd_data_file, *out is
 * filled in place, and borrows `path`. Fails: DATA (the file and what is wrong with it), IO, MEMORY. */
sherd_status shd_array_file_open(const char *path, const char *tensor, shd_open_files *group, shd_array_file *out);
/* Gives the descriptor back; the array can be read as before. */
void shd_array_file_close(shd_array_file *file);

/* "[60000, 28, 28]". */
enum { SHD_ARRAY_SHAPE_BYTES = 24 * SHD_ARRAY_DIMS };
void shd_array_shape_text(const shd_array_file *file, char out[SHD_ARRAY_SHAPE_BYTES]);

/* Reads elements [first, first + count), row-major, each times `scale` and rounded once to float. Allocates nothing.
 * Fails: DATA (one is not finite as a float, with its row; the file has changed its length), IO. Threads: one at a
 * time. */
sherd_status shd_array_file_read(shd_array_file *file, int64_t first, int64_t count, double scale, float *out);
/* The same of whole numbers, as they are. Fails: also DATA when one is beyond 64 bits with sign. */
sherd_status shd_array_file_read_integers(shd_array_file *file, int64_t first, int64_t count, int64_t *out);

/* What a walk over all numbers finds. */
typedef struct shd_array_scan {
    double lowest, highest; /* of the finite ones; 0 and 0 where there are none */
    int64_t not_finite_count;
} shd_array_scan;
/* Fails: as reading. */
sherd_status shd_array_file_scan(shd_array_file *file, shd_array_scan *out);
/* Reads elements [first, first + count) as they are; 64-bit whole numbers are rounded to 53 bits. Fails: as reading. */
sherd_status shd_array_file_read_doubles(shd_array_file *file, int64_t first, int64_t count, double *out);

/* Whether the file begins as an array file does, .npy or safetensors; false also when it cannot be read. */
bool shd_array_file_is(const char *path);

/* Continues `hash`, 0 at first, over type, shape and `samples` KiB spread over the file. Fails: as reading. */
sherd_status shd_array_file_fingerprint(shd_array_file *file, int32_t samples, uint64_t *hash);

#endif
