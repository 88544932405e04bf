/* The step program: the flat list of instructions that one rank executes for a step or an evaluation.
 *
 * Four queues run instructions in the order of the list: COMPUTE, GATHER, REDUCE and COPY. Across queues of a rank only
 * `waits` order instructions; across ranks only counters do: monotonic, one per (rank, unit, kind), raised by `signals`
 * when an instruction is done and awaited by `awaits` before one starts, on all ranks of the kind's scope: of the shard
 * group, or of the same place in all replicas. COUNT and VERDICT also order: each ends after every rank has begun it. A
 * run starts on a rank when the COMPUTE instructions of its last run are done there; by then all others are too.
 * Nothing else may be relied on: the verifier checks that this suffices, see verify.h.
 *
 *   counter     raised by rank r when                                awaited by
 *   UPDATED     its UPDATE u is done                                 GATHER u; the next DIRECT that writes the slot
 *                                                                    which UPDATE u has read
 *   PUBLISHED   its gradient of u, and its last read of u's          REDUCE u
 *               parameters in the micro-batch, are done (BACKWARD u,
 *               with a 16-bit reduce_dtype ROUND u)
 *   CONSUMED    its REDUCE u has read all peers' gradients of u      the next writer of that memory, GATHER_GRADIENT u
 *   REDUCED     the last REDUCE u of a step is done                  REDUCE_REPLICAS u of the replicas
 *   SUMMED      its REDUCE_REPLICAS u is done                        GATHER_GRADIENT u of the replicas
 *   DIRECTED    its DIRECT u is done                                 UPDATE u
 *
 * No counter guards parameters against UPDATE u: it follows REDUCE u of the last micro-step, so every rank of the shard
 * group has published. None guards accumulators that peers read (stage 0, replicas) against the next run: COUNT ends
 * after every rank has finished the last one. docs/PROGRAM.md tells the whole story. */
#ifndef SHD_SCHEDULE_PROGRAM_H
#define SHD_SCHEDULE_PROGRAM_H

#include "shard/plan.h"

#include <sherd/status.h>
#include <stdint.h>
#include <stdio.h>

/* X(NAME, text) */
#define SHD_OP_MAP(X)                                                                                                  \
    X(COUNT, "COUNT")         /* REDUCE queue: sums the target counts of all ranks */                                  \
    X(GATHER, "GATHER")       /* GATHER queue: makes unit u readable in full */                                        \
    X(WAIT, "WAIT")           /* COMPUTE queue: orders what follows after `waits` */                                   \
    X(FORWARD, "FORWARD")     /* COMPUTE: the model's forward of u */                                                  \
    X(RECOMPUTE, "RECOMPUTE") /* COMPUTE: the model's forward of u once more, for its backward */                      \
    X(BACKWARD, "BACKWARD")   /* COMPUTE: the model's backward of u */                                                 \
    X(ROUND, "ROUND")         /* COMPUTE: the gradient of u, rounded to reduce_dtype, for peers to read */             \
    X(RELEASE, "RELEASE")     /* COMPUTE: gathered parameters of u may be overwritten */                               \
    X(REDUCE, "REDUCE")       /* REDUCE: adds all ranks' gradients of u, in rank order, to the owner's accumulator */  \
    X(REDUCE_REPLICAS, "REDUCE_REPLICAS") /* REDUCE: adds up the own part of the shard over all replicas, in order */  \
    X(NORM, "NORM")                       /* COMPUTE: adds the squares of what this rank has added up of u */          \
    X(GATHER_GRADIENT,                                                                                                 \
      "GATHER_GRADIENT")  /* what others have added up: GATHER, stage 0, u's gradient in full;         \
                                             REDUCE, with replicas, the other parts of the own shard */               \
    X(VERDICT, "VERDICT") /* COMPUTE: loss, norm, flags, peak bytes: one exchange over all ranks */                    \
    X(DIRECT, "DIRECT")   /* COMPUTE: the steps of the whole tensors of u that this rank owns */                       \
    X(UPDATE, "UPDATE")   /* COMPUTE: the optimizer on what this rank updates of u */                                  \
    X(SAVE, "SAVE")       /* COPY: what this rank stores of u, into the checkpoint that is asked for */                \
    X(COMMIT, "COMMIT")   /* COMPUTE: makes that checkpoint complete, when every rank has written */
typedef enum shd_op {
#define SHD_OP_ENUM(name, text) SHD_OP_##name,
    SHD_OP_MAP(SHD_OP_ENUM)
#undef SHD_OP_ENUM
        SHD_OPS
} shd_op;
const char *shd_op_text(shd_op op);

typedef enum shd_queue_id {
    SHD_QUEUE_COMPUTE,
    SHD_QUEUE_GATHER,
    SHD_QUEUE_REDUCE,
    SHD_QUEUE_COPY,
    SHD_QUEUES
} shd_queue_id;
const char *shd_queue_text(shd_queue_id queue);

typedef enum shd_counter {
    SHD_COUNTER_UPDATED,
    SHD_COUNTER_PUBLISHED,
    SHD_COUNTER_CONSUMED,
    SHD_COUNTER_REDUCED,
    SHD_COUNTER_SUMMED,
    SHD_COUNTER_DIRECTED,
    SHD_COUNTERS
} shd_counter;
const char *shd_counter_text(shd_counter counter);
/* Who awaits counters of this kind: GROUP or REPLICAS. */
shd_scope shd_counter_scope(shd_counter counter);

/* Raises this rank's counter (kind, unit) by one. */
typedef struct shd_signal {
    shd_counter counter;
    int32_t unit_index;
} shd_signal;

