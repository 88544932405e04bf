/* The plan: what lives where on one rank, for how long, and how many bytes it takes. Pure: no memory is touched here.
 *
 * Every unit's tensors lie in at most two flat groups, trainable and frozen. Inside a group each tensor starts at a
 * multiple of 16 elements, or of 256 where states are kept in blocks of INT8, which no two tensors share; a group is cut
 * into as many equal shards as a shard group has ranks (mesh.h: `split` of them), each a whole number of 256-element
 * blocks counted from the group's start, so that block borders never depend on the number of ranks. The shard of place g
 * is [g·shard_count, (g+1)·shard_count), in every replica. Padding (inside, and at the tail) holds zero in parameters,
 * gradients and state; it is never counted in norms and never saved.
 *
 * Each replica has the whole state; after the last micro-step of a step, replica r adds up part r of its shard's
 * gradient over all replicas, and copies the other parts.
 *
 * With one rank to split over nothing is gathered: every stage keeps its groups in full in PRIVATE memory, and the
 * residencies of stage 3 need no slot. Groups without elements have no buffers, units without elements neither
 * residencies nor slots.
 *
 * Parameters as they are gathered and read, gradients as ranks exchange them, and everything else may be of different
 * types (policy.parameter_dtype, policy.reduce_dtype, policy.state_dtype, fp32). With 16-bit parameters, trainable
 * groups have fp32 masters besides, which updates change; frozen groups are kept in 16 bits alone. With 16-bit exchange,
 * the caller writes a gradient in fp32 into a private slot, and ROUND puts it, rounded, into the slot that peers read.
 *
 * Time inside one micro-step is counted in events: event e in [0, U) is the forward of unit e, event U + i the backward
 * of unit U-1-i. An evaluation has the first U events only.
 *
 * All ranks' plans differ only in `rank`; offsets of exported and host buffers are the same on every rank. */
#ifndef SHD_SHARD_PLAN_H
#define SHD_SHARD_PLAN_H

#include "runtime/base/dtype.h"
#include "runtime/base/mesh.h"

#include <sherd/model.h>
#include <sherd/options.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    SHD_BLOCK_COUNT = 256,
    SHD_ALIGN_COUNT = 16,
    SHD_ALIGN_BYTES = 64,
    SHD_FLOAT_BYTES = 4, /* masters, accumulators, gradients as callers write them: fp32 in every precision */
    SHD_MAX_STATES = 2,
    SHD_MAX_OWNED_STATES = 3,
    SHD_MAX_RANKS = 1 << 16,
    SHD_MAX_UNITS = 1 << 20,
    SHD_MAX_GRADIENT_SLOTS = 1024
};

/* What the optimizer needs to update one tensor. */
typedef struct shd_demand {
    bool whole;                                 /* all of its gradient at once; false: the rest has no meaning */
    int64_t state_counts[SHD_MAX_OWNED_STATES]; /* fp32 values of each state; 0: it has none */
    int64_t work_bytes;                         /* work memory */
} shd_demand;

/* What the plan is made for. */
typedef struct shd_policy {
    int32_t rank, world_size;
    int32_t replicas;    /* divides world_size; 1 at stage 0; 0 is taken for 1 */
    int32_t stage;       /* 0 … 3 */
    bool gather_shared;  /* gathered parameters live once per shard group (not at stage 0, not with one rank in it) */
    int32_t prefetch;    /* ≥ 0; stage 3 only */
    int32_t state_count; /* optimizer state values per trainable element: 0 … SHD_MAX_STATES */
    sherd_dtype state_dtype;     /* of them: FP32 or INT8 */
    sherd_dtype parameter_dtype; /* of parameters as they are gathered and read */
    sherd_dtype reduce_dtype;    /* of gradients as ranks exchange them: FP32 or BF16 */
    sherd_recompute recompute;   /* what units but the last share memory for, and make again in backward */
    int32_t gradient_slots; /* ≥ 1: events from a gradient's last write to the reuse of its memory; 3 hides nearly all
                               waiting for peers, 1 is enough with one rank */
    const shd_demand
        *demands; /* [tensor_count]; NULL: all is updated element by element. Borrowed while a plan is made;
                                  the plan's own policy has NULL */
    bool owners_read_parameters; /* an update of a whole tensor needs all of its fp32 parameters too */
    int64_t staging_bytes;       /* in which checkpoints are encoded and decoded; 0: none */
    bool async_saves;            /* steps save while they run, when one is asked for */
    /* Ranks compute on devices: PRIVATE and EXPORTED are memory of theirs, nothing of it is read by peers in place, and
     * what the host sets, stores and is told has mirrors in PINNED. Gathers are not shared, and no tensor is whole. */
    bool on_device;
} shd_policy;

