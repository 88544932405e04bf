/* The index of a rank's file: which blocks are where. Pure: text from and to a list.
 *
 * A JSON object: "blocks", a list of objects in the order in which blocks lie in the file, one directly behind the other,
 * from SHD_FILE_HEAD_BYTES on:
 *     tensor, state           texts; state "parameter" is the parameter itself
 *     dtype                   "fp32", "bf16", "fp16" (these two of parameters only), "int8" (of states only)
 *     first, count            elements; count > 0, and no more than fit in a block
 *     offset                  in the file, in bytes
 *     transform               "none" or "rotate-planes-zstd"
 *     bytes                   stored, without the zeros up to a multiple of SHD_BLOCK_ALIGN_BYTES
 *     xxh3                    of all that is stored, zeros included
 * Unknown keys are ignored, except where "requires", a list of texts in the object or in a block, names what a reader must
 * know: all such names are refused, since this version has none.
 *
 * An index comes from a file that nobody vouches for: what parses can be read without a further check of sizes, and takes
 * memory in proportion to its text. */
#ifndef SHD_IO_CHECKPOINT_INDEX_H
#define SHD_IO_CHECKPOINT_INDEX_H

#include "io/checkpoint_block.h"
#include "io/keep.h"

#include <sherd/status.h>
#include <stdint.h>

enum { SHD_FILE_HEAD_BYTES = 4096, SHD_INDEX_BYTES_MAX = 1 << 30 };

/* One contiguous range of elements of one tensor's parameter or state. */
typedef struct shd_file_block {
    const char *tensor, *state; /* SHD_CHECKPOINT_PARAMETER or a state's name */
    int64_t first;              /* element; form.count of them */
    int64_t offset_bytes;       /* in the file */
    shd_block_form form;
} shd_file_block;

typedef struct shd_index {
    int64_t count;
    shd_file_block *blocks; /* rising in offset_bytes */
} shd_index;

/* Where a file's blocks end. */
int64_t shd_index_end_bytes(const shd_index *index);

/* Prints blocks that lie as an index says; release *out with shd_free. Fails: ARGUMENT (a name that is not UTF-8), MEMORY. */
sherd_status shd_index_print(const shd_index *index, char **out);

/* Parses; *out and the names live as long as `keep`. `end_bytes` is where the blocks must end. Fails: DATA (what is wrong,
 * with the block's number; callers put the file before it), UNSUPPORTED (something required), MEMORY. */
sherd_status shd_index_parse(const char *text, int64_t bytes, int64_t end_bytes, shd_keep *keep, shd_index *out);

#endif
