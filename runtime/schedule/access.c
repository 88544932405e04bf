/* See access.h.
 *
 * Where the caller's own code runs, the accesses are what a session lends: the parameters of the unit and of those it
 * shares, their gradients, the output of the unit before, its own output and activations, and the work areas, whose
 * contents survive from unit to unit of a micro-batch. */
#include "runtime/schedule/access.h"

#include "runtime/base/arith.h"

/* A group, or a rank's shard of it, in the type that a buffer holds. */
static int64_t group_bytes(const shd_group *group, sherd_dtype dtype) {
    return group->padded_count * shd_dtype_bytes(dtype);
}
static int64_t shard_bytes(const shd_group *group, sherd_dtype dtype) {
    return group->shard_count * shd_dtype_bytes(dtype);
}

static void touch(shd_builder *builder, shd_access_mode mode, int32_t buffer, int64_t first, int64_t bytes) {
    shd_builder_access(builder,
                       (shd_access){.mode = mode, .buffer_index = buffer, .first_byte = first, .byte_count = bytes});
}

static void touch_all(shd_builder *builder, shd_access_mode mode, int32_t buffer) {
    if (buffer >= 0) touch(builder, mode, buffer, 0, builder->plan->buffers[buffer].bytes);
}

/* Reads a range of the buffer of every rank in the shard group; that of place g begins at first + g·stride. */
static void read_ranks(shd_builder *builder, int32_t buffer, int64_t first, int64_t bytes, int64_t stride) {
    bool alone = shd_policy_split(&builder->plan->policy) == 1;
    shd_builder_access(builder, (shd_access){.mode = SHD_ACCESS_READ,
                                             .buffer_index = buffer,
                                             .scope = alone ? SHD_SCOPE_OWN : SHD_SCOPE_GROUP,
                                             .first_byte = first,
                                             .byte_count = bytes,
                                             .stride_bytes = stride});
}

/* Writes all of a full buffer but the own shard. */
static void write_peers_shards(shd_builder *builder, int32_t buffer, int64_t shard_bytes) {
    int64_t own = shd_policy_place(&builder->plan->policy) * shard_bytes, behind = own + shard_bytes;
    touch(builder, SHD_ACCESS_WRITE, buffer, 0, own);
    touch(builder, SHD_ACCESS_WRITE, buffer, behind, shd_policy_split(&builder->plan->policy) * shard_bytes - behind);
}

/* The own shard of a buffer that holds the group in full, or just that shard. */
static void touch_shard(shd_builder *builder, shd_access_mode mode, int32_t buffer, const shd_group *group, bool full) {
    if (buffer < 0) return;
    int64_t bytes = shard_bytes(group, builder->plan->buffers[buffer].dtype);
    touch(builder, mode, buffer, full ? shd_policy_place(&builder->plan->policy) * bytes : 0, bytes);
}

int32_t shd_gather_find(const shd_plan *plan, int32_t unit, int32_t event) {
    for (int32_t i = 0; i < plan->gather_count; i++) {
        const shd_residency *residency = &plan->gathers[i];
        if (residency->unit_index == unit && residency->first_event <= event && event <= residency->last_event)
            return i;
    }
    return -1;
}

int32_t shd_gradient_find(const shd_plan *plan, int32_t unit) {
    for (int32_t i = 0; i < plan->gradient_count; i++)
        if (plan->gradients[i].unit_index == unit) return i;
    return -1;
}

/* A unit's gathered parameters: in their own buffers, or in a slot, the trainable group first. */
static void touch_gathered(shd_builder *builder, shd_access_mode mode, int32_t unit, int32_t residency) {
    const shd_plan *plan = builder->plan;
    const int32_t groups[] = {plan->units[unit].trainable_group, plan->units[unit].frozen_group};
    int64_t first = 0;
    for (int i = 0; i < 2; i++) {
        if (groups[i] < 0) continue;
        const shd_group *group = &plan->groups[groups[i]];
        int64_t bytes = group_bytes(group, plan->policy.parameter_dtype);
        if (group->parameters_buffer >= 0) {
            touch(builder, mode, group->parameters_buffer, 0, bytes);
        } else if (residency >= 0) {
            touch(builder, mode, plan->gathers[residency].slot_buffer, first, bytes);
            first += bytes;
        }
    }
}

