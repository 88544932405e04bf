/* Buffers: every piece of memory of a rank, its place by stage, and what it costs.
 *
 *                    stage 0           1, 2 copy         3 copy            1-3 shared        one rank
 *   parameters       PRIVATE, full     EXPORTED, full    EXPORTED, shard   HOST, full        PRIVATE, full
 *   gather slots     -                 -                 PRIVATE           -                 -
 *   masters          PRIVATE, full     PRIVATE, shard    PRIVATE, shard    PRIVATE, shard    PRIVATE, full = shard
 *   gradient slots   EXPORTED          EXPORTED          EXPORTED          EXPORTED          PRIVATE
 *   accumulator      EXPORTED, full    PRIVATE, shard    PRIVATE, shard    PRIVATE, shard    PRIVATE, full = shard
 *   states           PRIVATE, full     PRIVATE, shard    PRIVATE, shard    PRIVATE, shard    PRIVATE, full = shard
 *
 * Masters are there when parameters are 16-bit. With a 16-bit reduce_dtype gradient slots are PRIVATE, and rounded slots
 * are where they would be. "One rank": a shard group of one, whose shard is the whole group. With replicas accumulators
 * are EXPORTED, since parts of them are added up over the replicas. Work memory is PRIVATE; that of checkpoints is the
 * first there, so that it is aligned to pages, as memory is mapped.
 *
 * On devices what is EXPORTED lies in the device's memory like the rest: links move it, nobody reads it in place. Work
 * memory of checkpoints is PINNED there, as are mirrors of masters, states and of parameters without masters.
 *
 * With several ranks, what owners of whole tensors read of others is EXPORTED: accumulators of groups that have such, and
 * if parameters are read masters too; and so are gradient slots, where they leave steps. What owners keep is PRIVATE. */
#include "shard/parts.h"

#include "runtime/base/arith.h"
#include "runtime/base/exact_sum.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <stdlib.h>

static sherd_status add_buffer(shd_plan *plan, shd_buffer buffer, int32_t *index) {
    if (buffer.bytes == 0) return SHERD_OK;
    buffer.bytes = shd_round_up(buffer.bytes, SHD_ALIGN_BYTES);
    buffer.charged_bytes = buffer.place == SHD_PLACE_HOST     ? buffer.bytes / shd_policy_split(&plan->policy)
                           : buffer.place == SHD_PLACE_PINNED ? 0
                                                              : buffer.bytes;
    buffer.offset_bytes = plan->arena_bytes[buffer.place];
    if (!shd_add_checked(buffer.offset_bytes, buffer.bytes, &plan->arena_bytes[buffer.place]) ||
        !shd_add_checked(plan->allocated_bytes, buffer.charged_bytes, &plan->allocated_bytes))
        return shd_fail(SHERD_ARGUMENT, "the model needs more than 2^63 bytes on one rank");
    plan->category_bytes[buffer.category] += buffer.charged_bytes;
    *index = plan->buffer_count++;
    plan->buffers[*index] = buffer;
    return SHERD_OK;
}

static sherd_status add_parameters(shd_plan *plan, int32_t g) {
    const shd_policy *policy = &plan->policy;
    shd_group *group = &plan->groups[g];
    sherd_dtype dtype = policy->parameter_dtype;
    if (shd_policy_copies(policy))
        return add_buffer(plan,
                          (shd_buffer){.kind = SHD_BUFFER_SHARD,
                                       .category = dtype == SHERD_FP32 ? SHD_CATEGORY_MASTER : SHD_CATEGORY_PARAMETERS,
                                       .place = SHD_PLACE_EXPORTED,
                                       .dtype = dtype,
                                       .owner_index = g,
                                       .state_index = -1,
                                       .bytes = group->shard_count * shd_dtype_bytes(dtype)},
                          &group->shard_buffer);
    shd_place place = policy->gather_shared                                 ? SHD_PLACE_HOST
                      : policy->stage == 0 || shd_policy_split(policy) == 1 ? SHD_PLACE_PRIVATE
                                                                            : SHD_PLACE_EXPORTED;
    return add_buffer(plan,
                      (shd_buffer){.kind = SHD_BUFFER_PARAMETERS,
                                   .category = SHD_CATEGORY_PARAMETERS,
                                   .place = place,
                                   .dtype = dtype,
                                   .owner_index = g,
                                   .state_index = -1,
                                   .bytes = group->padded_count * shd_dtype_bytes(dtype)},
                      &group->parameters_buffer);
}

