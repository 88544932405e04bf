/* What the engine's own files share. */
#ifndef SHD_ENGINE_INTERNAL_H
#define SHD_ENGINE_INTERNAL_H

#include "runtime/base/exact_sum.h"
#include "runtime/device/queue.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/unit.h"

/* Where a number that is not finite was seen first. */
typedef struct shd_suspect {
    int32_t rank; /* -1: nowhere */
    int32_t micro_step, unit;
} shd_suspect;

/* What VERDICT carries to every rank. */
typedef struct shd_verdict {
    shd_exact_sum loss, square_sum, parameter_square_sum, metrics[SHERD_METRICS];
    int64_t target_count; /* evaluation: this rank's */
    int64_t arena_bytes;
    uint32_t flags;
    shd_save_state save_state;
    shd_suspect loss_suspect, gradient_suspect; /* in what this rank has computed; in what it has summed */
    double step_ms, wait_ms;
} shd_verdict;

typedef struct shd_engine_times {
    double compute_ms, comm_ms, optimizer_ms, save_ms;
} shd_engine_times;

/* What this rank has done since its last verdict on a step. */
typedef struct shd_rank_clock {
    double since_ms; /* 0: there was none */
    double wait_ms;  /* for other ranks, that of the verdict included */
    double other_ms; /* for its disk, and in programs that are no steps */
    double begin_ms; /* of the running program */
} shd_rank_clock;

typedef struct shd_engine_device shd_engine_device; /* on_device.h */

struct shd_engine {
    shd_engine_config config;
    char *arenas[SHD_PLACES];
    shd_queue *queues[SHD_QUEUES]; /* COMPUTE has none: it runs inline */
    shd_unit *units;
    int64_t *counter_base;     /* [SHD_COUNTERS][unit_count]: every rank's counters when the running program began */
    double *partials;          /* planned work memory of norms */
    shd_codebook *codebooks;   /* [state_count], of states in INT8; else NULL */
    shd_engine_device *device; /* NULL: the CPU */

    int64_t recorded_step;  /* the step that runs, or, of other programs, the last that was done; -1: none */
    shd_recorder *recorder; /* the comm's */

    /* The running program. */
    const shd_program *program;
    bool *done;       /* by instruction */
    int64_t *records; /* likewise: their numbers in the recorder */
    int32_t next;
    bool due; /* instructions[next] is a compute instruction that the caller is asked for */
    int64_t step;

    /* Its sums. */
    shd_exact_sum loss, square_sum, parameter_square_sum, metrics[SHERD_METRICS];
    shd_suspect loss_suspect, gradient_suspect;
    int64_t local_targets, target_count;
    double gradient_scale; /* what UPDATE multiplies gradients by: clipping, ÷ loss scale */
    bool skips;            /* the verdict: UPDATE is to leave everything as it is */
    bool commits;          /* the verdict: every rank has written the save that is under way */
    double lr_factor;
    shd_progress progress, next_progress; /* the running step's, and what it will leave */
    uint32_t flags;                       /* raised since the last step's verdict */
    int64_t compute_since_ns;
    shd_engine_times times;
    shd_rank_clock clock;
    sherd_step_result result;

    /* Lent in views. */
    const void **parameters;
    float **gradients;
    void **outputs, **activations, **remade;
    shd_verdict *verdicts; /* [world_size] */
    int64_t *counts;       /* [world_size] */
};

/* Elements of a group, and where this rank has them; `values` is NULL when there are none. */
typedef struct shd_held {
    int64_t first, count;
    char *values;
    sherd_dtype dtype;
    int32_t buffer_index; /* in which they lie */
} shd_held;

/* --- address.c: where things are ---------------------------------------------------------------------------------- */

sherd_status shd_engine_map(shd_engine *engine);
void shd_engine_unmap(shd_engine *engine);
/* The start of a planned buffer, in this rank's address space. */
void *shd_engine_address(const shd_engine *engine, int32_t buffer_index);
/* Where group `group_index` can be read in full: NULL while its unit is not gathered into a slot. */
char *shd_engine_gathered(const shd_engine *engine, int32_t group_index);
/* The own shard of its parameters, in parameter_dtype. */
char *shd_engine_shard(const shd_engine *engine, int32_t group_index);
/* The own shard of its reduced gradient. */
float *shd_engine_accumulator(const shd_engine *engine, int32_t group_index);
/* The part of its parameters (state_index -1; the masters, if it has them) or of a state that lies in the shard of place
 * `shard_of`; with -1 all that this rank updates: its own shard, at stage 0 the whole group. */