/* Holds until the counter of every rank in its scope has reached base + target, base being what it was when the program
 * began.
 * target ≤ 0 speaks of earlier runs of the program. */
typedef struct shd_await {
    shd_counter counter;
    int32_t unit_index;
    int32_t target;
} shd_await;

typedef enum shd_access_mode {
    SHD_ACCESS_READ,
    SHD_ACCESS_WRITE,
    SHD_ACCESS_ACQUIRE, /* makes memory that others wrote readable to this rank (a gather without a copy) */
    SHD_ACCESS_DROP     /* ends this rank's reading: contents are gone for it */
} shd_access_mode;

/* Bytes of a buffer that an instruction touches. */
typedef struct shd_access {
    shd_access_mode mode;
    int32_t buffer_index;           /* in plan->buffers */
    shd_scope scope;                /* EXPORTED buffers: a range of the buffer of each of these ranks; else OWN */
    int32_t peer;                   /* 1 + the only rank of the scope that is meant; 0: all of them */
    int64_t first_byte, byte_count; /* from the buffer's start */
    int64_t stride_bytes;           /* the range of the i-th rank of the scope begins i strides later */
    int64_t end_byte;               /* ranges are cut here; 0: they are all whole */
} shd_access;

/* The range of the i-th rank of its scope, in bytes; it may be empty. */
static inline shd_part shd_access_range(const shd_access *access, int32_t i) {
    int64_t first = access->first_byte + i * access->stride_bytes, end = first + access->byte_count;
    if (access->end_byte > 0 && end > access->end_byte) end = access->end_byte;
    return (shd_part){.first = first < end ? first : end, .count = first < end ? end - first : 0};
}

/* Runs [first, first + count) into the program's tables of waits, awaits, signals and accesses. */
typedef struct shd_run {
    int32_t first, count;
} shd_run;

typedef struct shd_instruction {
    shd_op op;
    shd_queue_id queue;
    int32_t unit_index; /* -1: none */
    int32_t micro_step; /* -1: outside micro-steps */
    int32_t residency;  /* GATHER, WAIT, RELEASE, FORWARD, RECOMPUTE, BACKWARD: the unit's own in plan->gathers; ROUND,
                           REDUCE: in plan->gradients; -1: none */
    bool first_reduce;  /* REDUCE: sets the accumulator instead of adding to it */
    int64_t bytes;      /* collectives: logical bytes received by this rank, 0 for others */
    shd_run waits;      /* indices of earlier instructions of other queues that must be done */
    shd_run awaits, signals, accesses;
} shd_instruction;

typedef enum shd_program_kind {
    SHD_PROGRAM_TRAIN,
    SHD_PROGRAM_EVALUATE,
    SHD_PROGRAM_PROLOGUE,
    SHD_PROGRAM_SAVE,
    SHD_PROGRAM_KINDS
} shd_program_kind;

typedef struct shd_program {
    shd_program_kind kind;
    int32_t micro_steps;
    bool late_updates; /* UPDATE follows VERDICT, and asks it */
    int32_t instruction_count, wait_count, await_count, signal_count, access_count;
    shd_instruction *instructions;
    int32_t *waits;
    shd_await *awaits;
    shd_signal *signals;
    shd_access *accesses;
    int32_t *raised; /* [SHD_COUNTERS][unit_count]: how often one run raises each counter of this rank */
} shd_program;

/* Compiles plan + policy into the program of plan->policy.rank. The same call on every rank gives programs that fit
 * together.
 *
 * TRAIN: COUNT; `micro_steps` ≥ 1 times the events of the plan, the last time with the sums over the replicas; NORM of
 * every unit; VERDICT. UPDATE follows VERDICT with `late` (gradients are clipped, or a step may be skipped), with
 * whole tensors, and in fp16, whose steps may be skipped in any case; else UPDATE u follows NORM u inside backward, and
 * all come before VERDICT.
 * EVALUATE: forward only, `micro_steps` ≥ 1 times, then VERDICT.
 * PROLOGUE: run once after fill or load, when every rank has set its shards. `micro_steps` does not matter to it.
 * SAVE: SAVE of every unit, then COMMIT: a save that is waited for, between steps. The same holds of `micro_steps`.
 *
 * With policy.async_saves TRAIN begins with SAVE of every unit, in the order of their updates, and ends with COMMIT. In
 * a run without a save to be made they do nothing. What SAVE u reads no other rank writes, so that its waits suffice:
 * UPDATE u, and DIRECT u, wait for it, COMMIT for those of units that have no update.
 *
 * Parameters become readable
 *   at stage 0, and split over one rank   from the start; there is no GATHER
 *   at stages 1 and 2, shared       by a GATHER of each unit before its first forward of a run
 *   at stages 1 and 2, copy         by a GATHER of each trainable group after its UPDATE, so that a run begins and ends
 *                                   with all in place; PROLOGUE gathers every unit, frozen groups included
 *   at stage 3                      by a GATHER for each residency of the plan, in the plan's order
 *
 * Fails: ARGUMENT, MEMORY. Destroy *out with shd_program_destroy. */
sherd_status shd_program_compile(const shd_plan *plan, shd_program_kind kind, int32_t micro_steps, bool late,
                                 shd_program **out);
/* Accepts NULL. */
void shd_program_destroy(shd_program *program);

/* One line per instruction: index, queue, op, unit, micro-step, bytes, waits, awaits, signals. */
void shd_program_print(const shd_program *program, const shd_plan *plan, FILE *out);

/* A 64-bit hash (XXH3) of the instructions without their accesses; the same on every rank of a job. */
uint64_t shd_program_hash(const shd_program *program);

#endif