/* What a unit's own code does to the gradient of `owner`: the first writer of a micro-batch sets it, later ones add. */
static void touch_gradient(shd_builder *builder, int32_t owner, int32_t event) {
    int32_t found = shd_gradient_find(builder->plan, owner);
    if (found < 0) return;
    const shd_residency *residency = &builder->plan->gradients[found];
    int64_t bytes = builder->plan->units[owner].gradient_bytes;
    if (event != residency->first_event) touch(builder, SHD_ACCESS_READ, residency->slot_buffer, 0, bytes);
    touch(builder, SHD_ACCESS_WRITE, residency->slot_buffer, 0, bytes);
}

static void touch_work_areas(shd_builder *builder, int32_t event) {
    const int32_t areas[] = {builder->plan->scratch_buffer, builder->plan->logits_buffer};
    for (int i = 0; i < 2; i++) {
        if (event > 0) touch_all(builder, SHD_ACCESS_READ, areas[i]);
        touch_all(builder, SHD_ACCESS_WRITE, areas[i]);
    }
}

/* One part of a unit's activations. It stays for the micro-step, unless it is recomputed: then it shares a buffer, is
 * gone when FORWARD is over, RECOMPUTE makes it again, and BACKWARD ends it. What is kept RECOMPUTE only reads. */
static void touch_part(shd_builder *builder, shd_op op, int32_t buffer, int64_t first, int64_t bytes) {
    if (buffer < 0) return;
    const bool recomputed = builder->plan->buffers[buffer].kind == SHD_BUFFER_RECOMPUTED;
    const bool only_read = op == SHD_OP_RECOMPUTE && !recomputed;
    if (op == SHD_OP_BACKWARD || only_read) touch(builder, SHD_ACCESS_READ, buffer, first, bytes);
    if (!only_read) touch(builder, SHD_ACCESS_WRITE, buffer, first, bytes);
    if (recomputed && op != SHD_OP_RECOMPUTE) touch(builder, SHD_ACCESS_DROP, buffer, first, bytes);
}

/* Outputs stay for the micro-step. */
static void touch_activations(shd_builder *builder, shd_op op, const shd_unit_plan *unit) {
    if (op == SHD_OP_FORWARD) touch_all(builder, SHD_ACCESS_WRITE, unit->output_buffer);
    touch_part(builder, op, unit->activation_buffer, 0, unit->activation_bytes);
    touch_part(builder, op, unit->remade_buffer, unit->remade_first_byte, unit->remade_bytes);
}

void shd_access_compute(shd_builder *builder, shd_op op, int32_t event) {
    const shd_plan *plan = builder->plan;
    int32_t u = event >= plan->unit_count ? 2 * plan->unit_count - 1 - event : event;
    const shd_unit_plan *unit = &plan->units[u];
    touch_gathered(builder, SHD_ACCESS_READ, u, shd_gather_find(plan, u, event));
    for (int32_t i = 0; i < unit->share_count; i++)
        touch_gathered(builder, SHD_ACCESS_READ, unit->shares[i], shd_gather_find(plan, unit->shares[i], event));

    if (u > 0) touch_all(builder, SHD_ACCESS_READ, plan->units[u - 1].output_buffer);
    touch_activations(builder, op, unit);
    touch_work_areas(builder, event);
    if (op != SHD_OP_BACKWARD) return;
    touch_gradient(builder, u, event);
    for (int32_t i = 0; i < unit->share_count; i++) touch_gradient(builder, unit->shares[i], event);
}