/* Elements that this rank updates. */
static int64_t own_count(const shd_plan *plan, const shd_group *group) {
    return plan->policy.stage == 0 ? group->padded_count : group->shard_count;
}

/* Whether the group holds whole tensors, which may be other ranks'. */
static bool is_read_by_owners(const shd_plan *plan, const shd_group *group) {
    return shd_policy_split(&plan->policy) > 1 && group->has_whole;
}

static sherd_status add_master(shd_plan *plan, int32_t g) {
    shd_group *group = &plan->groups[g];
    bool shared = plan->policy.stage > 0 && plan->policy.owners_read_parameters && is_read_by_owners(plan, group);
    if (plan->policy.parameter_dtype == SHERD_FP32) return SHERD_OK;
    return add_buffer(plan,
                      (shd_buffer){.kind = SHD_BUFFER_MASTER,
                                   .category = SHD_CATEGORY_MASTER,
                                   .place = shared ? SHD_PLACE_EXPORTED : SHD_PLACE_PRIVATE,
                                   .owner_index = g,
                                   .state_index = -1,
                                   .bytes = own_count(plan, group) * SHD_FLOAT_BYTES},
                      &group->master_buffer);
}

static sherd_status add_accumulator(shd_plan *plan, int32_t g) {
    const shd_policy *policy = &plan->policy;
    shd_group *group = &plan->groups[g];
    bool shared =
        (policy->stage == 0 ? policy->world_size > 1 : policy->replicas > 1) || is_read_by_owners(plan, group);
    return add_buffer(plan,
                      (shd_buffer){.kind = SHD_BUFFER_ACCUMULATOR,
                                   .category = SHD_CATEGORY_GRADIENTS,
                                   .place = shared ? SHD_PLACE_EXPORTED : SHD_PLACE_PRIVATE,
                                   .owner_index = g,
                                   .state_index = -1,
                                   .bytes = own_count(plan, group) * SHD_FLOAT_BYTES},
                      &group->accumulator_buffer);
}

static sherd_status add_state(shd_plan *plan, int32_t g, int32_t state) {
    shd_group *group = &plan->groups[g];
    return add_buffer(plan,
                      (shd_buffer){.kind = SHD_BUFFER_STATE,
                                   .category = SHD_CATEGORY_OPTIMIZER,
                                   .place = SHD_PLACE_PRIVATE,
                                   .dtype = plan->policy.state_dtype,
                                   .owner_index = g,
                                   .state_index = state,
                                   .bytes = shd_span_bytes(plan->policy.state_dtype, shd_stated_count(plan, group))},
                      &group->state_buffers[state]);
}

/* The caller's work memory, and that of norms and checkpoints. */
static sherd_status add_work(shd_plan *plan, shd_buffer_kind kind, shd_category category, int32_t owner, int64_t bytes,
                             int32_t *index) {
    bool pinned = plan->policy.on_device && (kind == SHD_BUFFER_STAGING || kind == SHD_BUFFER_TOLD);
    return add_buffer(plan,
                      (shd_buffer){.kind = kind,
                                   .category = category,
                                   .place = pinned ? SHD_PLACE_PINNED : SHD_PLACE_PRIVATE,
                                   .owner_index = owner,
                                   .state_index = -1,
                                   .bytes = bytes},
                      index);
}

/* The tenants of slots, as shd_assign_slots wants them. */
typedef struct tenancy {
    int32_t *first, *last, *slot_of, *buffer_of;
    int64_t *bytes, *slot_bytes;
} tenancy;

static bool tenancy_init(tenancy *tenants, int32_t count) {
    size_t n = (size_t)count;
    *tenants = (tenancy){.first = shd_alloc(n, sizeof(int32_t)),
                         .last = shd_alloc(n, sizeof(int32_t)),
                         .slot_of = shd_alloc(n, sizeof(int32_t)),
                         .buffer_of = shd_alloc(n, sizeof(int32_t)),
                         .bytes = shd_alloc(n, sizeof(int64_t)),
                         .slot_bytes = shd_alloc(n, sizeof(int64_t))};
    return tenants->first && tenants->last && tenants->slot_of && tenants->buffer_of && tenants->bytes &&
           tenants->slot_bytes;
}