/* Where a buffer lives. */
typedef enum shd_place {
    SHD_PLACE_PRIVATE,  /* this rank's, nobody else sees it */
    SHD_PLACE_EXPORTED, /* this rank's, at the same offset on every rank; the others may read it */
    SHD_PLACE_HOST,     /* one for all ranks of a shard group, written by shards; each rank is charged its shard */
    SHD_PLACE_PINNED,   /* this rank's, of the host, where its device copies to and from; not charged */
    SHD_PLACES
} shd_place;

#define SHD_CATEGORY_MAP(X)                                                                                            \
    X(PARAMETERS, "parameters")                                                                                        \
    X(MASTER, "master")                                                                                                \
    X(GRADIENTS, "gradients")                                                                                          \
    X(OPTIMIZER, "optimizer")                                                                                          \
    X(GATHER_BUFFERS, "gather_buffers")                                                                                \
    X(REDUCE_BUFFERS, "reduce_buffers")                                                                                \
    X(ACTIVATIONS, "activations")                                                                                      \
    X(LOGITS, "logits")                                                                                                \
    X(CHECKPOINT, "checkpoint")
typedef enum shd_category {
#define SHD_CATEGORY_ENUM(name, text) SHD_CATEGORY_##name,
    SHD_CATEGORY_MAP(SHD_CATEGORY_ENUM)
#undef SHD_CATEGORY_ENUM
        SHD_CATEGORIES
} shd_category;
const char *shd_category_text(shd_category category);

/* What a buffer is for. */
typedef enum shd_buffer_kind {
    SHD_BUFFER_PARAMETERS,    /* a group in full, persistent (all but stage 3 with copy; HOST when gather is shared) */
    SHD_BUFFER_SHARD,         /* a group's own shard (stage 3, copy) */
    SHD_BUFFER_GATHER_SLOT,   /* holds gathered units in turn (stage 3, copy) */
    SHD_BUFFER_MASTER,        /* fp32 parameters of a trainable group whose others are 16-bit: as a STATE */
    SHD_BUFFER_GRADIENT_SLOT, /* holds units' micro-batch gradients in turn, fp32, as the caller writes them */
    SHD_BUFFER_ROUNDED_SLOT,  /* the same in a 16-bit reduce_dtype, as peers read them */
    SHD_BUFFER_ACCUMULATOR,   /* a group's reduced gradient: own shard, at stage 0 the group in full */
    SHD_BUFFER_STATE,         /* one optimizer state of a group: own shard, at stage 0 in full */
    SHD_BUFFER_OUTPUT,        /* what a unit leaves to the next one */
    SHD_BUFFER_ACTIVATIONS,   /* what a unit leaves to its backward */
    SHD_BUFFER_REMADE,        /* the part of it that is cheap to make again, where it is kept all the same */
    SHD_BUFFER_RECOMPUTED,    /* what is recomputed of all units, one after the other */
    SHD_BUFFER_SCRATCH,
    SHD_BUFFER_LOGITS,
    SHD_BUFFER_OWNED_STATE, /* states of the tensors that this rank owns */
    SHD_BUFFER_OWNER_WORK,  /* work memory of their updates */
    SHD_BUFFER_PARTIALS,    /* work memory of norms: a double for every block of the largest trainable part */
    SHD_BUFFER_STAGING,     /* work memory of saving and loading; it begins its arena, so that it begins a page too */
    SHD_BUFFER_RECEIVED,    /* on devices: what peers have sent of gradients, before it is added up in order */
    SHD_BUFFER_MIRROR,      /* on devices: what the host sets and stores of another buffer */
    SHD_BUFFER_SUMS,        /* on devices: sums of squares, and where numbers were not finite */
    SHD_BUFFER_TOLD,        /* the same in host memory */
    SHD_BUFFER_KINDS
} shd_buffer_kind;
const char *shd_buffer_kind_text(shd_buffer_kind kind);

