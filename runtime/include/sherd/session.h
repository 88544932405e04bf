/* A session: one rank's part of a sharded training run.
 *
 * A step is a fixed sequence: step_begin, then micro_steps times (forward of units 0 … U-1, backward of units U-1 … 0),
 * then step. With recompute UNIT, each unit that has activations, but the last, runs forward again right before its
 * backward: forward_begin and forward_end come once more for it; with PART, each that has remade activations. The
 * brackets advance the session's step program: what lies between a begin and its end may read the parameters of that
 * unit (and of the units it shares), nothing else is guaranteed to be there.
 * Threads: a session belongs to one thread at a time; different sessions are independent. */
#ifndef SHERD_SESSION_H
#define SHERD_SESSION_H

#include <sherd/model.h>
#include <sherd/options.h>
#include <sherd/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sherd_session sherd_session;

/* What a bracket lends. Borrowed until the bracket's end. */
typedef struct sherd_view {
    int32_t unit;
    int32_t micro_step; /* 0 … micro_steps-1, in an evaluation eval_micro_steps-1 */
    bool training;      /* false inside an evaluation */
    bool again;         /* a forward that runs once more for its backward: the unit's output is still there */
    bool part_again; /* with `again`: `activations` are still there too, only `remade` is to be made; recompute PART */
    /* 1 ÷ counted targets of the global batch, with precision FP16 times the loss scale; 0 when there are no targets, and
     * outside backward. */
    float loss_scale;

    /* By tensor index, in sherd_options.precision, row-major, 64-byte aligned: float, or 16-bit values as sherd_dtype
     * has them. NULL where this unit may not read. For tensors without elements pointers mean nothing, here and
     * below. */
    const void *const *parameters;
    /* By tensor index, fp32 in every precision, row-major, 64-byte aligned. NULL outside backward, for frozen tensors,
     * and where this unit may not write. A gradient's first writer in a micro-batch must write every element: it holds
     * garbage before. */
    float *const *gradients;

    void *const *outputs; /* by unit index, each 64-byte aligned; NULL where a unit asked for none */
    /* Likewise, sherd_unit.activation_bytes and remade_bytes. Those of recomputed units are one memory, whose contents
     * last from a unit's second forward to its backward. */
    void *const *activations, *const *remade;
    void *scratch; /* sherd_model.scratch_bytes, 64-byte aligned; NULL when 0 */
    void *logits;  /* sherd_model.logits_bytes, likewise */
    /* On a GPU all of the above is its memory, and this is the CUDA stream (a cudaStream_t) on which the bracket's work is
     * to be enqueued; the caller need not wait for it. NULL on the CPU. */
    void *stream;
} sherd_view;

/* Sums of a trainer's own beside the loss: correct predictions, a second loss. */
enum { SHERD_METRICS = 2 };

/* A time that every rank has measured for itself, over all ranks. */
typedef struct sherd_rank_times {
    double min_ms, median_ms, max_ms; /* of an even number of ranks the lower one of the two in the middle */
    int32_t max_rank;                 /* whose is max_ms; of several the lowest */
} sherd_rank_times;

/* What a step did; the same on every rank but for the times without `rank_`, which are this rank's. */
typedef struct sherd_step_result {
    int64_t step;      /* the step just done, from 0 */
    double loss;       /* exact sum of what was added, rounded once, ÷ target_count */
    double grad_norm;  /* 2-norm of the mean gradient over all trainable elements, before clipping */
    double lr;         /* the learning rate used */
    double loss_scale; /* what the loss was multiplied by; 1 but with precision FP16 */
    /* Nothing was updated: loss or gradient norm are not finite, or options.judge said so; `lr` is what it would have
     * been. */
    bool skipped;
    int64_t target_count;          /* counted targets of the global batch */
    double metrics[SHERD_METRICS]; /* exact sums of what was added (sherd_add_metric), rounded once, over all ranks */
    double compute_ms, exposed_comm_ms, optimizer_ms;
    double save_wait_ms; /* what updates, and the step's end, have waited for a save that was under way */
    int64_t peak_bytes;  /* largest over the ranks: bytes that the rank's process holds in arenas of its sessions */
    uint32_t flags;      /* what ranks have told each other; see sherd_raise */
    /* Loss or gradient norm is not finite. With precision FP16 only where that cannot be the loss scale's doing, which is
     * at its minimum: a step that is skipped to halve the scale has `skipped` alone. */
    bool nonfinite;
    /* Where the first number was seen that is not finite, in such a step and in one that FP16 skips: in what this rank
     * computed, in this micro-step, in the gradient of this unit; -1 in the place of the unit: in the loss, of the rank:
     * nowhere, sums of finite numbers overflowed. Contributions over replicas count as their ranks'. */
    int32_t nonfinite_rank, nonfinite_micro_step, nonfinite_unit;
    double param_norm; /* 2-norm over all trainable elements, as they were before this step's update */
    /* Of every rank, from its last step's verdict to this one's, evaluations left out: the time that it spent on work of
     * its own, and the time that it waited for other ranks. */
    sherd_rank_times rank_step, rank_wait;
} sherd_step_result;

