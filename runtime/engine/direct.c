/* DIRECT: the steps of the whole tensors that this rank owns, each from all of its gradient, which peers have in parts,
 * and into the tensor's place in the own gradient slot, where UPDATE of every rank finds it. */
#include "runtime/base/arith.h"
#include "runtime/engine/internal.h"
#include "runtime/ops/ops.h"

#include <string.h>

static void multiply(shd_pool *pool, const shd_product *product) {
    const shd_math math = {.ops = &shd_ops_cpu, .pool = pool, .dtype = SHERD_FP32};
    shd_op_matmul(&math, &(shd_matmul){.m = product->m,
                                       .n = product->n,
                                       .k = product->k,
                                       .a = product->a,
                                       .b = product->b,
                                       .c = product->c,
                                       .lda = product->a_transposed ? product->m : product->k,
                                       .ldb = product->b_transposed ? product->k : product->n,
                                       .ldc = product->n,
                                       .a_transposed = product->a_transposed,
                                       .b_transposed = product->b_transposed,
                                       .accumulate = product->accumulate});
}

/* to[i] = element `first` + i of a group, of which this rank has all at `own`, or it and every peer their shards. */
static void collect(const shd_engine *engine, const float *own, bool in_full, const shd_group *group, int64_t first,
                    int64_t count, float *to) {
    if (in_full) {
        memcpy(to, own + first, (size_t)count * sizeof *to);
        return;
    }
    for (int64_t at = first; at < first + count;) {
        int64_t place = at / group->shard_count, end = shd_min(first + count, (place + 1) * group->shard_count);
        int64_t bytes = (end - at) * SHD_FLOAT_BYTES;
        memcpy(to + (at - first),
               shd_comm_peer(engine->config.comm, (int32_t)place, own + at % group->shard_count, bytes), (size_t)bytes);
        at = end;
    }
}

/* All fp32 parameters of a tensor: masters, or what is gathered otherwise. */
static void collect_parameters(const shd_engine *engine, const shd_tensor_place *place, float *to) {
    const shd_group *group = &engine->config.plan->groups[place->group_index];
    int32_t apart = group->master_buffer >= 0 ? group->master_buffer : group->shard_buffer;
    bool in_full = apart < 0 || engine->config.plan->policy.stage == 0;
    collect(engine, shd_engine_address(engine, apart >= 0 ? apart : group->parameters_buffer), in_full, group,
            place->offset_count, place->element_count, to);
}

static void direct_tensor(shd_engine *engine, int32_t tensor) {
    const shd_plan *plan = engine->config.plan;
    const sherd_optimizer *optimizer = &engine->config.optimizer;
    const shd_tensor_place *place = &plan->places[tensor];
    const shd_group *group = &plan->groups[place->group_index];
    shd_whole_step step = {.tensor = &plan->tensors[tensor],
                           .values = shd_engine_gradient(engine, place->group_index) + place->offset_count,
                           .work = shd_engine_address(engine, plan->owner_work_buffer),
                           .step = engine->progress.update_count,
                           .lr = shd_engine_lr(engine) * engine->config.rules[tensor].lr_factor,
                           .gradient_scale = (float)engine->gradient_scale,
                           .multiply = multiply};
    for (int32_t s = 0; s < SHD_MAX_OWNED_STATES; s++) step.states[s] = shd_engine_owned_state(engine, tensor, s);
    if (shd_whole_reads_parameters(optimizer)) {
        collect_parameters(engine, place, step.values);
        step.square_sum = shd_whole_square_sum(engine->config.pool, step.values, place->element_count, step.work);
    }
    collect(engine, shd_engine_address(engine, group->accumulator_buffer), plan->policy.stage == 0, group,
            place->offset_count, place->element_count, step.values);
    shd_whole_make_step(optimizer, engine->config.pool, &step);
}

void shd_engine_direct(shd_engine *engine, const shd_instruction *instruction) {
    const shd_plan *plan = engine->config.plan;
    const shd_unit_plan *unit = &plan->units[instruction->unit_index];
    int32_t own = shd_policy_place(&plan->policy);
    for (int32_t t = unit->first_tensor; !engine->skips && t < unit->first_tensor + unit->tensor_count; t++)
        if (plan->places[t].whole && plan->places[t].owner == own) direct_tensor(engine, t);
}
