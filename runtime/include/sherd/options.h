/* The options of a session. Start from SHERD_OPTIONS_INIT, in C and in C++; every field has a default, stated beside
 * it. */
#ifndef SHERD_OPTIONS_H
#define SHERD_OPTIONS_H

#include <sherd/dtype.h>
#include <sherd/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How gathered parameters reach a rank. AUTO: SHARED for stages 1 to 3 on one host, COPY otherwise. */
typedef enum sherd_gather { SHERD_GATHER_AUTO, SHERD_GATHER_SHARED, SHERD_GATHER_COPY } sherd_gather;

/* ADAMW, LION, MUON and ADAFACTOR decay parameters apart from the gradient, SGD and ADAM (as PyTorch's) add the decay to
 * the gradient. MUON is for matrices of the units between the first and the last; what else there is follows AdamW. */
typedef enum sherd_optimizer_kind {
    SHERD_ADAMW,
    SHERD_SGD,
    SHERD_LION,
    SHERD_ADAM,
    SHERD_ADAFACTOR,
    SHERD_MUON
} sherd_optimizer_kind;

/* What Muon multiplies the learning rate of an m×n matrix by. MATCH_RMS_ADAMW: 0.2·√max(m, n), so that its updates are
 * about as large as AdamW's and both can have one learning rate; ORIGINAL: √max(1, m/n). */
typedef enum sherd_adjust_lr { SHERD_ADJUST_LR_MATCH_RMS_ADAMW, SHERD_ADJUST_LR_ORIGINAL } sherd_adjust_lr;

/* With MUON, whose some tensors are. AUTO: as their place and shape say. */
typedef enum sherd_group_optimizer { SHERD_GROUP_AUTO, SHERD_GROUP_ADAMW, SHERD_GROUP_MUON } sherd_group_optimizer;

/* Learning rate over steps s = 0, 1, …, of N in all, the first W of which warm up. s < W: lr·(s+1)/W; then
 * CONSTANT: lr; LINEAR: lr + (min_lr − lr)·x; COSINE: min_lr + ½(lr − min_lr)(1 + cos πx), x = (s−W)/(N−W);
 * WSD, warm-up, stable, decay: lr, and over the last D steps lr + (min_lr − lr)·(s−N+D)/D;
 * INVERSE_SQRT, which has no end: lr·√(max(W, 1)/(s+1)), but never below min_lr. */
typedef enum sherd_schedule {
    SHERD_CONSTANT,
    SHERD_LINEAR,
    SHERD_COSINE,
    SHERD_WSD,
    SHERD_INVERSE_SQRT
} sherd_schedule;

/* Which tensors weight decay touches. MATRICES: those with two dimensions or more; PATTERNS: those that one of
 * decay_patterns matches. */
typedef enum sherd_decay { SHERD_DECAY_MATRICES, SHERD_DECAY_ALL, SHERD_DECAY_NONE, SHERD_DECAY_PATTERNS } sherd_decay;

/* What some tensors have of their own. Start from SHERD_OPTIMIZER_GROUP_INIT. */
typedef struct sherd_optimizer_group {
    const char *match;               /* shell pattern over tensor names, in which * matches dots too; must be set */
    double lr_factor;                /* multiplies the learning rate; default 1 */
    double weight_decay;             /* theirs, whatever `decay` says; default -1: as if there were no group */
    sherd_group_optimizer optimizer; /* MUON; default AUTO */
} sherd_optimizer_group;