/* A piece of memory that is allocated once. */
typedef struct shd_buffer {
    shd_buffer_kind kind;
    shd_category category;
    shd_place place;
    sherd_dtype dtype; /* of its elements; FP32, and without meaning, for the caller's work memory and PARTIALS */
    /* The group it belongs to; the unit of outputs and activations; a slot's number; a mirror's buffer; else -1. */
    int32_t owner_index;
    int32_t mirror_buffer; /* 1 + the MIRROR of this buffer; 0: none */
    int32_t state_index;   /* of a STATE buffer, else -1 */
    int64_t offset_bytes;  /* in its arena (one arena per place), a multiple of SHD_ALIGN_BYTES */
    int64_t bytes;         /* in full, a multiple of SHD_ALIGN_BYTES */
    int64_t charged_bytes; /* what this rank pays: `bytes`, for HOST its shard */
    bool transient;        /* a slot: holds one tenant after another within a step */
} shd_buffer;

/* One flat group. Counts are elements. Buffer indices are -1 where there is none. */
typedef struct shd_group {
    int32_t unit_index;
    bool trainable;
    bool has_whole;       /* some of its tensors are whole; they lie behind the others */
    int64_t used_count;   /* up to the end of the last tensor, inner padding included */
    int64_t stated_count; /* elements that have states: padded_count; with whole tensors the blocks of the others */
    int64_t shard_count;  /* per rank: the blocks of used_count, ÷ split, rounded up; 0 only without elements */
    int64_t part_count;   /* per replica: the blocks of shard_count, ÷ replicas, rounded up; see shd_part_of */
    int64_t padded_count; /* shard_count × split */
    int32_t parameters_buffer; /* PARAMETERS; -1 at stage 3 with copy (then see the unit's gather slot) */
    int32_t shard_buffer;      /* SHARD; -1 elsewhere: the own shard lies inside parameters_buffer */
    int32_t master_buffer;     /* MASTER; -1: the values above are all there is */
    int32_t accumulator_buffer;
    int32_t state_buffers[SHD_MAX_STATES];
} shd_group;

/* Where a tensor lies. Zero-element tensors have a place too. */
typedef struct shd_tensor_place {
    int32_t unit_index, group_index;
    int64_t offset_count; /* from the group's start */
    int64_t element_count;
    /* A whole tensor is updated by one rank, its owner, which keeps the states; the step is written to the tensor's place
     * in the owner's gradient slot, and each rank takes it off what it has of the parameters. */
    bool whole;
    int32_t owner;                               /* its place; -1: none */
    int64_t state_counts[SHD_MAX_OWNED_STATES];  /* values of each state */
    int64_t state_offsets[SHD_MAX_OWNED_STATES]; /* in the owner's OWNED_STATE buffer, in values */
} shd_tensor_place;

/* A unit's stay in gathered form or of its gradient, in events of one micro-step. */
typedef struct shd_residency {
    int32_t unit_index;
    int32_t
        slot_buffer; /* GATHER_SLOT, GRADIENT_SLOT or ROUNDED_SLOT; -1 for gathers that need none (shared, or one rank) */
    int32_t issue_event; /* GATHER is issued before this event; for gradients = first_event */
    int32_t first_event; /* first reader (first writer, for gradients) */
    int32_t last_event;  /* last reader: RELEASE follows (last writer: REDUCE follows) */
} shd_residency;

