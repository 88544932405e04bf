/* See on_device.h. */
#include "runtime/engine/on_device.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <string.h>

/* --- life --------------------------------------------------------------------------------------------------------- */

static sherd_status create_marks(const shd_engine *engine, int32_t count, shd_mark **out) {
    const shd_engine_place *place = &engine->device->place;
    shd_mark *marks = shd_alloc((size_t)count, sizeof *marks);
    if (!marks) return shd_fail(SHERD_MEMORY, "no memory for %d events", count);
    *out = marks;
    for (int32_t i = 0; i < count; i++) SHD_TRY(place->ops->create_event(place->device, &marks[i].event));
    return SHERD_OK;
}

static void destroy_marks(const shd_engine *engine, int32_t count, shd_mark *marks) {
    for (int32_t i = 0; marks && i < count; i++)
        if (marks[i].event) engine->device->place.ops->destroy_event(marks[i].event);
    shd_free(marks);
}

sherd_status shd_device_begin(shd_engine *engine, int32_t longest_program) {
    const int32_t units = engine->config.plan->unit_count;
    shd_engine_device *device = shd_alloc(1, sizeof *device);
    if (!device) return shd_fail(SHERD_MEMORY, "no memory for an engine on a device");
    engine->device = device;
    device->place = *engine->config.place;
    device->mark_count = longest_program;
    device->raised = shd_alloc(SHD_COUNTERS * (size_t)units, sizeof *device->raised);
    device->copying = shd_alloc((size_t)units, sizeof *device->copying);
    if (!device->raised || !device->copying) return shd_fail(SHERD_MEMORY, "no memory for an engine on a device");
    SHD_TRY(create_marks(engine, longest_program, &device->marks));
    SHD_TRY(create_marks(engine, SHD_COUNTERS * units, &device->signal_marks));
    SHD_TRY(create_marks(engine, units, &device->save_marks));
    SHD_TRY(device->place.ops->create_event(device->place.device, &device->begun.event));
    return device->place.ops->create_event(device->place.device, &device->heard.event);
}

void shd_device_end(shd_engine *engine) {
    shd_engine_device *device = engine->device;
    if (!device) return;
    const int32_t units = engine->config.plan->unit_count;
    destroy_marks(engine, device->mark_count, device->marks);
    destroy_marks(engine, SHD_COUNTERS * units, device->signal_marks);
    destroy_marks(engine, units, device->save_marks);
    if (device->begun.event) device->place.ops->destroy_event(device->begun.event);
    if (device->heard.event) device->place.ops->destroy_event(device->heard.event);
    shd_free(device->copying);
    shd_free(device->raised);
    shd_free(device);
    engine->device = NULL;
}

/* --- order -------------------------------------------------------------------------------------------------------- */

shd_stream *shd_device_stream(const shd_engine *engine, shd_queue_id queue) {
    return engine->device->place.streams[queue];
}

void shd_device_record(shd_engine *engine, shd_queue_id queue, shd_mark *mark) {
    shd_engine_device *device = engine->device;
    int64_t *clock = device->clocks[queue];
    mark->queue = queue;
    mark->number = ++clock[queue];
    memcpy(mark->passed, clock, sizeof mark->passed);
    device->place.ops->record(shd_device_stream(engine, queue), mark->event);
}

static void learn(int64_t *clock, const int64_t *other) {
    for (int32_t q = 0; q < SHD_QUEUES; q++)
        if (other[q] > clock[q]) clock[q] = other[q];
}

void shd_device_passed(shd_engine *engine, const shd_mark *mark) { learn(engine->device->host_clock, mark->passed); }

void shd_device_follow(shd_engine *engine, shd_queue_id queue, const shd_mark *mark) {
    shd_engine_device *device = engine->device;
    shd_mark *pending = &device->pending[queue][mark->queue];
    if (mark->number > pending->number) *pending = *mark;
}

/* A later mark of a stream may follow what an earlier one of another stands for, never the other way round: so the one that
 * knows most comes first. */
static shd_mark *pick_pending(shd_engine_device *device, shd_queue_id queue) {
    shd_mark *best = NULL;
    for (int32_t q = 0; q < SHD_QUEUES; q++) {
        shd_mark *mark = &device->pending[queue][q];
        if (mark->number > 0 && (!best || mark->passed[best->queue] >= best->number)) best = mark;
    }
    return best;
}

