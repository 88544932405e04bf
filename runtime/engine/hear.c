/* What a rank's host is told of its device: sums, losses, and where numbers were not finite. */
#include "runtime/base/status.h"
#include "runtime/engine/on_device.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* The buffers SUMS and TOLD, as plan.h has them. */
static shd_exact_sum *sums_in(const shd_engine *engine, int32_t buffer) { return shd_engine_address(engine, buffer); }

static uint64_t *words_in(const shd_engine *engine, int32_t buffer) {
    return (uint64_t *)(void *)(sums_in(engine, buffer) + 2);
}

static int32_t word_index(int32_t gradient, int32_t micro_step) {
    return gradient * SHD_SUMS_STEPS + (micro_step < SHD_SUMS_STEPS ? micro_step : SHD_SUMS_STEPS - 1);
}

uint64_t *shd_device_nonfinite(const shd_engine *engine, const shd_instruction *reduce) {
    return words_in(engine, engine->config.plan->sums_buffer) + word_index(reduce->residency, reduce->micro_step);
}

void shd_device_norm(shd_engine *engine, const shd_instruction *instruction) {
    const shd_plan *plan = engine->config.plan;
    const shd_engine_place *place = &engine->device->place;
    int32_t group_index = plan->units[instruction->unit_index].trainable_group;
    shd_part own = shd_policy_part(&plan->policy, &plan->groups[group_index]);
    shd_stream *stream = shd_device_stream(engine, SHD_QUEUE_COMPUTE);
    shd_exact_sum *sums = sums_in(engine, plan->sums_buffer);
    if (own.count == 0) return;
    place->spans->square_sum(stream, shd_engine_accumulator(engine, group_index) + own.first, own.count, &sums[0]);
    /* Gaps between parameters have been zero since their memory was there. */
    const shd_held held = shd_engine_held(engine, group_index, -1, shd_policy_place(&plan->policy));
    place->spans->square_sum(stream, (const float *)(const void *)held.values + own.first, own.count, &sums[1]);
}

/* --- hearing ------------------------------------------------------------------------------------------------------ */

static void take_terms(shd_engine *engine) {
    shd_engine_device *device = engine->device;
    for (int32_t i = 0; i < device->late_count; i++) {
        const shd_late_terms *late = &device->late[i];
        if (late->metric >= 0)
            shd_engine_add_metric(engine, late->metric, late->terms, late->count);
        else
            shd_engine_add_loss_of(engine, late->terms, late->count, late->micro_step);
    }
    device->late_count = 0;
}

sherd_status shd_device_hear_terms(shd_engine *engine) {
    SHD_TRY(shd_device_await_compute(engine, "the device"));
    take_terms(engine);
    return SHERD_OK;
}

/* In the order in which reduces come, so that the first one stands. */
static void find_suspects(shd_engine *engine, const uint64_t *words) {
    const shd_plan *plan = engine->config.plan;
    for (int32_t k = 0; k < SHD_SUMS_STEPS; k++)
        for (int32_t i = 0; i < plan->gradient_count; i++)
            if (words[word_index(i, k)])
                shd_engine_suspect_places(engine, words[word_index(i, k)], k, plan->gradients[i].unit_index);
}

sherd_status shd_device_hear(shd_engine *engine) {
    const shd_plan *plan = engine->config.plan;
    const shd_engine_place *place = &engine->device->place;
    const bool summed = engine->program->kind == SHD_PROGRAM_TRAIN && plan->sums_buffer >= 0;
    if (summed)
        place->ops->copy(shd_device_stream(engine, SHD_QUEUE_COMPUTE), shd_engine_address(engine, plan->told_buffer),
                         shd_engine_address(engine, plan->sums_buffer), shd_plan_sums_bytes(plan));
    SHD_TRY(shd_device_hear_terms(engine));
    if (!summed) return SHERD_OK;
    engine->square_sum = sums_in(engine, plan->told_buffer)[0];
    engine->parameter_square_sum = sums_in(engine, plan->told_buffer)[1];
    find_suspects(engine, words_in(engine, plan->told_buffer));
    return SHERD_OK;
}

/* --- terms that come later ---------------------------------------------------------------------------------------- */

sherd_status shd_engine_add_terms_later(shd_engine *engine, int32_t metric, const double *terms, int64_t count) {
    assert(engine->device);
    shd_engine_device *device = engine->device;
    if (device->late_count == SHD_ENGINE_LATE_TERMS) SHD_TRY(shd_device_hear_terms(engine));
    device->late[device->late_count++] = (shd_late_terms){
        .terms = terms, .count = count, .metric = metric, .micro_step = shd_engine_current_micro_step(engine)};
    return SHERD_OK;
}