/* A unit's part. A group index is -1 where the unit has no such tensors. In a slot the trainable group lies first. */
typedef struct shd_unit_plan {
    int32_t trainable_group, frozen_group;
    int32_t first_tensor, tensor_count;
    const int32_t *shares;
    int32_t share_count;
    int32_t output_buffer;                  /* -1: none */
    int32_t activation_buffer;              /* -1: none; RECOMPUTED when they are made again, from its start on */
    int32_t remade_buffer;                  /* likewise */
    int64_t remade_first_byte;              /* of remade_buffer: behind activations that share it */
    bool recomputed;                        /* some of this is made again right before its backward */
    int64_t output_bytes, activation_bytes; /* as described; the buffers are rounded up */
    int64_t remade_bytes;
    int64_t gathered_bytes; /* both groups in full, in parameter_dtype */
    int64_t gradient_bytes; /* the trainable group in full, in fp32; 0: nothing to reduce */
} shd_unit_plan;

typedef struct shd_plan {
    shd_policy policy;
    int32_t unit_count, tensor_count, group_count, buffer_count;
    char **unit_names, **tensor_names;
    sherd_tensor *tensors; /* as described, names owned by the plan */
    shd_unit_plan *units;
    shd_group *groups;
    shd_tensor_place *places;
    shd_buffer *buffers;
    int32_t *shares;        /* backs shd_unit_plan.shares */
    shd_residency *gathers; /* stage 3: in order of issue_event, then first_event; else none */
    int32_t gather_count;
    shd_residency *gradients; /* every stage: units with something to reduce, in order of last_event */
    int32_t gradient_count;
    /* [gradient_count] with a 16-bit reduce_dtype, else NULL: entry i is gradients[i] in rounded form, written in its
     * last event. */
    shd_residency *rounded;
    int32_t scratch_buffer, logits_buffer; /* -1: none */
    int32_t partials_buffer;               /* -1: nothing is trained */
    int32_t staging_buffer;                /* -1: none */
    int32_t received_buffer;               /* -1: nothing is received */
    int32_t sums_buffer, told_buffer;      /* shd_plan_sums_bytes; -1: not on a device, or nothing is trained */
    bool has_owners;                       /* there are whole tensors */
    int32_t owned_state_buffer;            /* -1: none have states */
    int32_t owner_work_buffer;             /* -1: none */
    int64_t owned_count;                   /* values of states that the rank with most of them owns */
    int64_t owner_work_bytes;
    int64_t scratch_bytes, logits_bytes;    /* as described; the buffers are rounded up */
    int64_t arena_bytes[SHD_PLACES];        /* sizes to allocate; HOST: the whole of it */
    int64_t category_bytes[SHD_CATEGORIES]; /* charged to this rank */
    int64_t allocated_bytes;                /* their sum */
    int64_t parameter_count;                /* elements of all tensors, each once, padding not counted */
    int64_t trainable_count;
    int64_t model_state_bytes; /* the papers' accounting, below */
} shd_plan;

/* Where peers read gradient `index` of plan->gradients: its rounded form, if there is one. */
static inline const shd_residency *shd_exchanged_gradient(const shd_plan *plan, int32_t index) {
    return plan->rounded ? &plan->rounded[index] : &plan->gradients[index];
}

/* model_state_bytes is what the papers count for one rank (Rajbhandari et al., ZeRO, 2020, section 3.1), padding
 * included: with Ψ = Σ padded_count of the trainable groups, F = the same of the frozen ones, k = state_count, N = split,
 * and p bytes for a parameter and for a gradient, o for what the optimizer keeps. fp32: p = 4, o = 4k.
 * Mixed precision: p = 2, o = 4 + 4k, the master among it. With states in INT8, 260/256 takes the place of 4 in 4k.
 * Elements of whole tensors have none of these k; what their owners keep comes on top, 4 bytes a value, as much as the
 * rank with most of it has.
 *
 *                                      AdamW, fp32       AdamW, mixed
 *   stage 0: (p + p + o)·Ψ + pF        16Ψ               16Ψ
 *   stage 1: (p + p)·Ψ + o·Ψ/N + pF    8Ψ + 8Ψ/N         4Ψ + 12Ψ/N
 *   stage 2: p·Ψ + (p + o)·Ψ/N + pF    4Ψ + 12Ψ/N        2Ψ + 14Ψ/N
 *   stage 3: (p + p + o)·Ψ/N + pF/N    16Ψ/N             16Ψ/N
 *
 * allocated_bytes says what is really taken: reduced gradients are fp32, the fold in rank order keeps one shard of them
 * at stage 1 too, shared gathers keep parameters once per host, and slots, activations and work memory come on top. */

