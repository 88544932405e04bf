/* The collectives of a rank on a device: what its instructions move by the link, and what becomes of it. */
#include "runtime/base/arith.h"
#include "runtime/base/status.h"
#include "runtime/engine/on_device.h"

#include <stdio.h>
#include <string.h>

static shd_lane lane_of(const shd_instruction *instruction) {
    return instruction->queue == SHD_QUEUE_GATHER ? SHD_LANE_GATHER : SHD_LANE_REDUCE;
}

static bool moves(const shd_instruction *instruction) {
    return instruction->op == SHD_OP_GATHER || instruction->op == SHD_OP_GATHER_GRADIENT ||
           instruction->op == SHD_OP_REDUCE || instruction->op == SHD_OP_REDUCE_REPLICAS;
}

/* --- what is moved ------------------------------------------------------------------------------------------------ */

static void add(shd_engine_lane *lane, shd_transfer transfer) {
    if (transfer.bytes > 0) lane->transfers[lane->count++] = transfer;
}

static void add_gather(shd_engine *engine, int32_t group_index, shd_engine_lane *lane) {
    if (group_index < 0) return;
    const shd_plan *plan = engine->config.plan;
    const shd_group *group = &plan->groups[group_index];
    int64_t size = shd_dtype_bytes(plan->policy.parameter_dtype);
    add(lane, (shd_transfer){.kind = SHD_TRANSFER_GATHER,
                             .scope = SHD_SCOPE_GROUP,
                             .from = shd_engine_shard(engine, group_index),
                             .to = shd_engine_gathered(engine, group_index),
                             .bytes = group->padded_count * size,
                             .part_bytes = group->shard_count * size});
}

static void list_gather(shd_engine *engine, const shd_instruction *instruction, shd_engine_lane *lane) {
    const shd_plan *plan = engine->config.plan;
    const shd_unit_plan *planned = &plan->units[instruction->unit_index];
    shd_unit *unit = &engine->units[instruction->unit_index];
    shd_unit_move(unit, SHD_UNIT_GATHERING);
    if (instruction->residency >= 0) unit->gathered_buffer = plan->gathers[instruction->residency].slot_buffer;
    add_gather(engine, planned->trainable_group, lane);
    /* Frozen groups that are kept in full do not change: the prologue has gathered them. */
    if (plan->policy.stage == 3 || engine->program->kind == SHD_PROGRAM_PROLOGUE)
        add_gather(engine, planned->frozen_group, lane);
}

static void list_gather_gradient(shd_engine *engine, const shd_group *group, int32_t group_index,
                                 shd_engine_lane *lane) {
    const shd_policy *policy = &engine->config.plan->policy;
    float *own = shd_engine_accumulator(engine, group_index);
    const bool replicas = policy->replicas > 1;
    float *all = replicas ? own : shd_engine_address(engine, group->accumulator_buffer);
    int64_t count = replicas ? group->shard_count : group->padded_count;
    add(lane, (shd_transfer){.kind = SHD_TRANSFER_GATHER,
                             .scope = replicas ? SHD_SCOPE_REPLICAS : SHD_SCOPE_GROUP,
                             .from = replicas ? own + shd_policy_part(policy, group).first : own,
                             .to = all,
                             .bytes = count * SHD_FLOAT_BYTES,
                             .part_bytes = (replicas ? group->part_count : group->shard_count) * SHD_FLOAT_BYTES});
}

/* A contribution goes to those who add its parts up. */
static void list_reduce(shd_engine *engine, const shd_instruction *instruction, int32_t group_index,
                        shd_engine_lane *lane) {
    const shd_plan *plan = engine->config.plan;
    const shd_group *group = &plan->groups[group_index];
    const bool replicas = instruction->op == SHD_OP_REDUCE_REPLICAS;
    int64_t size = replicas ? SHD_FLOAT_BYTES : shd_dtype_bytes(plan->policy.reduce_dtype);
    if (!replicas && shd_policy_split(&plan->policy) == 1) return;
    add(lane, (shd_transfer){.kind = SHD_TRANSFER_SPREAD,
                             .scope = replicas ? SHD_SCOPE_REPLICAS : SHD_SCOPE_GROUP,
                             .from = replicas ? (void *)shd_engine_accumulator(engine, group_index)
                                              : shd_engine_address(
                                                    engine, engine->units[instruction->unit_index].exchanged_buffer),
                             .to = shd_engine_address(engine, plan->received_buffer),
                             .bytes = (replicas ? group->shard_count : group->padded_count) * size,
                             .part_bytes = (replicas ? group->part_count : group->shard_count) * size});
}

static void list_transfers(shd_engine *engine, const shd_instruction *instruction, shd_engine_lane *lane) {
    const shd_plan *plan = engine->config.plan;
    int32_t group_index = plan->units[instruction->unit_index].trainable_group;
    *lane = (shd_engine_lane){.instruction = instruction};
    if (instruction->op == SHD_OP_GATHER)
        list_gather(engine, instruction, lane);
    else if (instruction->op == SHD_OP_GATHER_GRADIENT)
        list_gather_gradient(engine, &plan->groups[group_index], group_index, lane);
    else
        list_reduce(engine, instruction, group_index, lane);
}