static void tenancy_fini(tenancy *tenants) {
    shd_free(tenants->first);
    shd_free(tenants->last);
    shd_free(tenants->slot_of);
    shd_free(tenants->buffer_of);
    shd_free(tenants->bytes);
    shd_free(tenants->slot_bytes);
}

/* What a unit needs in a slot. */
static int64_t tenant_bytes(const shd_unit_plan *unit, const shd_buffer *slot) {
    if (slot->kind == SHD_BUFFER_GATHER_SLOT) return unit->gathered_bytes;
    return unit->gradient_bytes / SHD_FLOAT_BYTES * shd_dtype_bytes(slot->dtype);
}

/* Houses `count` residencies, sorted by issue_event, in slots like `slot`; each stays `linger` events longer. */
static sherd_status house(shd_plan *plan, shd_residency *residencies, int32_t count, int32_t linger, shd_buffer slot,
                          const tenancy *tenants) {
    for (int32_t i = 0; i < count; i++) {
        tenants->first[i] = residencies[i].issue_event;
        tenants->last[i] = residencies[i].last_event + linger;
        tenants->bytes[i] = tenant_bytes(&plan->units[residencies[i].unit_index], &slot);
    }
    int32_t slot_count =
        shd_assign_slots(count, tenants->first, tenants->last, tenants->bytes, tenants->slot_of, tenants->slot_bytes);
    for (int32_t s = 0; s < slot_count; s++) {
        slot.owner_index = s;
        slot.bytes = tenants->slot_bytes[s];
        SHD_TRY(add_buffer(plan, slot, &tenants->buffer_of[s]));
    }
    for (int32_t i = 0; i < count; i++) residencies[i].slot_buffer = tenants->buffer_of[tenants->slot_of[i]];
    return SHERD_OK;
}

static int compare_begins(const void *a, const void *b) {
    const shd_residency *x = a, *y = b;
    if (x->first_event != y->first_event) return x->first_event < y->first_event ? -1 : 1;
    return (x->last_event > y->last_event) - (x->last_event < y->last_event);
}

static int compare_ends(const void *a, const void *b) {
    const shd_residency *x = a, *y = b;
    return (x->last_event > y->last_event) - (x->last_event < y->last_event);
}

/* Gradients as the caller writes them; those that are rounded are free as soon as that is done. */
static sherd_status house_gradients(shd_plan *plan, shd_buffer slot, const tenancy *tenants) {
    size_t count = (size_t)plan->gradient_count;
    int32_t linger = plan->policy.gradient_slots - 1;
    if (plan->rounded) {
        shd_buffer rounded_slot = slot;
        rounded_slot.kind = SHD_BUFFER_ROUNDED_SLOT;
        rounded_slot.dtype = plan->policy.reduce_dtype;
        SHD_TRY(house(plan, plan->rounded, plan->gradient_count, linger, rounded_slot, tenants));
        if (!plan->has_owners) slot.place = SHD_PLACE_PRIVATE;
        linger = 0;
    }
    qsort(plan->gradients, count, sizeof *plan->gradients, compare_begins);
    SHD_TRY(house(plan, plan->gradients, plan->gradient_count, linger, slot, tenants));
    qsort(plan->gradients, count, sizeof *plan->gradients, compare_ends);
    return SHERD_OK;
}

static sherd_status house_all(shd_plan *plan, const tenancy *tenants) {
    shd_buffer gather_slot = {.kind = SHD_BUFFER_GATHER_SLOT,
                              .category = SHD_CATEGORY_GATHER_BUFFERS,
                              .place = SHD_PLACE_PRIVATE,
                              .dtype = plan->policy.parameter_dtype,
                              .state_index = -1,
                              .transient = true};
    shd_buffer gradient_slot = {.kind = SHD_BUFFER_GRADIENT_SLOT,
                                .category = SHD_CATEGORY_REDUCE_BUFFERS,
                                .place = shd_policy_split(&plan->policy) > 1 ? SHD_PLACE_EXPORTED : SHD_PLACE_PRIVATE,
                                .state_index = -1,
                                .transient = true};
    if (shd_policy_copies(&plan->policy))
        SHD_TRY(house(plan, plan->gathers, plan->gather_count, 0, gather_slot, tenants));
    return house_gradients(plan, gradient_slot, tenants);
}

