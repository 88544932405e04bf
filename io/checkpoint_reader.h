/* Reads checkpoints of any layout: whatever ranges the files hold, any ranges can be had.
 *
 * Every block that is touched is read whole and its checksum verified, so a value that comes out is the value that was
 * saved, or the call fails and names the file, the tensor, the state and the elements. Of copies one is taken. Threads: a reader is for one thread at a time. */
#ifndef SHD_IO_CHECKPOINT_READER_H
#define SHD_IO_CHECKPOINT_READER_H

#include "io/checkpoint.h"

#include <stdbool.h>
#include <stdint.h>

enum { SHD_READER_THREADS_MAX = 64 };

/* Turns `count` values, FP32 into INT8 or back, of state `state`; `count` is a multiple of SHD_CODE_BLOCK_COUNT, or ends
 * with the tensor, and codes come in whole blocks. `from` and `to` are aligned for float. Threads: several at once.
 * Fails: as it likes; the reader passes it on. */
typedef struct shd_reader_convert {
    sherd_status (*run)(void *user, const char *state, sherd_dtype from_dtype, const void *from, sherd_dtype to_dtype,
                        int64_t count, void *to);
    void *user;
} shd_reader_convert;

typedef struct shd_reader_config {
    int32_t threads; /* 1 to SHD_READER_THREADS_MAX, the caller's among them */
    void *memory;    /* shd_reader_memory_bytes(threads), SHD_BLOCK_ALIGN_BYTES aligned; borrowed for the call */
    /* Where .run is NULL, INT8 that is wanted of FP32, or the other way round, is refused. */
    shd_reader_convert convert;
    /* Other processes of this host read the same blocks: through the page cache, so that the disk is read once. */
    bool cached;
} shd_reader_config;

/* Room for `threads` decoders, to be planned: for each a block as stored, a block of values, and a codec. */
int64_t shd_reader_memory_bytes(int32_t threads);

typedef struct shd_reader shd_reader;

/* Opens all files of a checkpoint and reads what they hold.
 * Owns: `checkpoint` is borrowed until the end; destroy *out with shd_reader_destroy.
 * Fails: DATA (a file is damaged, or not the one that the manifest was made for), UNSUPPORTED (a file requires what this
 * build does not know), IO, MEMORY. */
sherd_status shd_reader_create(const shd_checkpoint *checkpoint, shd_reader **out);
/* The same of the folder at `path`, with the manifest's step, world_size and files. Neither is used afterwards. */
sherd_status shd_reader_open(const char *path, const shd_checkpoint_manifest *manifest, shd_reader **out);
/* Accepts NULL. */
void shd_reader_destroy(shd_reader *reader);

/* Fills `wanted`, but those whose values are NULL. FP32 is rounded to a wanted BF16 or FP16, and these are widened or
 * rounded from one to another by way of FP32; INT8 wanted must begin at a multiple of 256, and be whole blocks, or end
 * with the tensor's elements. Blocks are read in the order of the files, each once, but those at the seams of INT8 that
 * is made of FP32. Memory: config->memory, and some words for each block wanted.
 * Fails: DATA (elements that no file has, damage, a conversion that is not possible), IO, MEMORY, what convert
 * returned. Then all values wanted are undefined. */
sherd_status shd_reader_read(shd_reader *reader, const shd_checkpoint_slice *wanted, int64_t count,
                             const shd_reader_config *config);

/* Takes the next `count` values. */
typedef sherd_status (*shd_value_sink)(void *user, const float *values, int64_t count);
/* Elements [first, first + count) of a tensor's state, in order and once each, as FP32, at most a block at a time: each
 * block verified before its values are handed out. Memory is the reader's own, that of some blocks; the block read last is
 * kept, so ranges that follow each other cost no more than one range. `convert` (may be NULL) is for INT8.
 * Fails: DATA, IO, MEMORY, what the sink or convert returned. */
sherd_status shd_reader_stream(shd_reader *reader, const char *tensor, const char *state, int64_t first, int64_t count,
                               const shd_reader_convert *convert, shd_value_sink sink, void *user);

/* Reads with a reader of its own, for one use. */
sherd_status shd_checkpoint_read(const shd_checkpoint *checkpoint, const shd_checkpoint_slice *wanted, int64_t count,
                                 const shd_reader_config *config);

/* What is wrong, in one piece of a checkpoint. */
typedef struct shd_damage {
    const char *path; /* of the file, or of the folder where elements are in no file */
    /* The block that cannot be used; NULL when it is the file as such: missing, cut, longer, swapped, or its head or
     * index damaged, so that all in it is lost. */
    const char *tensor, *state;
    int64_t first, count;
    const char *cause; /* whole, with the path and the block */
} shd_damage;
/* What verifying has done so far; `damage` is NULL when it is progress alone. */
typedef void (*shd_verify_report)(void *user, const shd_damage *damage, int64_t done_bytes, int64_t total_bytes);

/* Reads every byte of every file of the checkpoint in the folder `path`, the manifest first, and goes on after damage,
 * each piece of which it reports, in the order of the files, and progress after every block. Also checks that together the
 * files have every element that the manifest says. `report` is called on this thread. *damaged (may be NULL) is the number
 * of pieces. Of `config` threads and memory count; NULL: two threads, and memory of its own.
 * Fails: MEMORY; IO (a file that may not be opened: no proof of damage), UNSUPPORTED (another version). What is missing, or
 * cannot be read once it is open, is damage. */
sherd_status shd_checkpoint_verify_with(const char *path, const shd_reader_config *config, shd_verify_report report,
                                        void *user, int64_t *damaged);
sherd_status shd_checkpoint_verify(const char *path, shd_verify_report report, void *user, int64_t *damaged);

#endif
