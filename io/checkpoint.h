/* Checkpoints: what every rank stores of a training run, complete or not there at all.
 *
 * A checkpoint is a folder `step-%08d` (completed optimizer steps) below a parent:
 *   rank-%05d.bin   one rank's ranges of parameters and optimizer states, in blocks, each with its XXH3, and their
 *   index
 *   manifest.json   what the job was, which file holds what, and size and index hash of every rank's file
 * The manifest's last line is the XXH3 of all before it; with the hashes below it, no byte can change unnoticed.
 * docs/CHECKPOINT.md is the whole format.
 *
 * How the parts are divided: blocks in io/checkpoint_block.h; a rank's file, and its index, in io/checkpoint_file.h;
 * who writes them in io/checkpoint_writer.h (training) and io/checkpoint_append.h (tools); how a folder comes to be
 * complete, is found and removed in io/checkpoint_folder.h; reading, of any layout, in io/checkpoint_reader.h. Here is
 * what all share, and the open checkpoint.
 *
 * All functions: paths and system errors are in the cause. */
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
    void *values; /* [count] of `dtype`; read by writers, written by readers */
    /* Files hold values as they are: parameters in FP32, BF16 or FP16, states in FP32 or INT8: then `first` is where a
     * code block begins, and blocks are whole, the last one of the state filled up with zeros. */
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

typedef struct shd_checkpoint shd_checkpoint;

/* Opens a checkpoint (not its parent) and checks the manifest, and that every rank file is there in its full size. Until
 * it is closed, no retention removes it (io/checkpoint_hold.h).
 * Owns: close *out with shd_checkpoint_close. Fails: DATA (damage, or no checkpoint: what is wrong, with the file),
 * UNSUPPORTED (another version, or something required that this build does not know: by number or name), IO, MEMORY. */
sherd_status shd_checkpoint_open(const char *path, shd_checkpoint **out);
/* Accepts NULL. */
void shd_checkpoint_close(shd_checkpoint *checkpoint);
const char *shd_checkpoint_path(const shd_checkpoint *checkpoint);
/* Borrowed from the checkpoint. */
const shd_checkpoint_manifest *shd_checkpoint_content(const shd_checkpoint *checkpoint);

#endif