static void gather_group(shd_builder *builder, int32_t group_index, int32_t slot, int64_t slot_first) {
    const shd_group *group = &builder->plan->groups[group_index];
    sherd_dtype dtype = builder->plan->policy.parameter_dtype;
    int64_t full = group_bytes(group, dtype), shard = shard_bytes(group, dtype);
    if (group->shard_buffer >= 0) {
        read_ranks(builder, group->shard_buffer, 0, shard, 0);
        touch(builder, SHD_ACCESS_WRITE, slot, slot_first, full);
    } else if (builder->plan->policy.gather_shared) {
        touch(builder, SHD_ACCESS_ACQUIRE, group->parameters_buffer, 0, full);
    } else {
        read_ranks(builder, group->parameters_buffer, 0, shard, shard);
        write_peers_shards(builder, group->parameters_buffer, shard);
    }
}

void shd_access_gather(shd_builder *builder, int32_t unit, int32_t residency, bool with_frozen) {
    const shd_plan *plan = builder->plan;
    const shd_unit_plan *planned = &plan->units[unit];
    int32_t slot = residency >= 0 ? plan->gathers[residency].slot_buffer : -1;
    int64_t behind = 0;
    if (planned->trainable_group >= 0) {
        gather_group(builder, planned->trainable_group, slot, 0);
        behind = group_bytes(&plan->groups[planned->trainable_group], plan->policy.parameter_dtype);
    }
    if (planned->frozen_group >= 0 && with_frozen) gather_group(builder, planned->frozen_group, slot, behind);
}

void shd_access_wait(shd_builder *builder, int32_t unit, int32_t residency) {
    touch_gathered(builder, SHD_ACCESS_READ, unit, residency);
}

void shd_access_release(shd_builder *builder, int32_t unit, int32_t residency) {
    touch_gathered(builder, SHD_ACCESS_DROP, unit, residency);
}

void shd_access_round(shd_builder *builder, int32_t unit) {
    const shd_plan *plan = builder->plan;
    const shd_group *group = &plan->groups[plan->units[unit].trainable_group];
    int32_t gradient = shd_gradient_find(plan, unit);
    touch(builder, SHD_ACCESS_READ, plan->gradients[gradient].slot_buffer, 0, group_bytes(group, SHERD_FP32));
    touch(builder, SHD_ACCESS_WRITE, plan->rounded[gradient].slot_buffer, 0,
          group_bytes(group, plan->policy.reduce_dtype));
}

void shd_access_reduce(shd_builder *builder, int32_t unit, bool first_reduce) {
    const shd_plan *plan = builder->plan;
    const shd_group *group = &plan->groups[plan->units[unit].trainable_group];
    int32_t slot = shd_exchanged_gradient(plan, shd_gradient_find(plan, unit))->slot_buffer;
    int64_t bytes = shard_bytes(group, plan->policy.reduce_dtype);
    bool full = plan->policy.stage == 0;
    read_ranks(builder, slot, shd_policy_place(&plan->policy) * bytes, bytes, 0);
    if (!first_reduce) touch_shard(builder, SHD_ACCESS_READ, group->accumulator_buffer, group, full);
    touch_shard(builder, SHD_ACCESS_WRITE, group->accumulator_buffer, group, full);
}

/* Part of the own shard of the reduced gradient, in bytes of the accumulator. */
static shd_part part_bytes(const shd_plan *plan, const shd_group *group, int32_t replica) {
    shd_part part = shd_part_of(group->shard_count, group->part_count, replica);
    int64_t shard = plan->policy.stage == 0 ? shd_policy_place(&plan->policy) * shard_bytes(group, SHERD_FP32) : 0;
    return (shd_part){.first = shard + part.first * SHD_FLOAT_BYTES, .count = part.count * SHD_FLOAT_BYTES};
}

static int32_t own_replica(const shd_plan *plan) {
    shd_mesh mesh = shd_policy_mesh(&plan->policy);
    return shd_mesh_replica(&mesh);
}