void shd_device_settle(shd_engine *engine, shd_queue_id queue) {
    shd_engine_device *device = engine->device;
    int64_t *clock = device->clocks[queue];
    learn(clock, device->host_clock);
    for (shd_mark *mark; (mark = pick_pending(device, queue)); mark->number = 0) {
        if (clock[mark->queue] >= mark->number) continue;
        device->place.ops->await(shd_device_stream(engine, queue), mark->event);
        learn(clock, mark->passed);
    }
}

void shd_device_begin_run(shd_engine *engine) {
    shd_engine_device *device = engine->device;
    const shd_device_ops *ops = device->place.ops;
    const shd_plan *plan = engine->config.plan;
    shd_stream *compute = shd_device_stream(engine, SHD_QUEUE_COMPUTE);
    shd_device_settle(engine, SHD_QUEUE_COMPUTE);
    if (engine->program->kind == SHD_PROGRAM_TRAIN && plan->sums_buffer >= 0)
        ops->clear(compute, shd_engine_address(engine, plan->sums_buffer), plan->buffers[plan->sums_buffer].bytes);
    /* By then the compute stream has waited for all others. */
    shd_device_record(engine, SHD_QUEUE_COMPUTE, &device->begun);
    for (int32_t q = SHD_QUEUE_COMPUTE + 1; q < SHD_QUEUES; q++) device->idle[q] = true;
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

/* Whether it puts anything on its stream; the others only say what comes before what. */
static bool has_work(const shd_instruction *instruction) {
    return instruction->op != SHD_OP_WAIT && instruction->op != SHD_OP_RELEASE && instruction->op != SHD_OP_COMMIT;
}

static const shd_mark *mark_of(const shd_engine *engine, int32_t index) {
    const shd_instruction *instruction = &engine->program->instructions[index];
    return instruction->op == SHD_OP_SAVE ? &engine->device->save_marks[instruction->unit_index]
                                          : &engine->device->marks[index];
}

void shd_device_order(shd_engine *engine, const shd_instruction *instruction) {
    shd_engine_device *device = engine->device;
    const shd_program *program = engine->program;
    if (device->idle[instruction->queue]) shd_device_follow(engine, instruction->queue, &device->begun);
    device->idle[instruction->queue] = false;
    for (int32_t i = 0; i < instruction->waits.count; i++)
        shd_device_follow(engine, instruction->queue, mark_of(engine, program->waits[instruction->waits.first + i]));
    for (int32_t i = 0; i < instruction->awaits.count; i++) {
        const shd_await *await = &program->awaits[instruction->awaits.first + i];
        shd_device_follow(engine, instruction->queue,
                          &device->signal_marks[counter_index(engine, await->counter, await->unit_index)]);
    }
    if (has_work(instruction)) shd_device_settle(engine, instruction->queue);
}

void shd_device_mark(shd_engine *engine, const shd_instruction *instruction) {
    shd_engine_device *device = engine->device;
    shd_mark *mark = &device->marks[instruction - engine->program->instructions];
    /* COUNT is the host's alone; a SAVE has marked itself, where something is saved (mirrors.c). */
    if (instruction->op != SHD_OP_COUNT && instruction->op != SHD_OP_SAVE)
        shd_device_record(engine, instruction->queue, mark);
    else
        mark->number = 0;
    for (int32_t i = 0; i < instruction->signals.count; i++) {
        const shd_signal *signal = &engine->program->signals[instruction->signals.first + i];
        int32_t index = counter_index(engine, signal->counter, signal->unit_index);
        shd_device_record(engine, instruction->queue, &device->signal_marks[index]);
        device->raised[index]++;
    }
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

sherd_status shd_device_progress(shd_engine *engine) {
    const shd_engine_place *place = &engine->device->place;
    bool enqueued;
    SHD_TRY(shd_device_pass_saves(engine));
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

sherd_status shd_device_await_compute(shd_engine *engine, const char *what) {
    shd_engine_device *device = engine->device;
    shd_device_record(engine, SHD_QUEUE_COMPUTE, &device->heard);
    SHD_TRY(shd_device_await(engine, device->heard.event, what));
    shd_device_passed(engine, &device->heard);
    return SHERD_OK;
}
