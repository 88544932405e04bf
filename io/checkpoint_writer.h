/* Writes a rank's file of a checkpoint from live memory, behind the trainer's back: threads take blocks of what may be
 * read already, encode them and write them.
 *
 * A writer lives as long as its session and is used for one checkpoint after another:
 *
 *     IDLE --begin--> WRITING --(all submitted, finish)--> WRITTEN --close--> IDLE
 *                        `---- a failure ----> FAILED ----close----'
 *
 * All that is ever stored is told at create, in tickets: what the trainer gives away, and gets back, at once. A ticket is
 * done when its last block is encoded, which does not wait for the disk to have it.
 *
 * Threads: the functions are for one thread at a time, but shd_writer_done and shd_writer_state_of, which any may call
 * while the writer lives. Between create and destroy nothing allocates but the writing of the index. */
#ifndef SHD_IO_CHECKPOINT_WRITER_H
#define SHD_IO_CHECKPOINT_WRITER_H

#include "io/checkpoint.h"

#include <stdbool.h>
#include <stdint.h>

enum { SHD_WRITER_THREADS_MAX = 64 };

typedef struct shd_writer shd_writer;

typedef enum shd_writer_state {
    SHD_WRITER_IDLE,
    SHD_WRITER_WRITING, /* until the index is written and synced, or the failure known and the file removed */
    SHD_WRITER_WRITTEN,
    SHD_WRITER_FAILED
} shd_writer_state;

typedef struct shd_writer_config {
    /* All that this rank stores, grouped by ticket. Borrowed, with the names and the values, for as long as the writer
     * lives. Every slice is stored in its own dtype: parameters FP32, BF16 or FP16, states FP32 or INT8 (`first` a
     * multiple of 256). Slices without elements are legal. */
    const shd_checkpoint_slice *slices;
    int64_t slice_count;
    /* [ticket_count], rising to slice_count: ticket t has slices [ticket_ends[t-1], ticket_ends[t]); it may have none.
     * Borrowed likewise. */
    const int64_t *ticket_ends;
    int32_t ticket_count;
    int32_t compression; /* 0: none, to SHD_COMPRESSION_MAX */
    int32_t threads;     /* 1 to SHD_WRITER_THREADS_MAX; two suffice for one to encode while the other one writes */
    void *memory; /* shd_writer_memory_bytes of them, SHD_BLOCK_ALIGN_BYTES aligned; used from begin to close only, so
                   * that others may have them between saves */
} shd_writer_config;

/* Room for `threads` encoders, to be planned. */
int64_t shd_writer_memory_bytes(int32_t compression, int32_t threads);

/* Starts the threads, which sleep, and allocates what they will need. Owns: destroy *out with shd_writer_destroy.
 * Fails: MEMORY (also no more threads), ARGUMENT (a slice that cannot be stored: which, and why). */
sherd_status shd_writer_create(const shd_writer_config *config, shd_writer **out);
/* Abandons what is being written, which takes as long as the blocks in hand, removes the file of it, and ends the
 * threads. What is WRITTEN stays. Accepts NULL. */
void shd_writer_destroy(shd_writer *writer);

/* From IDLE. A thread makes `folder` where it is missing, enters it (shd_checkpoint_partial_enter) and makes the rank's file
 * in it; this returns at once. */
void shd_writer_begin(shd_writer *writer, const char *folder, int64_t step, int32_t rank);
/* The values of `ticket` may be read from now on and must not change until it is done; each ticket once. They are
 * written in the order of these calls. */
void shd_writer_submit(shd_writer *writer, int32_t ticket);
/* Whether the values of a ticket that was submitted may change again: all encoded, or given up after a failure. */
bool shd_writer_done(const shd_writer *writer, int32_t ticket);
/* Every ticket has been submitted: what remains is written, then the index, and all is synced. Returns at once; the
 * state tells. */
void shd_writer_finish(shd_writer *writer);
shd_writer_state shd_writer_state_of(const shd_writer *writer);
/* Sleeps until the state is not WRITING. Only after shd_writer_finish. */
void shd_writer_wait(shd_writer *writer);

/* Of WRITTEN: OK. Of FAILED: the first failure, whose cause becomes this thread's last error: IO (what the system said
 * of which path, or that the file was removed or replaced meanwhile), MEMORY. */
sherd_status shd_writer_result(const shd_writer *writer);

/* How the last save went. */
typedef struct shd_writer_totals {
    int64_t raw_bytes, file_bytes; /* values as memory has them; the whole file */
    int64_t wall_ns, cpu_ns;       /* from begin to WRITTEN; of all threads */
} shd_writer_totals;
/* Of WRITTEN. */
shd_writer_totals shd_writer_totals_of(const shd_writer *writer);

/* From WRITTEN, once the checkpoint was committed or discarded, or from FAILED: lets go of file and folder, which so
 * long were locked as somebody's. IDLE again. */
void shd_writer_close(shd_writer *writer);

#endif
