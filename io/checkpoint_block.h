/* Blocks: the values of a checkpoint as they lie in files, a few MiB each, every one by itself. Pure: memory to memory.
 *
 * What is stored of a block is its values as they are (NONE), or turned into what compresses (PLANES): the bits of each
 * value rotated left by one, so that the exponent fills the highest byte, bytes split into planes of equal significance,
 * and the planes worth it compressed by zstd. docs/CHECKPOINT.md has the layout to the byte. Behind that come zeros up to
 * a multiple of SHD_BLOCK_ALIGN_BYTES, so that blocks can be written and read past the page cache; the checksum is of
 * everything stored, zeros included. Threads: any, each with a codec of its own. */
#ifndef SHD_IO_CHECKPOINT_BLOCK_H
#define SHD_IO_CHECKPOINT_BLOCK_H

#include <sherd/dtype.h>
#include <sherd/status.h>
#include <stdint.h>

enum {
    SHD_BLOCK_RAW_BYTES_MAX = 4 << 20, /* of values in a block; INT8: the whole code blocks that fit */
    SHD_BLOCK_ALIGN_BYTES = 4096,
    SHD_COMPRESSION_MAX = 19
};

#define SHD_TRANSFORM_MAP(X)                                                                                           \
    X(NONE, "none")                                                                                                    \
    X(PLANES, "rotate-planes-zstd")
typedef enum shd_transform {
#define SHD_TRANSFORM_ENUM(name, text) SHD_TRANSFORM_##name,
    SHD_TRANSFORM_MAP(SHD_TRANSFORM_ENUM)
#undef SHD_TRANSFORM_ENUM
        SHD_TRANSFORMS
} shd_transform;

/* What is known of a block besides its bytes. */
typedef struct shd_block_form {
    sherd_dtype dtype;
    int64_t count;           /* values */
    shd_transform transform; /* of this block: NONE where PLANES would not have made it smaller */
    int64_t payload_bytes;   /* stored, without the zeros at the end */
    int64_t stored_bytes;    /* with them */
    uint64_t hash;           /* XXH3 (64 bits) of all that is stored */
} shd_block_form;

/* The most values of `dtype` in one block. */
int64_t shd_block_count_max(sherd_dtype dtype);
/* The most bytes that `raw_bytes` of values can take as stored: with NONE, rounded up. */
int64_t shd_block_stored_bytes_max(int64_t raw_bytes);

/* Work memory of one codec for encoding at `compression` (0: none, else zstd's level, to SHD_COMPRESSION_MAX) and for
 * decoding; a multiple of SHD_BLOCK_ALIGN_BYTES. */
int64_t shd_block_codec_bytes(int32_t compression);

/* Lives in memory that the caller gives, and allocates none. */
typedef struct shd_block_codec shd_block_codec;
/* `memory`: shd_block_codec_bytes(compression) of them, SHD_BLOCK_ALIGN_BYTES aligned; used for as long as the codec is.
 * There is nothing to destroy. */
shd_block_codec *shd_block_codec_init(void *memory, int32_t compression);

/* Encodes form->count values of form->dtype into `stored` (shd_block_stored_bytes_max of them, aligned), and fills in the
 * rest of *form. Cannot fail. */
void shd_block_encode(shd_block_codec *codec, const void *values, void *stored, shd_block_form *form);

/* Checks the hash of form->stored_bytes at `stored`, and decodes them into `values`, form->count of form->dtype. Reads
 * and writes nothing outside both, whatever `stored` holds. Fails: DATA (what does not match; the caller knows which block
 * of which file). */
sherd_status shd_block_decode(shd_block_codec *codec, const void *stored, const shd_block_form *form, void *values);

#endif