static sherd_status add_slots(shd_plan *plan) {
    tenancy tenants;
    sherd_status status = tenancy_init(&tenants, (int32_t)shd_max(plan->gather_count, plan->gradient_count))
                              ? house_all(plan, &tenants)
                              : shd_fail(SHERD_MEMORY, "no memory to assign the plan's slots");
    tenancy_fini(&tenants);
    return status;
}

/* Outputs and activations of units; what is recomputed of them shares one buffer, large enough for each of them. */
static sherd_status add_activations(shd_plan *plan) {
    const bool whole_units = plan->policy.recompute == SHERD_RECOMPUTE_UNIT;
    int64_t shared_bytes = 0;
    int32_t shared_buffer = -1;
    for (int32_t u = 0; u < plan->unit_count; u++) {
        shd_unit_plan *unit = &plan->units[u];
        if (!unit->recomputed) continue;
        if (whole_units) unit->remade_first_byte = shd_round_up(unit->activation_bytes, SHD_ALIGN_BYTES);
        shared_bytes = shd_max(shared_bytes, unit->remade_first_byte + unit->remade_bytes);
    }
    SHD_TRY(add_work(plan, SHD_BUFFER_RECOMPUTED, SHD_CATEGORY_ACTIVATIONS, -1, shared_bytes, &shared_buffer));
    for (int32_t u = 0; u < plan->unit_count; u++) {
        shd_unit_plan *unit = &plan->units[u];
        SHD_TRY(
            add_work(plan, SHD_BUFFER_OUTPUT, SHD_CATEGORY_ACTIVATIONS, u, unit->output_bytes, &unit->output_buffer));
        if (unit->recomputed && whole_units)
            unit->activation_buffer = unit->activation_bytes > 0 ? shared_buffer : -1;
        else
            SHD_TRY(add_work(plan, SHD_BUFFER_ACTIVATIONS, SHD_CATEGORY_ACTIVATIONS, u, unit->activation_bytes,
                             &unit->activation_buffer));
        if (unit->recomputed)
            unit->remade_buffer = unit->remade_bytes > 0 ? shared_buffer : -1;
        else
            SHD_TRY(add_work(plan, SHD_BUFFER_REMADE, SHD_CATEGORY_ACTIVATIONS, u, unit->remade_bytes,
                             &unit->remade_buffer));
    }
    return SHERD_OK;
}

/* --- on devices --------------------------------------------------------------------------------------------------- */

int64_t shd_plan_sums_bytes(const shd_plan *plan) {
    return 2 * (int64_t)sizeof(shd_exact_sum) +
           (int64_t)plan->gradient_count * SHD_SUMS_STEPS * (int64_t)sizeof(uint64_t);
}

/* Whether the host sets it, or stores it: what has a master is set through that. */
static bool is_mirrored(const shd_plan *plan, const shd_buffer *buffer) {
    switch (buffer->kind) {
    case SHD_BUFFER_MASTER:
    case SHD_BUFFER_STATE: return true;
    case SHD_BUFFER_PARAMETERS:
    case SHD_BUFFER_SHARD: return plan->groups[buffer->owner_index].master_buffer < 0;
    default: return false;
    }
}

/* Of parameters that are there in full, a rank sets its own shard; at stage 0 all. */
static bool holds_part(const shd_plan *plan, const shd_buffer *buffer) {
    return buffer->kind == SHD_BUFFER_PARAMETERS && plan->policy.stage > 0 && shd_policy_split(&plan->policy) > 1;
}

int64_t shd_plan_mirrored_first(const shd_plan *plan, const shd_buffer *buffer) {
    if (!holds_part(plan, buffer)) return 0;
    return shd_policy_place(&plan->policy) * plan->groups[buffer->owner_index].shard_count *
           shd_dtype_bytes(buffer->dtype);
}

static sherd_status add_mirrors(shd_plan *plan) {
    for (int32_t b = 0, count = plan->buffer_count; b < count; b++) {
        const shd_buffer buffer = plan->buffers[b];
        int32_t mirror = -1;
        if (!is_mirrored(plan, &buffer)) continue;
        int64_t shard_bytes = plan->groups[buffer.owner_index].shard_count * shd_dtype_bytes(buffer.dtype);
        SHD_TRY(add_buffer(plan,
                           (shd_buffer){.kind = SHD_BUFFER_MIRROR,
                                        .category = buffer.category,
                                        .place = SHD_PLACE_PINNED,
                                        .dtype = buffer.dtype,
                                        .owner_index = b,
                                        .state_index = -1,
                                        .bytes = holds_part(plan, &buffer) ? shard_bytes : buffer.bytes},
                           &mirror));
        plan->buffers[b].mirror_buffer = mirror + 1;
    }
    return SHERD_OK;
}