/* Where the plan's rank is in the mesh. */
static inline shd_mesh shd_policy_mesh(const shd_policy *policy) {
    return (shd_mesh){.rank = policy->rank,
                      .world_size = policy->world_size,
                      .replicas = policy->replicas > 0 ? policy->replicas : 1};
}
/* How many ranks one copy of the state is split over, and which of them this one is. */
static inline int32_t shd_policy_split(const shd_policy *policy) {
    shd_mesh mesh = shd_policy_mesh(policy);
    return shd_mesh_split(&mesh);
}
static inline int32_t shd_policy_place(const shd_policy *policy) {
    shd_mesh mesh = shd_policy_mesh(policy);
    return shd_mesh_place(&mesh);
}

/* The part of its shard of `group` that this rank adds up over the replicas; all of it with one replica. */
static inline shd_part shd_policy_part(const shd_policy *policy, const shd_group *group) {
    shd_mesh mesh = shd_policy_mesh(policy);
    return shd_part_of(group->shard_count, group->part_count, shd_mesh_replica(&mesh));
}

/* Checks a description by itself. Fails: ARGUMENT (the tensor or unit is named), MEMORY (a table of names). */
sherd_status shd_model_check(const sherd_model *model);

/* Makes the plan. `model->size` must be right.
 * Owns: copies what it needs of `model`; destroy *out with shd_plan_destroy.
 * Fails: ARGUMENT (a description that makes no sense: the tensor or unit is named), CONFIG (a policy value), MEMORY. */
sherd_status shd_plan_create(const sherd_model *model, const shd_policy *policy, shd_plan **out);
/* Accepts NULL. */
void shd_plan_destroy(shd_plan *plan);

/* Assigns memory to tenants that come and go: tenant i occupies [first[i], last[i]] (events, inclusive) and needs
 * bytes[i]. slot_of[i] gets a slot number from 0; no two tenants of a slot overlap; slot_bytes[s] the largest tenant of
 * s. Among the free slots it takes the one that must grow least, then the one free longest, then the lowest; without a
 * free one it opens another. Tenants come sorted by `first`. Returns the number of slots (≤ count), the largest number
 * of tenants present at one event. The arrays have room for `count` entries. */
int32_t shd_assign_slots(int32_t count, const int32_t *first, const int32_t *last, const int64_t *bytes,
                         int32_t *slot_of, int64_t *slot_bytes);

/* The part of tensor `tensor` that lies in elements [first, first + count) of its group: true with the tensor's own
 * element range in *tensor_first, *tensor_count when it is not empty. */
bool shd_plan_intersect(const shd_plan *plan, int32_t tensor, int64_t first, int64_t count, int64_t *tensor_first,
                        int64_t *tensor_count);

/* SUMS: two exact sums (base/exact_sum.h), of gradients and of parameters, then for each gradient of plan->gradients
 * SHD_SUMS_STEPS words, one for each of the first micro-steps, the last for all that follow: bit g is set when the
 * contribution of place g held a number that is not finite. */
enum { SHD_SUMS_STEPS = 8 };
int64_t shd_plan_sums_bytes(const shd_plan *plan);

/* Where a buffer's mirror begins: what the rank itself holds of it (engine.h). */
int64_t shd_plan_mirrored_first(const shd_plan *plan, const shd_buffer *buffer);

/* Elements of `group` of which this rank has states: of its shard, at stage 0 of the whole group, always the first ones.
 * No rank has more than this; ranks behind the last of them have none that mean anything. */
int64_t shd_stated_count(const shd_plan *plan, const shd_group *group);

/* A 64-bit hash (XXH3) of everything in the plan but the rank: description, policy, layout, buffers, residencies. */
uint64_t shd_plan_hash(const shd_plan *plan);

#endif