void shd_access_reduce_replicas(shd_builder *builder, int32_t unit) {
    const shd_plan *plan = builder->plan;
    const shd_group *group = &plan->groups[plan->units[unit].trainable_group];
    shd_part own = part_bytes(plan, group, own_replica(plan));
    shd_builder_access(builder, (shd_access){.mode = SHD_ACCESS_READ,
                                             .buffer_index = group->accumulator_buffer,
                                             .scope = SHD_SCOPE_REPLICAS,
                                             .first_byte = own.first,
                                             .byte_count = own.count});
    touch(builder, SHD_ACCESS_WRITE, group->accumulator_buffer, own.first, own.count);
}

/* What this rank stores of the parameters: the own shard, of the masters where there are any. */
static void read_own_parameters(shd_builder *builder, const shd_group *group) {
    bool full = builder->plan->policy.stage == 0;
    if (group->master_buffer >= 0)
        touch_shard(builder, SHD_ACCESS_READ, group->master_buffer, group, full);
    else if (group->parameters_buffer >= 0)
        touch_shard(builder, SHD_ACCESS_READ, group->parameters_buffer, group, true);
    else
        touch_shard(builder, SHD_ACCESS_READ, group->shard_buffer, group, false);
}

void shd_access_norm(shd_builder *builder, int32_t unit) {
    const shd_plan *plan = builder->plan;
    const shd_group *group = &plan->groups[plan->units[unit].trainable_group];
    shd_part own = part_bytes(plan, group, own_replica(plan));
    touch(builder, SHD_ACCESS_READ, group->accumulator_buffer, own.first, own.count);
    read_own_parameters(builder, group);
    touch(builder, SHD_ACCESS_WRITE, plan->partials_buffer, 0,
          shd_policy_part(&plan->policy, group).count / SHD_BLOCK_COUNT * (int64_t)sizeof(double));
}

/* The parts that the other replicas have added up. */
static void gather_parts(shd_builder *builder, const shd_group *group) {
    const shd_plan *plan = builder->plan;
    shd_part own = part_bytes(plan, group, own_replica(plan));
    shd_builder_access(builder, (shd_access){.mode = SHD_ACCESS_READ,
                                             .buffer_index = group->accumulator_buffer,
                                             .scope = SHD_SCOPE_REPLICAS,
                                             .byte_count = group->part_count * SHD_FLOAT_BYTES,
                                             .stride_bytes = group->part_count * SHD_FLOAT_BYTES,
                                             .end_byte = shard_bytes(group, SHERD_FP32)});
    touch(builder, SHD_ACCESS_WRITE, group->accumulator_buffer, 0, own.first);
    touch(builder, SHD_ACCESS_WRITE, group->accumulator_buffer, own.first + own.count,
          shard_bytes(group, SHERD_FP32) - own.first - own.count);
}

void shd_access_gather_gradient(shd_builder *builder, int32_t unit) {
    const shd_plan *plan = builder->plan;
    const shd_group *group = &plan->groups[plan->units[unit].trainable_group];
    if (plan->policy.replicas > 1) {
        gather_parts(builder, group);
        return;
    }
    int64_t bytes = shard_bytes(group, SHERD_FP32);
    read_ranks(builder, group->accumulator_buffer, 0, bytes, bytes);
    write_peers_shards(builder, group->accumulator_buffer, bytes);
}

/* Reads elements [first, first + count) of a group where they are: in this rank's own `buffer` that has all of them, or
 * in the shards that peers have in theirs. */
static void read_pieces(shd_builder *builder, int32_t buffer, bool full, const shd_group *group, int64_t first,
                        int64_t count) {
    if (full) {
        touch(builder, SHD_ACCESS_READ, buffer, first * SHD_FLOAT_BYTES, count * SHD_FLOAT_BYTES);
        return;
    }
    for (int64_t at = first; at < first + count;) {
        int64_t peer = at / group->shard_count, end = shd_min(first + count, (peer + 1) * group->shard_count);
        shd_builder_access(builder, (shd_access){.mode = SHD_ACCESS_READ,
                                                 .buffer_index = buffer,
                                                 .scope = SHD_SCOPE_GROUP,
                                                 .peer = 1 + (int32_t)peer,
                                                 .first_byte = at % group->shard_count * SHD_FLOAT_BYTES,
                                                 .byte_count = (end - at) * SHD_FLOAT_BYTES});
        at = end;
    }
}

