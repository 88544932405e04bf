/* The collectives' side of instructions: which spans gathers and reduces move, and what COUNT carries. */
#include "runtime/base/status.h"
#include "runtime/engine/internal.h"

static sherd_status gather_group(shd_engine *engine, int32_t group_index) {
    if (group_index < 0) return SHERD_OK;
    const shd_plan *plan = engine->config.plan;
    const shd_group *group = &plan->groups[group_index];
    int64_t shard_bytes = group->shard_count * shd_dtype_bytes(plan->policy.parameter_dtype);
    if (group->parameters_buffer >= 0 && plan->buffers[group->parameters_buffer].place == SHD_PLACE_HOST)
        return shd_comm_gather_shared(engine->config.comm, shard_bytes);
    return shd_comm_gather(engine->config.comm, SHD_COLLECTIVE_GATHER, shd_engine_gathered(engine, group_index),
                           shd_engine_shard(engine, group_index), shard_bytes);
}

sherd_status shd_engine_gather(shd_engine *engine, const shd_instruction *instruction) {
    const shd_plan *plan = engine->config.plan;
    const shd_unit_plan *planned = &plan->units[instruction->unit_index];
    shd_unit *unit = &engine->units[instruction->unit_index];
    shd_unit_move(unit, SHD_UNIT_GATHERING);
    if (instruction->residency >= 0) unit->gathered_buffer = plan->gathers[instruction->residency].slot_buffer;
    SHD_TRY(gather_group(engine, planned->trainable_group));
    /* Frozen groups that are kept in full do not change: the prologue has gathered them. */
    bool kept = plan->policy.stage < 3 && !plan->policy.gather_shared;
    if (kept && engine->program->kind != SHD_PROGRAM_PROLOGUE) return SHERD_OK;
    return gather_group(engine, planned->frozen_group);
}

sherd_status shd_engine_gather_gradient(shd_engine *engine, const shd_instruction *instruction) {
    const shd_plan *plan = engine->config.plan;
    int32_t group_index = plan->units[instruction->unit_index].trainable_group;
    const shd_group *group = &plan->groups[group_index];
    if (plan->policy.replicas > 1)
        return shd_comm_gather_replicas(engine->config.comm, shd_engine_accumulator(engine, group_index),
                                        group->shard_count, group->part_count);
    return shd_comm_gather(engine->config.comm, SHD_COLLECTIVE_GATHER_GRADIENT,
                           shd_engine_address(engine, group->accumulator_buffer),
                           shd_engine_accumulator(engine, group_index), group->shard_count * SHD_FLOAT_BYTES);
}

sherd_status shd_engine_reduce(shd_engine *engine, const shd_instruction *instruction) {
    const shd_plan *plan = engine->config.plan;
    int32_t group_index = plan->units[instruction->unit_index].trainable_group;
    int32_t contribution = engine->units[instruction->unit_index].exchanged_buffer;
    SHD_TRY(shd_comm_reduce(engine->config.comm, shd_engine_accumulator(engine, group_index),
                            shd_engine_address(engine, contribution), plan->policy.reduce_dtype,
                            plan->groups[group_index].shard_count, instruction->first_reduce));
    shd_engine_suspect_gradient(engine, instruction);
    return SHERD_OK;
}

sherd_status shd_engine_reduce_replicas(shd_engine *engine, const shd_instruction *instruction) {
    int32_t group_index = engine->config.plan->units[instruction->unit_index].trainable_group;
    const shd_group *group = &engine->config.plan->groups[group_index];
    return shd_comm_reduce_replicas(engine->config.comm, shd_engine_accumulator(engine, group_index),
                                    group->shard_count, group->part_count);
}

sherd_status shd_engine_count(shd_engine *engine) {
    SHD_TRY(shd_comm_collect(engine->config.comm, engine->counts));
    for (int32_t r = 0; r < engine->config.plan->policy.world_size; r++) engine->target_count += engine->counts[r];
    return SHERD_OK;
}
