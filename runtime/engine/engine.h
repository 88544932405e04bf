/* The engine: one rank's memory and the executor of its step programs.
 *
 * It owns the arenas, knows where every tensor is at every moment, and runs instructions; it knows nothing of models,
 * jobs or files. COMPUTE instructions run at once, in order; GATHER, REDUCE and COPY instructions are submitted in
 * order and run as soon as what they wait for has happened, at the latest when a COMPUTE instruction waits for them.
 * FORWARD, RECOMPUTE and BACKWARD belong to the caller: the engine stops before each, lends a view, and goes on when
 * the caller says it is done. Threads: an engine belongs to one thread. */
#ifndef SHD_ENGINE_ENGINE_H
#define SHD_ENGINE_ENGINE_H

#include "optim/loss_scale.h"
#include "optim/optimizer.h"
#include "optim/rules.h"
#include "optim/schedule.h"
#include "optim/spans.h"
#include "optim/whole.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/link.h"
#include "runtime/device/device.h"
#include "runtime/device/pool.h"
#include "runtime/schedule/program.h"
#include "shard/plan.h"

#include <sherd/session.h>

typedef struct shd_engine shd_engine;

/* How far a rank is with a save. */
typedef enum shd_save_state {
    SHD_SAVE_NONE, /* nothing is to be saved */
    SHD_SAVE_WRITING,
    SHD_SAVE_ENDED /* all is written, or the rank has failed to */
} shd_save_state;

/* How SAVE and COMMIT reach what keeps checkpoints. A save begins and ends on all ranks between the same two runs. */
typedef struct shd_storage {
    void *user;
    /* Takes what this rank stores of `unit`, which does not change until `saved` says that it may: copied, encoded, or
     * given up. Returns at once. Where nothing is to be saved, or the unit was taken in an earlier run, it does
     * nothing, and `saved` says yes. */
    void (*save)(void *user, int32_t unit);
    /* Whether `save` would take it: whoever holds it elsewhere brings it here first. */
    bool (*wants)(void *user, int32_t unit);
    bool (*saved)(void *user, int32_t unit);
    shd_save_state (*state)(void *user);
    /* Collective, once every rank's state is ENDED: makes the checkpoint complete, or does away with it. Fails: what
     * ends the session; that a save has failed does not. */
    sherd_status (*commit)(void *user);
} shd_storage;

/* A device that a rank computes on. All is borrowed. */
typedef struct shd_engine_place {
    const shd_device_ops *ops;
    shd_device *device;
    shd_stream *streams[SHD_QUEUES];
    const shd_span_ops *spans;
    const shd_link_ops *link_ops;
    shd_link *link; /* its lanes' streams are those of GATHER and REDUCE; NULL: there is one rank */
} shd_engine_place;

enum { SHD_ENGINE_LATE_TERMS = 16 };

/* All pointers are borrowed for the engine's life. */
typedef struct shd_engine_config {
    const shd_plan *plan;
    const shd_program *programs[SHD_PROGRAM_KINDS]; /* by kind; EVALUATE may be NULL */
    shd_comm *comm;                                 /* its arenas are the plan's EXPORTED and HOST ones */
    shd_pool *pool;
    sherd_optimizer optimizer;
    const shd_tensor_rule *rules; /* by tensor; what `optimizer` says of tensors is not asked for */
    double clip;
    sherd_loss_scale loss_scale; /* used with fp16 parameters */
    bool skips_nonfinite;        /* else such a step fails */
    sherd_judge_fn judge;        /* may be NULL */
    void *judge_user;
    const shd_storage *storage;    /* NULL: SAVE and COMMIT do nothing */
    const shd_engine_place *place; /* NULL: the CPU; else the plan is one for devices */
} shd_engine_config;

/* What decides the coming steps besides parameters and optimizer state; the same on every rank. */
typedef struct shd_progress {
    int64_t update_count; /* updates so far: steps that were not skipped */
    shd_loss_scale loss_scale;
} shd_progress;

/* Allocates the private arena, on a device all arenas, and everything a step needs; later calls allocate nothing. Fails:
 * MEMORY, DEVICE. */
sherd_status shd_engine_create(const shd_engine_config *config, shd_engine **out);
/* Accepts NULL. */
void shd_engine_destroy(shd_engine *engine);

/* Where a run starts: no updates, and the loss scale at its initial value, or 1 where there is none. */
shd_progress shd_engine_start(const shd_engine *engine);
/* It stands at shd_engine_start from create on; every step moves it. */
void shd_engine_set_progress(shd_engine *engine, const shd_progress *progress);
void shd_engine_progress(const shd_engine *engine, shd_progress *out);

/* Starts a run of program `kind`; none may be running. `step`: completed steps (TRAIN). `target_count`: this rank's
 * counted targets. */
void shd_engine_begin(shd_engine *engine, shd_program_kind kind, int64_t step, int64_t target_count);

/* Runs until a FORWARD, RECOMPUTE or BACKWARD is due (*due is it; asking again gives the same) or the program is done
 * (*due is NULL). Fails: COMM and worse; NUMERIC when a step's verdict finds a number that is not finite, unless such
 * steps are skipped; with fp16 only at the least loss scale. After a failure only destroy is allowed. */