/* All fp32 parameters of a tensor. Those that live once on the host are acquired where no gather has done it for the
 * rest of the run. */
static void read_parameters(shd_builder *builder, const shd_group *group, const shd_tensor_place *place) {
    const shd_policy *policy = &builder->plan->policy;
    bool alone = policy->stage == 0 || shd_policy_split(policy) == 1;
    if (group->master_buffer >= 0 || group->shard_buffer >= 0) {
        int32_t buffer = group->master_buffer >= 0 ? group->master_buffer : group->shard_buffer;
        read_pieces(builder, buffer, alone, group, place->offset_count, place->element_count);
        return;
    }
    int64_t first = place->offset_count * SHD_FLOAT_BYTES, bytes = place->element_count * SHD_FLOAT_BYTES;
    bool released = policy->gather_shared && policy->stage == 3;
    if (released) touch(builder, SHD_ACCESS_ACQUIRE, group->parameters_buffer, first, bytes);
    touch(builder, SHD_ACCESS_READ, group->parameters_buffer, first, bytes);
    if (released) touch(builder, SHD_ACCESS_DROP, group->parameters_buffer, first, bytes);
}

static void direct_tensor(shd_builder *builder, const shd_tensor_place *place, int32_t slot) {
    const shd_plan *plan = builder->plan;
    const shd_group *group = &plan->groups[place->group_index];
    bool alone = plan->policy.stage == 0 || shd_policy_split(&plan->policy) == 1;
    read_pieces(builder, group->accumulator_buffer, alone, group, place->offset_count, place->element_count);
    if (plan->policy.owners_read_parameters) read_parameters(builder, group, place);
    touch(builder, SHD_ACCESS_WRITE, slot, place->offset_count * SHD_FLOAT_BYTES,
          place->element_count * SHD_FLOAT_BYTES);
    for (int32_t s = 0; s < SHD_MAX_OWNED_STATES; s++)
        for (shd_access_mode mode = SHD_ACCESS_READ; mode <= SHD_ACCESS_WRITE; mode++)
            touch(builder, mode, plan->owned_state_buffer, place->state_offsets[s] * SHD_FLOAT_BYTES,
                  place->state_counts[s] * SHD_FLOAT_BYTES);
    touch_all(builder, SHD_ACCESS_WRITE, plan->owner_work_buffer);
}

void shd_access_direct(shd_builder *builder, int32_t unit) {
    const shd_plan *plan = builder->plan;
    const shd_unit_plan *planned = &plan->units[unit];
    int32_t slot = plan->gradients[shd_gradient_find(plan, unit)].slot_buffer;
    for (int32_t t = planned->first_tensor; t < planned->first_tensor + planned->tensor_count; t++)
        if (plan->places[t].whole && plan->places[t].owner == shd_policy_place(&plan->policy))
            direct_tensor(builder, &plan->places[t], slot);
}