typedef struct sherd_optimizer {
    sherd_optimizer_kind kind; /* default ADAMW */
    sherd_schedule schedule;   /* default CONSTANT */
    sherd_decay decay;         /* default MATRICES */
    int32_t warmup_steps;      /* default 0 */
    int64_t warmup_tokens;     /* instead of warmup_steps: as many steps as see so many tokens; default 0 */
    int64_t step_tokens;       /* tokens of a step, to count warmup_tokens with; default 0 */
    int64_t total_steps;       /* where linear, cosine and wsd schedules end, which need it; default 0 */
    int64_t decay_steps;       /* WSD: the last steps; default 0: a tenth of total_steps, at least 1 */
    double lr;                 /* default 1e-3 */
    double min_lr;             /* default 0 */
    double beta1, beta2;       /* AdamW (Muon's too), Adam and Lion; default 0.9, 0.95 */
    double eps;                /* AdamW (Muon's too) and Adam; default 1e-8 */
    double momentum;           /* SGD and Muon, where 0.95 is usual; default 0 */
    bool nesterov;             /* SGD and Muon with momentum; Muon is usually run with it; default false */
    double weight_decay;       /* default 0 */
    /* In (0, 1]: tensors of unit u of U have their learning rate times this to the power U − 1 − u; default 1. */
    double layer_lr_decay;
    /* [decay_pattern_count], shell patterns, each of which must match a tensor; default NULL. */
    const char *const *decay_patterns;
    int32_t decay_pattern_count; /* default 0 */
    int32_t group_count;         /* default 0 */
    /* [group_count]; a tensor belongs to the first that matches, and each must have one; default NULL. */
    const sherd_optimizer_group *groups;
    int32_t ns_steps;          /* Muon: Newton-Schulz iterations, 1 to 100; default 5 */
    sherd_adjust_lr adjust_lr; /* Muon; default MATCH_RMS_ADAMW */
    double beta2_decay; /* Adafactor: step t, from 1, has the weight t^beta2_decay in second moments; default -0.8 */
    double update_clip; /* Adafactor: bound on an update's root mean square, at least 1; default 1 */
    double scale_floor; /* Adafactor: a tensor whose root mean square is less moves as if it were this; default 1e-3 */
    /* Of what the optimizer keeps for each element: FP32, or INT8, which takes a quarter of it, with AdamW, Adam, Lion
     * and SGD with momentum; default FP32. */
    sherd_dtype state_dtype;
} sherd_optimizer;

/* What becomes of a unit's activations between its forward and its backward. NONE: they are kept. UNIT: all units but the
 * last share one piece of memory for them, and run forward once more right before their backward. PART: the same for
 * what sherd_unit.remade_bytes holds alone; the rest is kept. */
typedef enum sherd_recompute { SHERD_RECOMPUTE_NONE, SHERD_RECOMPUTE_UNIT, SHERD_RECOMPUTE_PART } sherd_recompute;

/* Dynamic loss scaling, with precision FP16: gradients are those of the loss times a scale, so that small ones do not
 * vanish in 16 bits. When a step's loss or gradients overflow, the step is skipped on all ranks: parameters and optimizer
 * state stay as they are, and the scale is halved. After `growth_interval` good steps in a row it doubles.
 * Start from SHERD_LOSS_SCALE_INIT. Source: Micikevicius et al., "Mixed precision training", ICLR 2018; hysteresis as in
 * DeepSpeed and Megatron-LM. */
typedef struct sherd_loss_scale {
    double initial;          /* default 65536; a power of two loses no bits */
    double minimum;          /* another overflow at this scale ends the run; default 1 */
    int32_t growth_interval; /* default 2000 */
    /* Halve from this overflow on, counted since the last growth; the ones before are skipped alone. Default 1. */
    int32_t hysteresis;
} sherd_loss_scale;

/* What becomes of a step whose loss or gradient norm is not finite, on whatever rank it began. ABORT: sherd_step fails with
 * NUMERIC on all ranks, naming the step and the rank; the session is over. SKIP: nothing is updated, and the result says
 * so (`skipped`, `nonfinite`); parameters and optimizer state keep every bit, the step counts as a step, so that data and
 * learning rate go on, but not in the optimizer's bias corrections. With precision FP16 this is about steps that no loss
 * scale could mend; the others are skipped in any case. */
typedef enum sherd_nonfinite { SHERD_NONFINITE_ABORT, SHERD_NONFINITE_SKIP } sherd_nonfinite;