sherd_status shd_engine_advance(shd_engine *engine, const shd_instruction **due);

/* The FORWARD, RECOMPUTE or BACKWARD that comes next in the running program, without running anything; NULL when none
 * is left. */
const shd_instruction *shd_engine_next_compute(const shd_engine *engine);

/* Opens the due instruction: lends its memory. Borrowed until shd_engine_computed. */
void shd_engine_view(shd_engine *engine, sherd_view *view);
/* The due instruction is done: lets peers know, and lets queued work go on. */
sherd_status shd_engine_computed(shd_engine *engine);

/* Adds to the loss of the running program, exactly. */
void shd_engine_add_loss(shd_engine *engine, const double *terms, int64_t count);
/* The same for sum number `metric` below SHERD_METRICS. */
void shd_engine_add_metric(shd_engine *engine, int32_t metric, const double *terms, int64_t count);
/* On a device: adds terms to the loss (metric -1) or to sum number `metric`, which lie in pinned memory, are there when the
 * compute stream is past what it has been given, and stay till SHD_ENGINE_LATE_TERMS more such calls. Fails: as waits. */
sherd_status shd_engine_add_terms_later(shd_engine *engine, int32_t metric, const double *terms, int64_t count);
/* On a device: returns when `event` is reached, carrying on what peers may wait for. Fails: DEVICE, as shd_comm_pause. */
sherd_status shd_engine_await(shd_engine *engine, shd_event *event, const char *what);
/* On a device: what the host has set of parameters and states takes effect, masters and their 16-bit copies included; and
 * the other way round, the host sees what is there. Between runs. On the CPU both do nothing. Fails: DEVICE; the second
 * as waits. */
sherd_status shd_engine_take_values(shd_engine *engine);
sherd_status shd_engine_show_values(shd_engine *engine);
/* Adds to the flags that the next VERDICT of a step carries to all ranks. */
void shd_engine_raise(shd_engine *engine, uint32_t flags);
/* An evaluation learns its targets as it goes: this rank's count, set before the program's end. */
void shd_engine_set_targets(shd_engine *engine, int64_t count);

/* All units that SAVE has begun to take are with storage; on the CPU they are at once. Where a run has failed, too. Fails:
 * DEVICE, as shd_comm_pause, but for TIMEOUT. */
sherd_status shd_engine_finish_saves(shd_engine *engine);
/* What the last run has waited for a save, and what its commit took. */
double shd_engine_save_wait_ms(const shd_engine *engine);

/* What the last run of TRAIN (or, loss, targets and metrics alone, EVALUATE) found, and how long it took,
 * or has taken until it failed; `step` is left to the caller. */
void shd_engine_result(const shd_engine *engine, sherd_step_result *out);

/* The work of a rank up to the last step's verdict, as sherd_step_result.rank_step has it of all. */
double shd_engine_rank_step_ms(const shd_engine *engine, int32_t rank);

/* Where the first number of a step was that is not finite, for people: "first in rank 1's gradient of h.3, in
 * micro-step 0". */
void shd_nonfinite_describe(const shd_plan *plan, const sherd_step_result *result, char *out, size_t bytes);

/* Multiplies the schedule's learning rate by `factor` from the next step on; 1 from create on. */
void shd_engine_set_lr_factor(shd_engine *engine, double factor);

/* The plan's staging buffer, which is aligned to pages; NULL: there is none. */
void *shd_engine_staging(const shd_engine *engine);

/* A run of elements of one tensor that this rank stores, and where. */
typedef struct shd_slice {
    int32_t tensor;
    int64_t first, count; /* elements of the tensor, row-major */
    void *values;         /* [count] of `dtype`; of INT8 whole blocks, whose rest is zero. Of a device a mirror */
    sherd_dtype dtype;    /* FP32, but for states in INT8, and for frozen parameters of 16 bits, which have no master */
} shd_slice;

/* Visits the stored parts of every tensor's parameters (state_index -1) or optimizer state, of which whole tensors have
 * none here, tensor by tensor: with `shard_of` ≥ 0 the part that lies in that place's shards (the union over places is
 * every element once; this rank's own, or at stage 0 any), with -1 all that this rank holds as its own to set (its
 * shards; at stage 0 everything). Tensors without elements there are not visited. Stops at the first failure of
 * `visit`. */
sherd_status shd_engine_visit(shd_engine *engine, int32_t state_index, int32_t shard_of,
                              sherd_status (*visit)(void *user, const shd_slice *slice), void *user);
/* The same of state `state_index` of the whole tensors that the rank at `place` of the shard group owns: all values of
 * a state make one slice, whose `values` is NULL on other ranks. */
sherd_status shd_engine_visit_owned(shd_engine *engine, int32_t state_index, int32_t place,
                                    sherd_status (*visit)(void *user, const shd_slice *slice), void *user);

/* Makes the 16-bit copies of the masters that this rank holds as its own; to be called when those have been set, before
 * any rank starts PROLOGUE. Without masters, and on a device, it does nothing. */
void shd_engine_copy_masters(shd_engine *engine);

#endif
