/* From fp32 to 16 bits: ROUND, and the copies of masters that updates do not make. */
#include "optim/rounding.h"
#include "runtime/engine/internal.h"

void shd_engine_round(shd_engine *engine, const shd_instruction *instruction) {
    const shd_plan *plan = engine->config.plan;
    const shd_unit *unit = &engine->units[instruction->unit_index];
    shd_round_span(engine->config.pool, plan->policy.reduce_dtype,
                   plan->groups[plan->units[instruction->unit_index].trainable_group].padded_count,
                   shd_engine_address(engine, unit->gradient_buffer),
                   shd_engine_address(engine, unit->exchanged_buffer));
}

void shd_engine_copy_masters(shd_engine *engine) {
    const shd_plan *plan = engine->config.plan;
    for (int32_t g = 0; g < plan->group_count; g++) {
        void *copy = shd_engine_copy(engine, g);
        if (!copy) continue;
        const shd_held masters = shd_engine_held(engine, g, -1, -1);
        shd_round_span(engine->config.pool, plan->policy.parameter_dtype, masters.count,
                       (const float *)(const void *)masters.values, copy);
    }
}