/* Judges a step before anything is updated: true skips it. Asked on every rank, about steps whose loss and gradient norm
 * are finite, inside sherd_step: `found` is the result so far, and but for the times without `rank_` the same everywhere;
 * every rank must come to the same answer, so it must follow from that alone. It may not call the session. */
struct sherd_step_result;
typedef bool (*sherd_judge_fn)(void *user, const struct sherd_step_result *found);

/* How a session writes checkpoints. Start from SHERD_CHECKPOINT_INIT. */
typedef struct sherd_checkpoint {
    int32_t compression; /* 0: none, to 19; default 1. The same values come back whatever it is */
    /* Write while training goes on (sherd_session_save_begin): the step's program then has instructions for it. false: a
     * save begins and ends in one call, and no step waits for it. Default true. */
    bool async;
    int32_t threads;    /* of this rank, that encode and write; 1 to 64; default 2 */
    int32_t keep;       /* so many checkpoints are kept in a folder, those of most steps; default 0: all */
    int32_t keep_every; /* of those, ones whose step is a multiple of this are kept besides; default 0: none */
} sherd_checkpoint;

/* Where a rank computes. With CUDA all that brackets lend is memory of an NVIDIA GPU, and what they compute is enqueued on
 * the stream that they are lent (sherd_view.stream); programs without the CUDA backend, and machines without a GPU, refuse
 * it. */
typedef enum sherd_device_kind { SHERD_DEVICE_CPU, SHERD_DEVICE_CUDA } sherd_device_kind;

/* How ranks on GPUs move what they gather and reduce. NCCL: from GPU to GPU, each rank with one of its own. STAGED: through
 * shared memory of the host, where several ranks may share a GPU. AUTO: NCCL where it is installed and every rank has a
 * GPU of its own, else STAGED. */
typedef enum sherd_link { SHERD_LINK_AUTO, SHERD_LINK_NCCL, SHERD_LINK_STAGED } sherd_link;

/* Owns: every pointer is borrowed during sherd_session_create. */
typedef struct sherd_options {
    size_t size;        /* sizeof(sherd_options), set by SHERD_OPTIONS_INIT */
    int32_t rank;       /* 0 to world_size - 1; default 0 */
    int32_t world_size; /* 1 to 64; default 1 */
    /* The name under which the ranks of this host meet; needed from two ranks on; default NULL. */
    const char *rendezvous;
    int32_t stage; /* ZeRO stage 0 to 3; default 3 */
    /* Hybrid sharding: so many copies of the state, each split over world_size / replicas neighbouring ranks; gradients
     * are reduced within replicas, then over them. Which data a rank takes: sherd_micro_batch. Must divide world_size;
     * stages 1 to 3 only; default 1. */
    int32_t replicas;
    sherd_gather gather;       /* default AUTO */
    int32_t prefetch;          /* units gathered ahead of the one computing, at stage 3; default 1 */
    sherd_recompute recompute; /* default NONE */
    /* Of the parameters that brackets lend; default FP32. With BF16 and FP16, fp32 masters of all that is trained are what
     * the optimizer updates and checkpoints hold; frozen tensors are kept in 16 bits alone. */
    sherd_dtype precision;
    /* Of gradients between ranks, FP32 or BF16; default FP32. Brackets write fp32; with BF16 each micro-batch's gradient
     * is rounded once, and summed in fp32. */
    sherd_dtype reduce_dtype;
    sherd_loss_scale loss_scale; /* with precision FP16; default SHERD_LOSS_SCALE_INIT */
    int32_t micro_steps;         /* micro-batches each rank runs in a step (gradient accumulation); default 1 */
    /* Forward-only micro-batches each rank runs in an evaluation; default 0: no evaluation. */
    int32_t eval_micro_steps;
    double clip;                 /* bound on the global gradient norm; default 0: none */
    sherd_optimizer optimizer;   /* default SHERD_OPTIMIZER_INIT */
    int32_t threads;             /* compute threads of this rank; default 1 */
    double timeout_s;            /* how long one wait for other ranks may last, in seconds; default 600 */
    double start_timeout_s;      /* the same for the meeting in sherd_session_create; default 300 */
    sherd_checkpoint checkpoint; /* default SHERD_CHECKPOINT_INIT */
    /* With ABORT, no clipping, no judge and no FP16, updates run inside backward: a step that fails has changed
     * parameters. In all other cases they run after the verdict. Default ABORT. */
    sherd_nonfinite on_nonfinite;
    sherd_judge_fn judge;     /* default NULL: every finite step is good */
    void *judge_user;         /* handed to it; default NULL */
    sherd_device_kind device; /* default CPU */
    /* Which GPU of those that this process sees; -1: the rank's number modulo how many there are; default -1. */
    int32_t device_index;
    sherd_link link; /* on GPUs, with two ranks or more; default AUTO */
} sherd_options;