shd_held shd_engine_held(const shd_engine *engine, int32_t group_index, int32_t state_index, int32_t shard_of);
/* The 16-bit copy of all masters that this rank updates; NULL for a group without them. */
void *shd_engine_copy(const shd_engine *engine, int32_t group_index);
/* State `index` of a whole tensor that this rank owns; NULL: it has none. */
float *shd_engine_owned_state(const shd_engine *engine, int32_t tensor, int32_t index);
/* Its micro-batch gradient in full; trainable groups only. */
float *shd_engine_gradient(const shd_engine *engine, int32_t group_index);
/* Writes zero into the gaps between and behind the tensors of a unit's micro-batch gradient, so that norms never see
 * stale bytes. */
void shd_engine_clear_gaps(const shd_engine *engine, int32_t unit_index);
/* Fills the tables that views lend: what `instruction`'s unit and the units it shares may read and, backward, write. */
void shd_engine_lend(shd_engine *engine, const shd_instruction *instruction);

/* --- collect.c: the collectives' side of instructions ------------------------------------------------------------- */

sherd_status shd_engine_gather(shd_engine *engine, const shd_instruction *instruction);
sherd_status shd_engine_gather_gradient(shd_engine *engine, const shd_instruction *instruction);
sherd_status shd_engine_reduce(shd_engine *engine, const shd_instruction *instruction);
sherd_status shd_engine_reduce_replicas(shd_engine *engine, const shd_instruction *instruction);
sherd_status shd_engine_count(shd_engine *engine);

/* --- judge.c ------------------------------------------------------------------------------------------------------ */

sherd_status shd_engine_verdict(shd_engine *engine);
/* Remembers the first number that is not finite: among terms of a micro-step's loss, in a gradient; `places`: a bit for
 * each place of the shard group whose contribution had one. */
void shd_engine_suspect_loss(shd_engine *engine, int32_t micro_step);
void shd_engine_suspect_gradient(shd_engine *engine, const shd_instruction *reduce);
void shd_engine_suspect_places(shd_engine *engine, uint64_t places, int32_t micro_step, int32_t unit_index);
/* The micro-step that the caller is at, or was last. */
int32_t shd_engine_current_micro_step(const shd_engine *engine);

/* --- engine.c ----------------------------------------------------------------------------------------------------- */

/* Adds to the loss terms of a micro-step. */
void shd_engine_add_loss_of(shd_engine *engine, const double *terms, int64_t count, int32_t micro_step);

/* --- execute.c ---------------------------------------------------------------------------------------------------- */

/* Lets queued work go on that has become ready. */
sherd_status shd_engine_progress_queues(shd_engine *engine);

/* --- storage.c ---------------------------------------------------------------------------------------------------- */

void shd_engine_save(shd_engine *engine, int32_t unit);
bool shd_engine_saved(const shd_engine *engine, int32_t unit);
/* What this rank tells of its save with a verdict, and what all have told: *ended, that all have written or failed.
 * Fails: MISMATCH (only some ranks save). */
shd_save_state shd_engine_save_state(const shd_engine *engine);
sherd_status shd_engine_saves_ended(const shd_engine *engine, bool *ended);
sherd_status shd_engine_commit(shd_engine *engine);
/* One turn of waiting for this rank's own disk. Fails: as shd_comm_pause, but for TIMEOUT. */
sherd_status shd_engine_await_disk(shd_engine *engine);

/* --- round.c: from fp32 to 16 bits -------------------------------------------------------------------------------- */

void shd_engine_round(shd_engine *engine, const shd_instruction *instruction);

/* --- direct.c ----------------------------------------------------------------------------------------------------- */

void shd_engine_direct(shd_engine *engine, const shd_instruction *instruction);

/* --- update.c ----------------------------------------------------------------------------------------------------- */

/* The learning rate of the running step. */
double shd_engine_lr(const shd_engine *engine);
void shd_engine_norm(shd_engine *engine, const shd_instruction *instruction);
void shd_engine_update(shd_engine *engine, const shd_instruction *instruction);

#endif