/* Room for what all of a shard group send of the largest unit's gradient, or all replicas of a part. */
static sherd_status add_received(shd_plan *plan) {
    const shd_policy *policy = &plan->policy;
    int64_t bytes = 0;
    for (int32_t g = 0; g < plan->group_count; g++) {
        const shd_group *group = &plan->groups[g];
        if (!group->trainable) continue;
        if (shd_policy_split(policy) > 1)
            bytes = shd_max(bytes, group->padded_count * shd_dtype_bytes(policy->reduce_dtype));
        if (policy->replicas > 1) bytes = shd_max(bytes, group->part_count * policy->replicas * SHD_FLOAT_BYTES);
    }
    return add_work(plan, SHD_BUFFER_RECEIVED, SHD_CATEGORY_REDUCE_BUFFERS, -1, bytes, &plan->received_buffer);
}

static sherd_status add_device_buffers(shd_plan *plan) {
    int64_t sums_bytes = plan->gradient_count > 0 ? shd_plan_sums_bytes(plan) : 0;
    SHD_TRY(add_received(plan));
    SHD_TRY(add_work(plan, SHD_BUFFER_SUMS, SHD_CATEGORY_GRADIENTS, -1, sums_bytes, &plan->sums_buffer));
    SHD_TRY(add_work(plan, SHD_BUFFER_TOLD, SHD_CATEGORY_GRADIENTS, -1, sums_bytes, &plan->told_buffer));
    return add_mirrors(plan);
}

sherd_status shd_plan_buffers(shd_plan *plan) {
    size_t capacity = 2 * (size_t)plan->group_count * (3 + SHD_MAX_STATES) + (size_t)plan->gather_count +
                      2 * (size_t)plan->gradient_count + 3 * (size_t)plan->unit_count + 10;
    plan->buffers = shd_alloc(capacity, sizeof *plan->buffers);
    if (!plan->buffers) return shd_fail(SHERD_MEMORY, "no memory for the plan's buffers");

    int64_t partial_count = 0;
    SHD_TRY(add_work(plan, SHD_BUFFER_STAGING, SHD_CATEGORY_CHECKPOINT, -1, plan->policy.staging_bytes,
                     &plan->staging_buffer));
    for (int32_t g = 0; g < plan->group_count; g++) SHD_TRY(add_parameters(plan, g));
    for (int32_t g = 0; g < plan->group_count; g++) {
        if (!plan->groups[g].trainable) continue;
        SHD_TRY(add_master(plan, g));
        SHD_TRY(add_accumulator(plan, g));
        for (int32_t state = 0; state < plan->policy.state_count; state++) SHD_TRY(add_state(plan, g, state));
        partial_count = shd_max(partial_count, plan->groups[g].part_count / SHD_BLOCK_COUNT);
    }
    SHD_TRY(add_slots(plan));
    SHD_TRY(add_activations(plan));
    SHD_TRY(
        add_work(plan, SHD_BUFFER_SCRATCH, SHD_CATEGORY_ACTIVATIONS, -1, plan->scratch_bytes, &plan->scratch_buffer));
    SHD_TRY(add_work(plan, SHD_BUFFER_LOGITS, SHD_CATEGORY_LOGITS, -1, plan->logits_bytes, &plan->logits_buffer));
    SHD_TRY(add_work(plan, SHD_BUFFER_OWNED_STATE, SHD_CATEGORY_OPTIMIZER, -1, plan->owned_count * SHD_FLOAT_BYTES,
                     &plan->owned_state_buffer));
    SHD_TRY(add_work(plan, SHD_BUFFER_OWNER_WORK, SHD_CATEGORY_OPTIMIZER, -1, plan->owner_work_bytes,
                     &plan->owner_work_buffer));
    if (plan->policy.on_device) return add_device_buffers(plan);
    return add_work(plan, SHD_BUFFER_PARTIALS, SHD_CATEGORY_GRADIENTS, -1, partial_count * (int64_t)sizeof(double),
                    &plan->partials_buffer);
}