/* Values in the order of the fields: C++ before C++20 knows no designated initialisers. */
#define SHERD_OPTIMIZER_INIT                                                                                           \
    {                                                                                                                  \
        SHERD_ADAMW, SHERD_CONSTANT, SHERD_DECAY_MATRICES, 0, 0, 0, 0, 0, 1e-3, 0, 0.9, 0.95, 1e-8, 0, false, 0, 1,    \
            NULL, 0, 0, NULL, 5, SHERD_ADJUST_LR_MATCH_RMS_ADAMW, -0.8, 1, 1e-3, SHERD_FP32                            \
    }
#define SHERD_OPTIMIZER_GROUP_INIT                                                                                     \
    { NULL, 1, -1, SHERD_GROUP_AUTO }
#define SHERD_LOSS_SCALE_INIT                                                                                          \
    { 65536, 1, 2000, 1 }
#define SHERD_CHECKPOINT_INIT                                                                                          \
    { 1, true, 2, 0, 0 }
#define SHERD_OPTIONS_INIT                                                                                             \
    {                                                                                                                  \
        sizeof(sherd_options), 0, 1, NULL, 3, 1, SHERD_GATHER_AUTO, 1, SHERD_RECOMPUTE_NONE, SHERD_FP32, SHERD_FP32,   \
            SHERD_LOSS_SCALE_INIT, 1, 0, 0, SHERD_OPTIMIZER_INIT, 1, 600, 300, SHERD_CHECKPOINT_INIT,                  \
            SHERD_NONFINITE_ABORT, NULL, NULL, SHERD_DEVICE_CPU, -1, SHERD_LINK_AUTO                                   \
    }

/* Which micro-batch of a global batch the rank of valid `options` is to run at micro-step `micro_step`, so that gradients
 * are summed in data order: number micro_step · world_size + rank of micro_steps · world_size; with replicas each of
 * them takes its share of neighbours in this way. */
SHERD_API int64_t sherd_micro_batch(const sherd_options *options, int32_t micro_step);

/* Sets rank, world_size and rendezvous from the variables of the launcher that has started this process: torchrun's (RANK,
 * WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT; TORCHELASTIC_RUN_ID and TORCHELASTIC_RESTART_COUNT
 * tell jobs and attempts apart), else the first complete set among those of Open MPI's mpirun, MPICH's mpiexec and srun
 * that tells of several ranks. Without such a set nothing changes.
 *
 * Owns: `rendezvous` points to storage of the calling thread, valid until its next call; a session copies it.
 * Fails: CONFIG (a variable missing though RANK or WORLD_SIZE is set, malformed, out of range, or ranks of the job are on
 * other hosts; named). Threads: any, while nobody changes the environment. */
SHERD_API sherd_status sherd_options_from_env(sherd_options *options);
/* Whose variables it would take: "torchrun", "Open MPI", "MPICH" or "Slurm"; NULL: there is no complete set. */
SHERD_API const char *sherd_launcher_from_env(void);

#ifdef __cplusplus
}
#endif
#endif
