/* From fp32 to 16 bits: ROUND, and the copies of masters that updates do not make. */
#include "optim/rounding.h"
#include "runtime/engine/on_device.h"

void shd_engine_round(shd_engine *engine, const shd_instruction *instruction) {
    const shd_plan *plan = engine->config.plan;
    const shd_unit *unit = &engine->units[instruction->unit_index];
    int64_t count = plan->groups[plan->units[instruction->unit_index].trainable_group].padded_count;
    const float *from = shd_engine_address(engine, unit->gradient_buffer);
    void *to = shd_engine_address(engine, unit->exchanged_buffer);
    if (engine->device) {
        const shd_engine_place *place = &engine->device->place;
        place->spans->round(place->streams[SHD_QUEUE_COMPUTE], plan->policy.reduce_dtype, count, from, to);
        return;
    }
    shd_round_span(engine->config.pool, plan->policy.reduce_dtype, count, from, to);
}

void shd_engine_copy_masters(shd_engine *engine) {
    const shd_plan *plan = engine->config.plan;
    for (int32_t g = 0; g < plan->group_count && !engine->device; g++) {
        void *copy = shd_engine_copy(engine, g);
        if (!copy) continue;
        const shd_held masters = shd_engine_held(engine, g, -1, -1);
        shd_round_span(engine->config.pool, plan->policy.parameter_dtype, masters.count,
                       (const float *)(const void *)masters.values, copy);
    }
}