/* The steps of whole tensors, as far as this rank has their elements. */
static void read_steps(shd_builder *builder, int32_t unit) {
    const shd_plan *plan = builder->plan;
    const shd_unit_plan *planned = &plan->units[unit];
    const shd_group *group = &plan->groups[planned->trainable_group];
    bool full = plan->policy.stage == 0;
    int64_t from = full ? 0 : shd_policy_place(&plan->policy) * group->shard_count;
    int64_t to = full ? group->padded_count : from + group->shard_count;
    for (int32_t t = planned->first_tensor; t < planned->first_tensor + planned->tensor_count; t++) {
        const shd_tensor_place *place = &plan->places[t];
        int64_t first = shd_max(from, place->offset_count);
        int64_t end = shd_min(to, place->offset_count + place->element_count);
        if (!place->whole || first >= end) continue;
        bool many = shd_policy_split(&plan->policy) > 1;
        shd_builder_access(builder,
                           (shd_access){.mode = SHD_ACCESS_READ,
                                        .buffer_index = plan->gradients[shd_gradient_find(plan, unit)].slot_buffer,
                                        .scope = many ? SHD_SCOPE_GROUP : SHD_SCOPE_OWN,
                                        .peer = many ? 1 + place->owner : 0,
                                        .first_byte = first * SHD_FLOAT_BYTES,
                                        .byte_count = (end - first) * SHD_FLOAT_BYTES});
    }
}

void shd_access_update(shd_builder *builder, int32_t unit) {
    const shd_plan *plan = builder->plan;
    const shd_group *group = &plan->groups[plan->units[unit].trainable_group];
    bool full = plan->policy.stage == 0, in_place = group->master_buffer < 0;
    int32_t parameters = group->parameters_buffer >= 0 ? group->parameters_buffer : group->shard_buffer;
    touch(builder, SHD_ACCESS_READ, group->accumulator_buffer, 0, shd_stated_count(plan, group) * SHD_FLOAT_BYTES);
    read_steps(builder, unit);
    for (shd_access_mode mode = SHD_ACCESS_READ; mode <= SHD_ACCESS_WRITE; mode++) {
        touch_all(builder, mode, group->master_buffer);
        bool touched = mode == SHD_ACCESS_WRITE || in_place; /* a copy of masters is written without being read */
        if (touched && full) touch_all(builder, mode, parameters);
        if (touched && !full) touch_shard(builder, mode, parameters, group, group->parameters_buffer >= 0);
        for (int32_t s = 0; s < plan->policy.state_count; s++) touch_all(builder, mode, group->state_buffers[s]);
    }
}

/* The own part of a state. */
static void read_state(shd_builder *builder, const shd_group *group, int32_t state) {
    const shd_plan *plan = builder->plan;
    int32_t buffer = group->state_buffers[state];
    if (plan->policy.stage > 0) {
        touch_all(builder, SHD_ACCESS_READ, buffer);
        return;
    }
    int64_t first = shd_min(shd_policy_place(&plan->policy) * group->shard_count, group->stated_count);
    int64_t end = shd_min(first + group->shard_count, group->stated_count);
    sherd_dtype dtype = plan->policy.state_dtype;
    touch(builder, SHD_ACCESS_READ, buffer, shd_span_bytes(dtype, first), shd_span_bytes(dtype, end - first));
}

static void read_stored(shd_builder *builder, int32_t group_index) {
    if (group_index < 0) return;
    const shd_plan *plan = builder->plan;
    const shd_group *group = &plan->groups[group_index];
    read_own_parameters(builder, group);
    for (int32_t s = 0; group->trainable && s < plan->policy.state_count; s++) read_state(builder, group, s);
}

void shd_access_save(shd_builder *builder, int32_t unit) {
    const shd_plan *plan = builder->plan;
    const shd_unit_plan *planned = &plan->units[unit];
    if (own_replica(plan) > 0) return;
    read_stored(builder, planned->trainable_group);
    read_stored(builder, planned->frozen_group);
    for (int32_t t = planned->first_tensor; t < planned->first_tensor + planned->tensor_count; t++) {
        const shd_tensor_place *place = &plan->places[t];
        for (int32_t s = 0; place->whole && place->owner == shd_policy_place(&plan->policy) && s < SHD_MAX_OWNED_STATES;
             s++)
            touch(builder, SHD_ACCESS_READ, plan->owned_state_buffer, place->state_offsets[s] * SHD_FLOAT_BYTES,
                  place->state_counts[s] * SHD_FLOAT_BYTES);
    }
    touch_all(builder, SHD_ACCESS_WRITE, plan->staging_buffer);
}
