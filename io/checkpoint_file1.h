/* One rank's file of a checkpoint: 8 bytes of magic, 8 of the header's length, 8 of its XXH3, the header, the slices'
 * values.
 *
 * The header is one JSON object, padded with spaces so that values begin at a multiple of 64 bytes; values are of their
 * slice's type, little-endian, slice after slice without gaps, to the end of the file. A slice's hash is in the header,
 * the header's in the file and in the manifest. */
#ifndef SHD_IO_CHECKPOINT_FILE1_H
#define SHD_IO_CHECKPOINT_FILE1_H

#include "io/checkpoint.h"
#include "io/file.h"
#include "io/keep.h"

#include <stdint.h>

/* A slice as the header has it; values stay in the file. */
typedef struct shd_rank_slice {
    const char *tensor, *state;
    int64_t first, count;
    sherd_dtype dtype;
    int64_t offset_bytes; /* in the file */
    uint64_t hash;
} shd_rank_slice;

/* A header that has been read and checked. No file is held open. */
typedef struct shd_rank_file1 {
    shd_keep *keep;
    char path[SHD_PATH_BYTES];
    int32_t rank;
    int64_t step;
    int64_t bytes;
    uint64_t header_hash;
    int64_t slice_count;
    shd_rank_slice *slices;
} shd_rank_file1;

/* "rank-%05d.bin" in `folder`. */
sherd_status shd_rank_file1_path(char out[SHD_PATH_BYTES], const char *folder, int32_t rank);

/* Writes and syncs a file. Fails: IO, MEMORY, ARGUMENT (a name that is not UTF-8). */
sherd_status shd_rank_file1_write(const char *path, int64_t step, int32_t rank, const shd_checkpoint_slice *slices,
                                  int64_t count);

/* Reads the header; release with shd_rank_file1_close. Fails: DATA (damage, or a file of another step or rank), IO,
 * MEMORY. */
sherd_status shd_rank_file1_open(const char *path, int64_t step, int32_t rank, shd_rank_file1 **out);
/* Accepts NULL. */
void shd_rank_file1_close(shd_rank_file1 *file);

/* How a file holds values that memory has in `dtype`. */
static inline sherd_dtype shd_stored_dtype(sherd_dtype dtype) { return dtype == SHERD_INT8 ? dtype : SHERD_FP32; }

/* Reads all values of slice `index`, in `dtype`, which must be stored as the slice is, and checks them. Fails: DATA, IO;
 * MEMORY with 16 bits. */
sherd_status shd_rank_file1_read(const shd_rank_file1 *file, int64_t index, sherd_dtype dtype, void *values);

/* Takes the next `count` values of a slice. */
typedef sherd_status (*shd_rank_file1_sink)(void *user, const float *values, int64_t count);
/* The same of a slice of FP32 in portions, without memory for the whole: `sink` gets each portion before the slice has
 * been checked. */
sherd_status shd_rank_file1_stream(const shd_rank_file1 *file, int64_t index, shd_rank_file1_sink sink, void *user);

/* Opens the file of `rank` in an open checkpoint; it must be the one that the manifest was made for. Fails: DATA, IO,
 * MEMORY. */
sherd_status shd_checkpoint_open_rank(const shd_checkpoint *checkpoint, int32_t rank, shd_rank_file1 **out);

#endif