typedef struct sherd_evaluation {
    double loss;                   /* exact sum of what was added, rounded once, ÷ target_count; 0 when that is 0 */
    int64_t target_count;          /* over all ranks */
    double metrics[SHERD_METRICS]; /* as a step's */
} sherd_evaluation;

/* Plans, compiles and verifies the step program, meets the other ranks, and allocates everything a step needs.
 * Collective: every rank of the job must call it with the same options (but rank) and the same model.
 * Parameters are undefined until sherd_session_fill or sherd_session_load.
 * Owns: borrows `options` and `model` during the call. The caller destroys *out.
 * Fails: ARGUMENT (what the model's description has wrong), CONFIG (an option's value, named), MEMORY, MISMATCH (a rank
 * with another model or other options, named), TIMEOUT (the missing ranks named), PEER, COMM; INTERNAL (the plan does
 * not stand its verification). */
SHERD_API sherd_status sherd_session_create(const sherd_options *options, const sherd_model *model,
                                            sherd_session **out);

/* Ends the session; accepts NULL. Peers that still wait for this rank fail instead of hanging. */
SHERD_API void sherd_session_destroy(sherd_session *session);

/* Fills `values` with elements [first, first + count) of tensor `tensor` (index as described, row-major order); count
 * > 0. */
typedef sherd_status (*sherd_fill_fn)(void *user, int32_t tensor, int64_t first, int64_t count, float *values);

/* Sets every parameter: calls `fill` for each slice that this rank stores (a large one may come in parts), and only for
 * those. Optimizer state and step count start at zero, the loss scale at its initial value. Collective; before the
 * first step or between two. Fails: STATE; on all ranks alike as `fill` does, and then parameters are undefined, as
 * after create; COMM and worse. */
SHERD_API sherd_status sherd_session_fill(sherd_session *session, sherd_fill_fn fill, void *user);

/* Opens a step. `target_count`: counted targets in this rank's micro-batches of the step; their sum over the ranks
 * divides the loss. A trainer whose loss is a mean over samples passes its number of samples. Fails: STATE, ARGUMENT (a
 * negative count). */
SHERD_API sherd_status sherd_step_begin(sherd_session *session, int64_t target_count);

/* Brackets of one unit; units must come in the order stated above. Fails: STATE (what was expected is named), COMM and
 * worse. */
SHERD_API sherd_status sherd_forward_begin(sherd_session *session, int32_t unit, sherd_view *view);
SHERD_API sherd_status sherd_forward_end(sherd_session *session, int32_t unit);
SHERD_API sherd_status sherd_backward_begin(sherd_session *session, int32_t unit, sherd_view *view);
SHERD_API sherd_status sherd_backward_end(sherd_session *session, int32_t unit);

/* Adds `count` loss terms to the step's (or evaluation's) loss, exactly: no grouping or order of calls changes the sum.
 * Between begin and end, inside brackets or outside. Fails: STATE, ARGUMENT. */
SHERD_API sherd_status sherd_add_loss(sherd_session *session, const double *terms, int64_t count);

/* Adds `count` terms to sum number `metric` of the step (or evaluation), 0 to SHERD_METRICS - 1, exactly as to its
 * loss. The result has the sum over all ranks, of all micro-batches; what it means, and what to divide it by, is the
 * caller's affair: with a 1 for every target that was predicted, metrics[0] / target_count is the accuracy. A sum that
 * is not finite is a result like any other. Fails: STATE, ARGUMENT. */
