/* The collectives' side of instructions: which spans gathers and reduces move, and what COUNT and VERDICT carry. */
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/engine/internal.h"

#include <math.h>
#include <string.h>

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
    return shd_comm_reduce(engine->config.comm, shd_engine_accumulator(engine, group_index),
                           shd_engine_address(engine, contribution), plan->policy.reduce_dtype,
                           plan->groups[group_index].shard_count, instruction->first_reduce);
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

static void merge_metrics(shd_engine *engine) {
    for (int32_t m = 0; m < SHERD_METRICS; m++) {
        shd_exact_sum all = engine->verdicts[0].metrics[m];
        for (int32_t r = 1; r < engine->config.plan->policy.world_size; r++)
            shd_exact_sum_merge(&all, &engine->verdicts[r].metrics[m]);
        engine->result.metrics[m] = shd_exact_sum_value(&all);
    }
}

/* What a step's loss and norm mean: with fp16 an overflow skips the step, else it ends the run. */
static sherd_status judge(shd_engine *engine) {
    sherd_step_result *result = &engine->result;
    bool finite = isfinite(result->loss) && isfinite(result->grad_norm);
    bool scaled = engine->config.plan->policy.parameter_dtype == SHERD_FP16;
    if (!scaled && !finite)
        return shd_fail(SHERD_NUMERIC, "step %lld: loss is %g and gradient norm is %g", (long long)engine->step,
                        result->loss, result->grad_norm);
    if (scaled) {
        sherd_status status =
            shd_loss_scale_learn(&engine->config.loss_scale, !finite, &engine->next_progress.loss_scale);
        if (status != SHERD_OK) return shd_fail_within(status, "step %lld", (long long)engine->step);
    }
    engine->skips = result->skipped = !finite;
    if (finite) engine->next_progress.update_count++;
    engine->gradient_scale = shd_clip_scale(engine->config.clip, result->grad_norm) / result->loss_scale;
    return SHERD_OK;
}

sherd_status shd_engine_verdict(shd_engine *engine) {
    bool training = engine->program->kind == SHD_PROGRAM_TRAIN;
    shd_verdict mine = {.loss = engine->loss,
                        .square_sum = engine->square_sum,
                        .target_count = engine->local_targets,
                        .arena_bytes = shd_memory_held(SHD_MEMORY_ARENA),
                        .flags = training ? engine->flags : 0,
                        .save_state = shd_engine_save_state(engine)};
    memcpy(mine.metrics, engine->metrics, sizeof mine.metrics);
    if (training) engine->flags = 0;
    SHD_TRY(shd_comm_exchange(engine->config.comm, &mine, sizeof mine, engine->verdicts));

    shd_exact_sum_clear(&engine->loss);
    shd_exact_sum_clear(&engine->square_sum);
    int64_t targets = 0, peak_bytes = 0;
    for (int32_t r = 0; r < engine->config.plan->policy.world_size; r++) {
        const shd_verdict *verdict = &engine->verdicts[r];
        shd_exact_sum_merge(&engine->loss, &verdict->loss);
        shd_exact_sum_merge(&engine->square_sum, &verdict->square_sum);
        targets += verdict->target_count;
        engine->result.flags |= verdict->flags;
        if (verdict->arena_bytes > peak_bytes) peak_bytes = verdict->arena_bytes;
    }
    merge_metrics(engine);
    double loss = shd_exact_sum_value(&engine->loss);
    engine->result.target_count = targets;
    engine->result.loss = targets > 0 ? loss / (double)targets : 0;
    engine->result.loss_scale = engine->progress.loss_scale.scale;
    engine->result.grad_norm = sqrt(shd_exact_sum_value(&engine->square_sum)) / engine->result.loss_scale;
    engine->result.lr = training ? shd_schedule_lr(&engine->config.optimizer, engine->step) : 0;
    engine->result.peak_bytes = peak_bytes;
    if (!training) return SHERD_OK;
    SHD_TRY(shd_engine_saves_ended(engine, &engine->commits));
    return judge(engine);
}