int64_t shd_device_lane_bytes(const shd_plan *plan, shd_lane lane) {
    int64_t bytes = 0;
    for (int32_t g = 0; g < plan->group_count; g++) {
        const shd_group *group = &plan->groups[g];
        int64_t shard_bytes = group->shard_count * shd_dtype_bytes(plan->policy.parameter_dtype);
        if (lane == SHD_LANE_GATHER) bytes = shd_max(bytes, shard_bytes);
        if (!group->trainable) continue;
        if (lane == SHD_LANE_GATHER && plan->policy.stage == 0)
            bytes = shd_max(bytes, group->shard_count * SHD_FLOAT_BYTES);
        if (lane == SHD_LANE_REDUCE)
            bytes = shd_max(bytes, group->padded_count * shd_dtype_bytes(plan->policy.reduce_dtype));
        if (lane == SHD_LANE_REDUCE && plan->policy.replicas > 1)
            bytes = shd_max(bytes, group->shard_count * SHD_FLOAT_BYTES);
    }
    return bytes;
}

/* --- moving it ---------------------------------------------------------------------------------------------------- */

/* Whether it is the instruction's turn to begin. */
static bool has_turn(shd_engine *engine, const shd_instruction *instruction) {
    const shd_program *program = engine->program;
    int32_t *turn = &engine->device->turn;
    while (!moves(&program->instructions[*turn])) ++*turn;
    return &program->instructions[*turn] == instruction;
}

static sherd_status carry_on(shd_engine_device *device, shd_lane which, shd_engine_lane *lane, bool *enqueued) {
    const shd_engine_place *place = &device->place;
    *enqueued = false;
    while (lane->next < lane->count) {
        bool all;
        if (!lane->begun) {
            SHD_TRY(place->link_ops->begin(place->link, which, &lane->transfers[lane->next]));
            lane->begun = true;
            device->turn += lane->next == lane->count - 1;
        }
        SHD_TRY(place->link_ops->progress(place->link, which, &all));
        if (!all) return SHERD_OK;
        lane->next++;
        lane->begun = false;
    }
    *enqueued = true;
    return SHERD_OK;
}

bool shd_device_transfer(shd_engine *engine, const shd_instruction *instruction) {
    shd_engine_device *device = engine->device;
    shd_lane which = lane_of(instruction);
    shd_engine_lane *lane = &device->lanes[which];
    bool enqueued;
    if (!moves(instruction) || device->failure != SHERD_OK) return true;
    if (lane->instruction != instruction) {
        if (!has_turn(engine, instruction)) return false;
        shd_device_order(engine, instruction);
        list_transfers(engine, instruction, lane);
        device->turn += lane->count == 0;
    }
    device->failure = carry_on(device, which, lane, &enqueued);
    if (device->failure == SHERD_OK) return enqueued;
    snprintf(device->cause, sizeof device->cause, "%s", sherd_last_error());
    return true;
}

/* --- what follows ------------------------------------------------------------------------------------------------- */

static void fold_shards(shd_engine *engine, const shd_instruction *instruction, int32_t group_index) {
    const shd_plan *plan = engine->config.plan;
    const shd_group *group = &plan->groups[group_index];
    const int32_t split = shd_policy_split(&plan->policy);
    int64_t shard_bytes = group->shard_count * shd_dtype_bytes(plan->policy.reduce_dtype);
    const char *received = shd_engine_address(
        engine, split > 1 ? plan->received_buffer : engine->units[instruction->unit_index].exchanged_buffer);
    const void *parts[SHD_COMM_MAX_RANKS];
    for (int32_t place = 0; place < split; place++) parts[place] = received + place * shard_bytes;
    if (group->shard_count == 0) return;
    engine->device->place.spans->fold(shd_device_stream(engine, SHD_QUEUE_REDUCE),
                                      shd_engine_accumulator(engine, group_index), parts, split,
                                      plan->policy.reduce_dtype, group->shard_count, instruction->first_reduce,
                                      shd_device_nonfinite(engine, instruction));
}

static void fold_replicas(shd_engine *engine, int32_t group_index) {
    const shd_plan *plan = engine->config.plan;
    const shd_group *group = &plan->groups[group_index];
    const shd_part own = shd_policy_part(&plan->policy, group);
    const char *received = shd_engine_address(engine, plan->received_buffer);
    const void *parts[SHD_COMM_MAX_RANKS];
    for (int32_t r = 0; r < plan->policy.replicas; r++) parts[r] = received + r * group->part_count * SHD_FLOAT_BYTES;
    if (own.count == 0) return;
    engine->device->place.spans->fold(shd_device_stream(engine, SHD_QUEUE_REDUCE),
                                      shd_engine_accumulator(engine, group_index) + own.first, parts,
                                      plan->policy.replicas, SHERD_FP32, own.count, true, NULL);
}

static shd_collective collective_of(const shd_instruction *instruction) {
    switch (instruction->op) {
    case SHD_OP_GATHER: return SHD_COLLECTIVE_GATHER;
    case SHD_OP_GATHER_GRADIENT: return SHD_COLLECTIVE_GATHER_GRADIENT;
    case SHD_OP_REDUCE: return SHD_COLLECTIVE_REDUCE;
    default: return SHD_COLLECTIVE_REDUCE_REPLICAS;
    }
}

sherd_status shd_device_transferred(shd_engine *engine, const shd_instruction *instruction) {
    shd_engine_device *device = engine->device;
    shd_engine_lane *lane = &device->lanes[lane_of(instruction)];
    int32_t group_index = engine->config.plan->units[instruction->unit_index].trainable_group;
    if (device->failure != SHERD_OK) return shd_fail(device->failure, "%s", device->cause);
    for (int32_t i = 0; i < lane->count; i++)
        shd_comm_count(engine->config.comm, collective_of(instruction), lane->transfers[i].scope,
                       lane->transfers[i].part_bytes);
    lane->instruction = NULL;
    if (instruction->op == SHD_OP_REDUCE) fold_shards(engine, instruction, group_index);
    if (instruction->op == SHD_OP_REDUCE_REPLICAS) fold_replicas(engine, group_index);
    return SHERD_OK;
}