SHERD_API sherd_status sherd_add_metric(sherd_session *session, int32_t metric, const double *terms, int64_t count);

/* Tells all ranks something with the next step: its result's `flags` is the union of what every rank has raised since
 * the last one. What the bits mean is the caller's affair ("a signal came: stop together"). Threads: the session's own;
 * a signal handler sets a variable instead and the loop raises. Fails: STATE when the session is dead. */
SHERD_API sherd_status sherd_raise(sherd_session *session, uint32_t flags);

/* Closes the step: reduces, clips, updates. Collective. `result` may be NULL. A step may be skipped: with precision FP16,
 * when loss or gradient norm is not finite and the loss scale can still fall; with options.on_nonfinite SKIP, when they
 * are not finite otherwise; when options.judge says so. A skipped step is a step like any other, but for the
 * optimizer's bias corrections, which do not count it. Fails: STATE; with on_nonfinite ABORT NUMERIC, when loss or
 * gradient norm is not finite, the rank named that saw it first (on all ranks alike, and it ends the session; where
 * updates follow the verdict, no parameter has changed); COMM and worse. */
SHERD_API sherd_status sherd_step(sherd_session *session, sherd_step_result *result);

/* An evaluation: eval_micro_steps times forward of units 0 … U-1, between begin and end; at step boundaries only. A
 * rank without data for a micro-step passes through the brackets and computes nothing. `target_count`: this rank's. A
 * loss that is not finite is a result like any other. Collective. Fails: STATE, ARGUMENT (a negative count); COMM and
 * worse. */
SHERD_API sherd_status sherd_evaluate_begin(sherd_session *session);
SHERD_API sherd_status sherd_evaluate_end(sherd_session *session, int64_t target_count, sherd_evaluation *result);

/* The other style: hand over the mathematics of a unit and let sherd run the program. A callback that fails ends the
 * session: sherd_run_step returns its status, and PEER on the other ranks. */
typedef sherd_status (*sherd_unit_fn)(void *user, const sherd_view *view);
typedef struct sherd_callbacks {
    size_t size; /* sizeof(sherd_callbacks) */
    sherd_unit_fn forward, backward;
    void *user;
} sherd_callbacks;

/* step_begin, all brackets and step in one call. Fails: as those and the callbacks do. */
SHERD_API sherd_status sherd_run_step(sherd_session *session, int64_t target_count, const sherd_callbacks *callbacks,
                                      sherd_step_result *result);

/* Completed optimizer steps: 0 at the start, the checkpoint's after a load. */
SHERD_API int64_t sherd_session_step_count(const sherd_session *session);

/* Writes a checkpoint `step-%08d` (completed steps) into `dir`, complete or not at all, and returns when it is there: a
 * sherd_session_save_begin that is waited for. Collective; at step boundaries. Fails: as those do, on all ranks alike. */
SHERD_API sherd_status sherd_session_save(sherd_session *session, const char *dir, const char *note);

/* Begins to write a checkpoint of the state as it is now, and returns at once. With options.checkpoint.async threads of
 * each rank write it during the coming step, straight from parameters and optimizer state: an update waits until what it
 * changes has been encoded. The end of a step in which every rank has written all commits it: until then it does not
 * count as a checkpoint, and readers do not see it. Evaluations may come in between. Without async it is written in this
 * call. A save that fails removes what it has written, leaves older checkpoints as they are, and never ends the session:
 * what became of it tells sherd_session_save_result. Destroying the session gives up a save that is not committed; a step
 * that fails with NUMERIC commits it first.
 * `dir`: a folder, made where it is missing. `note`: a JSON object stored in the manifest (a trainer's own state), or
 * NULL; it must be the same, or may be NULL, on other ranks than 0, whose is stored.
 * The first commit into a folder moves checkpoints of more steps than this session started from out of the way, renamed
 * to step-….aside-…: they are of a run that this one does not go on from.
 * Owns: copies `dir` and `note`. Collective; at step boundaries.
 * Fails: STATE (between no two steps; the last save has not ended), ARGUMENT; COMM and worse. */
SHERD_API sherd_status sherd_session_save_begin(sherd_session *session, const char *dir, const char *note);

