/* Checkpoints: what every rank stores of a training run, complete or not there at all.
 *
 * A checkpoint is a folder `step-%08d` (completed optimizer steps) below a parent:
 *   rank-%05d.bin   one rank's slices of parameters and optimizer states, each with its XXH3
 *   manifest.json   what the job was, and size and XXH3 of every rank file's header
 * The manifest's last line is the XXH3 of all before it; with the hashes below it, no byte can change unnoticed.
 *
 * It is written as `step-%08d.partial`: every rank writes its file and syncs it; when all have, rank 0 commits:
 * manifest, sync, one rename, sync of the parent. A step saved again replaces the old one by exchanging the two
 * folders' names in one system call (renameat2, RENAME_EXCHANGE), so that at any moment one complete checkpoint has the
 * name; where the file system cannot exchange, the old one first steps aside as `step-%08d.replaced`. Who calls what
 * when, and agreement between ranks, are the session's business.
 *
 * All functions: paths and system errors are in the cause. No failure touches an older checkpoint. Threads: any, on
 * different steps. */
#ifndef SHD_IO_CHECKPOINT_H
#define SHD_IO_CHECKPOINT_H

#include <sherd/dtype.h>
#include <sherd/model.h>
#include <sherd/status.h>
#include <stdint.h>

enum { SHD_CHECKPOINT_STATES_MAX = 8 };

/* The `state` of a slice that holds the parameter itself. */
#define SHD_CHECKPOINT_PARAMETER "parameter"
/* The `optimizer` of a checkpoint that has parameters alone: it was imported, and has no states. */
#define SHD_CHECKPOINT_NO_OPTIMIZER "none"

/* Elements [first, first + count) of a tensor, or of one of its optimizer states. Copies on several ranks are legal,
 * and equal. */
typedef struct shd_checkpoint_slice {
    const char *tensor;
    const char *state; /* SHD_CHECKPOINT_PARAMETER or an optimizer state's name */
    int64_t first, count;
    void *values; /* [count] of `dtype`; read by write_rank, written by read_rank */
    /* Files hold FP32, so 16-bit values are widened on their way there and rounded on their way back, a portion at a time;
     * and, for states, INT8: then `first` is where a block begins, and blocks are whole, the last one filled up with
     * zeros. */
    sherd_dtype dtype;
} shd_checkpoint_slice;

/* Where the dynamic loss scale of fp16 training is. */
typedef struct shd_checkpoint_scale {
    double scale; /* 0: there is none */
    int32_t good_steps, hysteresis;
} shd_checkpoint_scale;

/* Elements [first, first + count) of a value, and the rank whose file has them. */
typedef struct shd_checkpoint_range {
    int64_t first, count;
    int32_t rank;
} shd_checkpoint_range;

/* A tensor's parameter, or one of its states, as the files hold it. */
typedef struct shd_checkpoint_value {
    sherd_dtype dtype; /* a parameter's: FP32, or BF16 or FP16 where the job kept nothing else; a state's: FP32, INT8 */
    int64_t element_count; /* 0: the tensor has no such state, or no elements */
    int64_t range_count;
    const shd_checkpoint_range *ranges; /* by first, then by rank; all elements are in some, copies in several */
} shd_checkpoint_value;

/* What the manifest knows of a rank's file. */
typedef struct shd_checkpoint_file {
    int64_t bytes;
    uint64_t index_hash;
} shd_checkpoint_file;

