/* What the files of a reader share: checkpoint_reader.c opens, finds and streams; checkpoint_load.c fills many slices;
 * checkpoint_jobs.c has the threads for that; checkpoint_deliver.c turns the values of a block into those that are wanted. */
#ifndef SHD_IO_CHECKPOINT_READER_PARTS_H
#define SHD_IO_CHECKPOINT_READER_PARTS_H

#include "io/checkpoint_file.h"
#include "io/checkpoint_reader.h"
#include "shard/reshard.h"

/* All blocks of one tensor's state. */
typedef struct shd_stored_value {
    const char *tensor, *state;
    shd_interval *intervals; /* as shd_intervals_sort leaves them; `source` is a block's number */
    int64_t count;
} shd_stored_value;

enum { SHD_PORTION_COUNT = 64 * SHD_CODE_BLOCK_COUNT };

/* Room to decode a block and to turn its values into others. */
typedef struct shd_decode_room {
    shd_block_codec *codec;
    void *stored, *values; /* a block each */
    float *portion;        /* SHD_PORTION_COUNT */
} shd_decode_room;

int64_t shd_decode_room_bytes(void);
/* `memory`: so many bytes, SHD_BLOCK_ALIGN_BYTES aligned. */
shd_decode_room shd_decode_room_init(void *memory);

/* Runs jobs [0, count), in this order but for what runs at once, on config->threads threads, the caller's among them, each
 * with room of its own in config->memory. `after` (may be NULL) is called on the caller's thread, after each of its jobs.
 * Where threads cannot be had, there are fewer. Returns when all have run. */
void shd_jobs_run(const shd_reader_config *config, int64_t count,
                  void (*run)(void *user, int64_t job, const shd_decode_room *room), void (*after)(void *user),
                  void *user);

struct shd_reader {
    shd_keep *keep;
    const char *path;
    int32_t file_count;
    shd_rank_file **files; /* by rank */
    int64_t *first_blocks; /* [file_count + 1]: blocks are numbered through all files */
    shd_stored_value *values;
    int64_t value_count; /* sorted by tensor, then state */
    /* For streaming: */
    void *memory;
    shd_decode_room room;
    int64_t held; /* the block in room.values, or -1 */
};

/* Opens a rank's file that is the one the manifest was made for. Fails: as shd_rank_file_open; DATA. */
sherd_status shd_reader_open_file(const char *folder, int64_t step, int32_t rank, const shd_checkpoint_file *expected,
                                  shd_rank_file **out);

const shd_file_block *shd_reader_block(const shd_reader *reader, int64_t number);
/* Reads block `number` into `values`. Fails: DATA, IO. Threads: any at once. */
sherd_status shd_reader_decode(const shd_reader *reader, int64_t number, const shd_decode_room *room, void *values);

/* The pieces of blocks that make up elements [first, first + count): release *out with shd_free. Fails: DATA (which elements
 * are in no file), MEMORY. */
sherd_status shd_reader_cut(const shd_reader *reader, const char *tensor, const char *state, int64_t first,
                            int64_t count, shd_interval **out, int64_t *piece_count);

/* Elements [first, first + count) of a decoded block as FP32; at most SHD_PORTION_COUNT - SHD_CODE_BLOCK_COUNT of them where
 * the block has another dtype. They are at *floats: in the block, or in `portion`. Fails: DATA (no convert), what convert
 * returns. */
sherd_status shd_deliver_floats(const shd_file_block *block, const void *values, int64_t first, int64_t count,
                                const shd_reader_convert *convert, float *portion, const float **floats);

/* Puts a piece of a decoded block where `wanted` has it, in the dtype of `wanted`; but INT8 of another dtype. Fails: DATA
 * (a conversion that is not possible), what convert returns. */
sherd_status shd_deliver(const shd_file_block *block, const void *values, const shd_interval *piece,
                         const shd_checkpoint_slice *wanted, const shd_reader_convert *convert, float *portion);

#endif