/* Whether a save has begun and not ended; the same on all ranks. */
SHERD_API bool sherd_session_save_pending(const sherd_session *session);

/* Ends a pending save: returns when it is committed, or has failed. Collective; at step boundaries. Without a pending
 * one it returns at once. Fails: as the save that has ended last did (IO, DATA, MEMORY, ARGUMENT), on all ranks alike,
 * and the session goes on; STATE; COMM and worse. */
SHERD_API sherd_status sherd_session_save_wait(sherd_session *session);

/* What became of a save; the same on every rank but for the times, which are this rank's. */
typedef struct sherd_save_result {
    int64_t count;       /* saves that have ended so far; 0: the rest is zero */
    int64_t step;        /* the completed steps that it holds */
    sherd_status status; /* OK: it is there */
    /* Why it is not, with the rank that failed; "" with OK. Borrowed from the session until the next save ends. */
    const char *cause;
    double wait_ms;                  /* what this rank has waited for it: in steps, and in sherd_session_save_wait */
    double seconds;                  /* from its begin to its end */
    int64_t raw_bytes, stored_bytes; /* of all ranks: values, and what they take in files */
} sherd_save_result;
/* Of the save that has ended last. Never fails. */
SHERD_API void sherd_session_save_result(const sherd_session *session, sherd_save_result *out);

/* How much of a checkpoint is loaded. Start from SHERD_LOAD_INIT. */
typedef struct sherd_load {
    size_t size; /* sizeof(sherd_load), set by SHERD_LOAD_INIT */
    /* Parameters only: optimizer state, step count and loss scale start anew. Default false. */
    bool weights_only;
    /* [skip_pattern_count], shell patterns over tensor names, in which * matches dots too: such tensors, and their
     * optimizer state, are left as they are (with weights_only all optimizer state starts anew); each must match a tensor
     * of the session or of the checkpoint. Borrowed. Default NULL. */
    const char *const *skip_patterns;
    int32_t skip_pattern_count; /* default 0 */
} sherd_load;
#define SHERD_LOAD_INIT                                                                                                \
    { sizeof(sherd_load), false, NULL, 0 }

/* Restores parameters, optimizer state, step count and loss scale from `dir`: a checkpoint, or a folder of them (the
 * newest complete one). Whatever number of ranks, stage, replicas, gather, precision and state_dtype it was saved with:
 * each rank reads what it holds. Tensors go by name: all of the session's must be there in their shapes, and no others,
 * with the states of the same optimizer for those that are trained now; states of tensors that are frozen now are left
 * out. fp32 parameters and states come back bit by bit; into other types they are rounded. What it lacks of a loss scale
 * starts anew. Every block that is read is verified.
 * Collective; before the first step or between two. On success *note is the stored object, to be released with
 * sherd_note_free; NULL `note` is allowed.
 * Fails, on all ranks alike: STATE (a save is pending, too); DATA when there is none, or it does not fit (what is missing,
 * unknown, of another shape or without state, the first few of each); DATA, IO or MEMORY while it is read, and then
 * parameters are undefined, as after create: another one may be loaded; COMM and worse. */
SHERD_API sherd_status sherd_session_load(sherd_session *session, const char *dir, char **note);
/* The same of a part of it. With skip patterns the session must have parameters already (sherd_session_fill). Fails
 * also: CONFIG (a pattern that matches nothing, named). */
SHERD_API sherd_status sherd_session_load_with(sherd_session *session, const char *dir, const sherd_load *load,
                                               char **note);
SHERD_API void sherd_note_free(char *note);

/* What this rank has communicated since create. A unit with trainable and frozen tensors takes two gathers. */
typedef struct sherd_traffic {
    int64_t gather_count, gather_gradient_count, reduce_count, exchange_count;
    int64_t logical_bytes; /* what a copying backend would receive in gathers and reduces; exchanges are a few KiB */
    int64_t moved_bytes;   /* what was copied, or read in place, of that */
    int64_t reduce_replicas_count; /* sums over replicas; each is followed by a gather of gradients */
} sherd_traffic;
SHERD_API void sherd_session_traffic(const sherd_session *session, sherd_traffic *out);

#ifdef __cplusplus
}
#endif
#endif
