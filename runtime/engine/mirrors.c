/* Mirrors: what the host sets, stores and reads of a device's memory. */
#include "runtime/base/status.h"
#include "runtime/engine/on_device.h"

#include <assert.h>
#include <string.h>

void *shd_device_mirror(const shd_engine *engine, int32_t buffer_index, const void *values) {
    const shd_plan *plan = engine->config.plan;
    const shd_buffer *buffer = &plan->buffers[buffer_index];
    assert(buffer->mirror_buffer > 0);
    const char *first = (const char *)shd_engine_address(engine, buffer_index) + shd_plan_mirrored_first(plan, buffer);
    char *mirror = shd_engine_address(engine, buffer->mirror_buffer - 1);
    return mirror + ((const char *)values - first);
}

/* Copies all that is mirrored of a buffer, there or back. */
static void copy(shd_engine *engine, shd_queue_id queue, const shd_buffer *mirror, bool to_device) {
    const shd_plan *plan = engine->config.plan;
    const shd_buffer *buffer = &plan->buffers[mirror->owner_index];
    char *there = (char *)shd_engine_address(engine, mirror->owner_index) + shd_plan_mirrored_first(plan, buffer);
    char *here = shd_engine_address(engine, buffer->mirror_buffer - 1);
    engine->device->place.ops->copy(shd_device_stream(engine, queue), to_device ? there : here,
                                    to_device ? here : there, mirror->bytes);
}

static void copy_all(shd_engine *engine, bool to_device) {
    const shd_plan *plan = engine->config.plan;
    for (int32_t b = 0; b < plan->buffer_count; b++)
        if (plan->buffers[b].kind == SHD_BUFFER_MIRROR) copy(engine, SHD_QUEUE_COMPUTE, &plan->buffers[b], to_device);
}

static void round_masters(shd_engine *engine) {
    const shd_plan *plan = engine->config.plan;
    const shd_engine_place *place = &engine->device->place;
    for (int32_t g = 0; g < plan->group_count; g++) {
        void *rounded = shd_engine_copy(engine, g);
        if (!rounded) continue;
        const shd_held masters = shd_engine_held(engine, g, -1, -1);
        place->spans->round(shd_device_stream(engine, SHD_QUEUE_COMPUTE), plan->policy.parameter_dtype, masters.count,
                            (const float *)(const void *)masters.values, rounded);
    }
}

sherd_status shd_engine_take_values(shd_engine *engine) {
    if (!engine->device) return SHERD_OK;
    shd_device_settle(engine, SHD_QUEUE_COMPUTE);
    copy_all(engine, true);
    round_masters(engine);
    return engine->device->place.ops->status(engine->device->place.device);
}

sherd_status shd_engine_show_values(shd_engine *engine) {
    if (!engine->device) return SHERD_OK;
    shd_device_settle(engine, SHD_QUEUE_COMPUTE);
    copy_all(engine, false);
    return shd_device_await_compute(engine, "the copy of parameters");
}

/* --- saving ------------------------------------------------------------------------------------------------------- */

static bool is_of_unit(const shd_plan *plan, const shd_buffer *mirror, int32_t unit) {
    return mirror->kind == SHD_BUFFER_MIRROR &&
           plan->groups[plan->buffers[mirror->owner_index].owner_index].unit_index == unit;
}

void shd_device_save(shd_engine *engine, const shd_instruction *instruction) {
    const shd_storage *storage = engine->config.storage;
    const shd_plan *plan = engine->config.plan;
    shd_engine_device *device = engine->device;
    int32_t unit = instruction->unit_index;
    /* What an earlier run has begun to copy is of the state to be saved; what is there now may be a later one. */
    if (!storage || device->copying[unit]) return;
    if (!storage->wants(storage->user, unit)) {
        storage->save(storage->user, unit);
        return;
    }
    shd_device_order(engine, instruction);
    for (int32_t b = 0; b < plan->buffer_count; b++)
        if (is_of_unit(plan, &plan->buffers[b], unit)) copy(engine, SHD_QUEUE_COPY, &plan->buffers[b], false);
    shd_device_record(engine, SHD_QUEUE_COPY, &device->save_marks[unit]);
    device->copying[unit] = true;
}

sherd_status shd_device_pass_saves(shd_engine *engine) {
    const shd_storage *storage = engine->config.storage;
    shd_engine_device *device = engine->device;
    const shd_engine_place *place = &device->place;
    for (int32_t u = 0; u < engine->config.plan->unit_count; u++) {
        if (!device->copying[u] || !place->ops->reached(device->save_marks[u].event)) continue;
        /* After a failure nothing that is there can be trusted: the session is about to end. */
        SHD_TRY(place->ops->status(place->device));
        device->copying[u] = false;
        shd_device_passed(engine, &device->save_marks[u]);
        storage->save(storage->user, u);
    }
    return SHERD_OK;
}

void shd_device_forget_saves(shd_engine *engine) {
    memset(engine->device->copying, 0, (size_t)engine->config.plan->unit_count * sizeof *engine->device->copying);
}

sherd_status shd_engine_finish_saves(shd_engine *engine) {
    for (int32_t u = 0; engine->device && u < engine->config.plan->unit_count; u++)
        while (engine->device->copying[u]) SHD_TRY(shd_engine_await_disk(engine));
    return SHERD_OK;
}
