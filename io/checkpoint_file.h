/* One rank's file of a checkpoint:
 *
 *   0                 head, 4096 bytes: "SHERDCKP", version (u32), rank (u32), step (u64), zeros
 *   4096              blocks (io/checkpoint_block.h), each a multiple of 4096 bytes, in any order, without gaps
 *   end of the blocks index (io/checkpoint_index.h), its text, then zeros up to the tail
 *   size - 32         tail: bytes of the index' text (u64), 0 (u64), XXH3 of all of the file but blocks and what follows,
 *                     "SHERDEND"
 * All little-endian; the size is a multiple of 4096. The hash in the tail is the file's in the manifest, blocks have theirs
 * in the index: no byte can change unnoticed. Everything lies so that it can be written and read past the page cache
 * (O_DIRECT) where the file system offers that; elsewhere the same calls go through it. */
#ifndef SHD_IO_CHECKPOINT_FILE_H
#define SHD_IO_CHECKPOINT_FILE_H

#include "io/checkpoint_block.h"
#include "io/checkpoint_index.h"
#include "io/file.h"
#include "io/keep.h"

#include <stdbool.h>
#include <stdint.h>

enum { SHD_CHECKPOINT_VERSION = 2 };

/* "rank-%05d.bin" in `folder`. */
sherd_status shd_rank_file_path(char out[SHD_PATH_BYTES], const char *folder, int32_t rank);

/* A file in the making. */
typedef struct shd_rank_file_maker {
    int descriptor; /* holds a shared lock (flock), so that the file can be told from a dead job's */
    int32_t rank;
    int64_t step;
    uint64_t index_hash; /* since finish, as is `bytes` */
    int64_t bytes;
    char path[SHD_PATH_BYTES];
} shd_rank_file_maker;

/* Makes an empty file in place of an older one; its folder exists. Owns: end with shd_rank_file_maker_close, also after a
 * failed finish. Fails: IO. */
sherd_status shd_rank_file_create(shd_rank_file_maker *maker, const char *path, int64_t step, int32_t rank);
/* Writes `bytes` at `offset_bytes`, both multiples of SHD_BLOCK_ALIGN_BYTES as the address is. A file that may grow no
 * further (RLIMIT_FSIZE) is a failure like a full disk, and SIGXFSZ never comes of it. Fails: IO. Threads: any at once. */
sherd_status shd_rank_file_put(const shd_rank_file_maker *maker, const void *stored, int64_t bytes,
                               int64_t offset_bytes);
/* Writes head, index and tail, syncs, and makes sure that the file still has its name. `index`: every block that was put,
 * by rising offset. Fails: IO, MEMORY, ARGUMENT (a name that is not UTF-8). */
sherd_status shd_rank_file_finish(shd_rank_file_maker *maker, const shd_index *index);
/* Lets go of file and lock; the file stays. */
void shd_rank_file_maker_close(shd_rank_file_maker *maker);
/* The same, and removes the file, if it is still the one that was made. */
void shd_rank_file_discard(shd_rank_file_maker *maker);

/* A file whose head, index and tail have been read and checked. */
typedef struct shd_rank_file {
    shd_keep *keep;
    int descriptor; /* -1: it rests */
    char path[SHD_PATH_BYTES];
    int32_t rank;
    int64_t step;
    int64_t bytes;
    uint64_t index_hash;
    shd_index index;
} shd_rank_file;

/* Opens a file to read; release with shd_rank_file_close. Fails: DATA (damage, another version, or a file of another step
 * or rank), UNSUPPORTED (the index requires what this build does not know), IO, MEMORY. */
sherd_status shd_rank_file_open(const char *path, int64_t step, int32_t rank, shd_rank_file **out);
/* Accepts NULL. */
void shd_rank_file_close(shd_rank_file *file);
/* Closes the descriptor; reading opens the file for itself from now on. For checkpoints of more ranks than a process may
 * have files. */
void shd_rank_file_rest(shd_rank_file *file);

/* Reads, checks and decodes one block into `values` of its dtype. `stored`: form.stored_bytes of room, aligned to
 * SHD_BLOCK_ALIGN_BYTES. Fails: DATA (damage: file, tensor, state and elements), IO. Threads: any at once, each with room of
 * its own. */
sherd_status shd_rank_file_read(const shd_rank_file *file, int64_t block_index, shd_block_codec *codec, void *stored,
                                void *values);

#endif