/* What the job was, and what there is. */
typedef struct shd_checkpoint_manifest {
    int64_t step;         /* completed optimizer steps */
    int64_t update_count; /* those of them that were not skipped */
    sherd_dtype precision;
    shd_checkpoint_scale loss_scale;
    int32_t world_size; /* ranks that wrote: those of one shard group */
    int32_t replicas;   /* how many shard groups the job had */
    int32_t stage;
    uint64_t layout_hash;  /* shd_plan_layout_hash: which slices each rank stores */
    const char *optimizer; /* "adamw", "lion", "sgd" */
    int32_t state_count;
    const char *state_names[SHD_CHECKPOINT_STATES_MAX];
    sherd_dtype state_dtype; /* of all states: FP32 or INT8 */
    int32_t tensor_count;
    const sherd_tensor *tensors; /* every parameter once, tied ones too */
    /* [tensor_count][state_count]: how many values each state of each tensor has; 0: it has no such state. NULL: all
     * states have their tensor's size, and frozen tensors have none. */
    const int64_t *state_elements;
    const char *note; /* a JSON object as text, or NULL */
    /* The rest is known once it is committed, and ignored when given to commit. */
    int64_t time_s;                     /* when that was: seconds since 1970, UTC */
    int64_t raw_bytes;                  /* of the values in all files */
    int64_t stored_bytes;               /* of all files */
    const shd_checkpoint_file *files;   /* [world_size], by rank */
    const shd_checkpoint_value *values; /* [tensor_count][1 + state_count]: the parameter, then the states */
} shd_checkpoint_manifest;

/* Writes this rank's file into `parent`/step-%08d.partial, making the folders where they are missing, and syncs it.
 * Slices may come in any order; a slice without elements is legal. Fails: IO, MEMORY. */
sherd_status shd_checkpoint_write_rank(const char *parent, int64_t step, int32_t rank,
                                       const shd_checkpoint_slice *slices, int64_t count);

/* Makes the checkpoint complete, once every rank has written. Rank 0 only. Checks that all files are there and that
 * together they hold every element of every tensor, and of every state of those not frozen.
 * Fails: DATA (the note is no JSON object; a file is missing or damaged; elements that no rank wrote), IO, MEMORY. */
sherd_status shd_checkpoint1_commit(const char *parent, const shd_checkpoint_manifest *manifest);

/* Removes `parent`/step-%08d.partial after a save that failed. Best effort: what cannot be removed stays and does no
 * harm. */
void shd_checkpoint1_discard(const char *parent, int64_t step);

/* The path of the checkpoint at `path`: `path` itself, or the one with the most steps in it. *found is NULL when there
 * is none (also when `path` does not exist); release it with shd_free. Folders without a manifest, .partial and foreign
 * names do not count.
 * Fails: IO (`path`, or a newer step-* folder in it, cannot be looked into), MEMORY. */
sherd_status shd_checkpoint_find(const char *path, char **found);
/* A folder in `parent` that is named as a checkpoint of more steps than the newest complete one, but has no manifest: NULL
 * when there is none. Owned and failing like that. */
sherd_status shd_checkpoint_find_incomplete(const char *parent, char **found);

typedef struct shd_checkpoint shd_checkpoint;

/* Opens a checkpoint (not its parent) and checks the manifest, and that every rank file is there in its full size.
 * Owns: close *out with shd_checkpoint_close. Fails: DATA (what is wrong, with the file), IO, MEMORY. */
sherd_status shd_checkpoint_open(const char *path, shd_checkpoint **out);
/* Accepts NULL. */
void shd_checkpoint_close(shd_checkpoint *checkpoint);
const char *shd_checkpoint_path(const shd_checkpoint *checkpoint);
/* Borrowed from the checkpoint. */
const shd_checkpoint_manifest *shd_checkpoint_content(const shd_checkpoint *checkpoint);

/* Fills the slices of `rank`, but those whose values are NULL. They must be those it stored, in the same order: this version loads the same layout only.
 * Fails: DATA (another layout: both slices named; damage: the file and slice), ARGUMENT (no such rank), IO, MEMORY.
 * On failure the slices' values are undefined. */
sherd_status shd_checkpoint_read_rank(const shd_checkpoint *checkpoint, int32_t rank,
                                      const shd_checkpoint_slice *slices, int64_t count);

/* Writes the parameters of the checkpoint at `path` (a checkpoint, or a parent: its newest) into one fp32 safetensors
 * file, tensors in the manifest's order under their names. Replaces `to` when it is complete and verified; memory is
 * bounded.
 * Fails: ARGUMENT (`to` is a folder, or lies in the checkpoint), DATA (no checkpoint, damage), IO, MEMORY. */
sherd_status shd_checkpoint_export(const char *path, const char *to);

#endif
