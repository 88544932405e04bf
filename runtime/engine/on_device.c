/* See on_device.h. */
#include "runtime/engine/on_device.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <string.h>

/* --- life --------------------------------------------------------------------------------------------------------- */

static sherd_status create_events(const shd_engine *engine, int32_t count, shd_event ***out) {
    const shd_engine_place *place = &engine->device->place;
    shd_event **events = shd_alloc((size_t)count, sizeof *events);
    if (!events) return shd_fail(SHERD_MEMORY, "no memory for %d events", count);
    *out = events;
    for (int32_t i = 0; i < count; i++) SHD_TRY(place->ops->create_event(place->device, &events[i]));
    return SHERD_OK;
}

static void destroy_events(const shd_engine *engine, int32_t count, shd_event **events) {
    for (int32_t i = 0; events && i < count; i++)
        if (events[i]) engine->device->place.ops->destroy_event(events[i]);
    shd_free(events);
}

sherd_status shd_device_begin(shd_engine *engine, int32_t longest_program) {
    const int32_t units = engine->config.plan->unit_count;
    shd_engine_device *device = shd_alloc(1, sizeof *device);
    if (!device) return shd_fail(SHERD_MEMORY, "no memory for an engine on a device");
    engine->device = device;
    device->place = *engine->config.place;
    device->event_count = longest_program;
    device->raised = shd_alloc(SHD_COUNTERS * (size_t)units, sizeof *device->raised);
    device->copying = shd_alloc((size_t)units, sizeof *device->copying);
    if (!device->raised || !device->copying) return shd_fail(SHERD_MEMORY, "no memory for an engine on a device");
    SHD_TRY(create_events(engine, longest_program, &device->events));
    SHD_TRY(create_events(engine, SHD_COUNTERS * units, &device->signal_events));
    SHD_TRY(create_events(engine, units, &device->save_events));
    SHD_TRY(device->place.ops->create_event(device->place.device, &device->begun));
    return device->place.ops->create_event(device->place.device, &device->heard);
}

void shd_device_end(shd_engine *engine) {
    shd_engine_device *device = engine->device;
    if (!device) return;
    const int32_t units = engine->config.plan->unit_count;
    destroy_events(engine, device->event_count, device->events);
    destroy_events(engine, SHD_COUNTERS * units, device->signal_events);
    destroy_events(engine, units, device->save_events);
    if (device->begun) device->place.ops->destroy_event(device->begun);
    if (device->heard) device->place.ops->destroy_event(device->heard);
    shd_free(device->copying);
    shd_free(device->raised);
    shd_free(device);
    engine->device = NULL;
}

/* --- order -------------------------------------------------------------------------------------------------------- */

shd_stream *shd_device_stream(const shd_engine *engine, shd_queue_id queue) {
    return engine->device->place.streams[queue];
}

void shd_device_begin_run(shd_engine *engine) {
    shd_engine_device *device = engine->device;
    const shd_device_ops *ops = device->place.ops;
    const shd_plan *plan = engine->config.plan;
    shd_stream *compute = shd_device_stream(engine, SHD_QUEUE_COMPUTE);
    if (engine->program->kind == SHD_PROGRAM_TRAIN && plan->sums_buffer >= 0)
        ops->clear(compute, shd_engine_address(engine, plan->sums_buffer), plan->buffers[plan->sums_buffer].bytes);
    /* By then the compute stream has waited for all others. */
    ops->record(compute, device->begun);
    for (int32_t q = SHD_QUEUE_COMPUTE + 1; q < SHD_QUEUES; q++)
        ops->await(shd_device_stream(engine, (shd_queue_id)q), device->begun);
    device->late_count = 0;
    device->turn = 0;
}

static int32_t counter_index(const shd_engine *engine, shd_counter counter, int32_t unit_index) {
    return (int32_t)counter * engine->config.plan->unit_count + unit_index;
}

bool shd_device_signalled(const shd_engine *engine, const shd_instruction *instruction) {
    for (int32_t i = 0; i < instruction->awaits.count; i++) {
        const shd_await *await = &engine->program->awaits[instruction->awaits.first + i];
        int32_t index = counter_index(engine, await->counter, await->unit_index);
        if (engine->device->raised[index] < engine->counter_base[index] + await->target) return false;
    }
    return true;
}

void shd_device_order(shd_engine *engine, const shd_instruction *instruction) {
    const shd_engine_device *device = engine->device;
    const shd_program *program = engine->program;
    shd_stream *stream = shd_device_stream(engine, instruction->queue);
    for (int32_t i = 0; i < instruction->waits.count; i++)
        device->place.ops->await(stream, device->events[program->waits[instruction->waits.first + i]]);
    for (int32_t i = 0; i < instruction->awaits.count; i++) {
        const shd_await *await = &program->awaits[instruction->awaits.first + i];
        device->place.ops->await(stream,
                                 device->signal_events[counter_index(engine, await->counter, await->unit_index)]);
    }
}

void shd_device_mark(shd_engine *engine, const shd_instruction *instruction) {
    shd_engine_device *device = engine->device;
    shd_stream *stream = shd_device_stream(engine, instruction->queue);
    device->place.ops->record(stream, device->events[instruction - engine->program->instructions]);
    for (int32_t i = 0; i < instruction->signals.count; i++) {
        const shd_signal *signal = &engine->program->signals[instruction->signals.first + i];
        int32_t index = counter_index(engine, signal->counter, signal->unit_index);
        device->place.ops->record(stream, device->signal_events[index]);
        device->raised[index]++;
    }
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

sherd_status shd_device_progress(shd_engine *engine) {
    const shd_engine_place *place = &engine->device->place;
    bool enqueued;
    shd_device_pass_saves(engine);
    if (!place->link) return SHERD_OK;
    for (int32_t lane = 0; lane < SHD_LANES; lane++)
        SHD_TRY(place->link_ops->progress(place->link, (shd_lane)lane, &enqueued));
    return SHERD_OK;
}

static sherd_status look_for_failures(const shd_engine *engine) {
    const shd_engine_place *place = &engine->device->place;
    if (place->link) SHD_TRY(place->link_ops->check(place->link));
    return place->ops->status(place->device);
}

sherd_status shd_device_await(shd_engine *engine, shd_event *event, const char *what) {
    const shd_device_ops *ops = engine->device->place.ops;
    shd_patience patience = {.nap_ms = SHD_DEVICE_NAP_MS};
    while (!ops->reached(event)) {
        SHD_TRY(shd_engine_progress_queues(engine));
        SHD_TRY(look_for_failures(engine));
        SHD_TRY(shd_comm_pause(engine->config.comm, &patience, what));
    }
    return look_for_failures(engine);
}
