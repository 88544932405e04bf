#include "tests/comm/slow_device.h"

#include <stdlib.h>
#include <string.h>

enum { STREAMS = 8, TASKS = 4096 };

typedef enum task_kind { COPY, RECORD, AWAIT } task_kind;

typedef struct task {
    task_kind kind;
    void *to;
    const void *from;
    int64_t bytes;
    shd_event *event;
    int64_t number; /* of the event's record */
} task;

struct shd_event {
    shd_device *device;
    int64_t recorded, reached; /* records that were asked for, and that the stream has come to */
    int64_t tasks;             /* that name it and have not run: it stays for them when it is destroyed, as CUDA's do */
    bool is_destroyed;
};

struct shd_stream {
    shd_device *device;
    task tasks[TASKS];
    int64_t given, done;
};

struct shd_device {
    uint64_t seed;
    shd_stream *streams[STREAMS];
    int32_t stream_count;
};

static uint64_t draw(shd_device *device) {
    device->seed = device->seed * 6364136223846793005u + 1442695040888963407u;
    return device->seed >> 33;
}

static void let_go(shd_event *event) {
    if (event->is_destroyed && event->tasks == 0) free(event);
}

/* Runs the stream's next task, if it can be run. */
static void step(shd_stream *stream) {
    if (stream->done == stream->given) return;
    task *next = &stream->tasks[stream->done % TASKS];
    if (next->kind == AWAIT && next->event->reached < next->number) return;
    if (next->kind == COPY) memcpy(next->to, next->from, (size_t)next->bytes);
    if (next->kind == RECORD) next->event->reached = next->number;
    stream->done++;
    if (!next->event) return;
    next->event->tasks--;
    let_go(next->event);
}

static void run_some(shd_device *device) {
    for (uint64_t i = draw(device) % 3; i > 0 && device->stream_count > 0; i--)
        step(device->streams[draw(device) % (uint64_t)device->stream_count]);
}

static void give(shd_stream *stream, task next) {
    while (stream->given - stream->done == TASKS) run_some(stream->device);
    if (next.event) next.event->tasks++;
    stream->tasks[stream->given++ % TASKS] = next;
    run_some(stream->device);
}

static sherd_status open_device(const shd_device_config *config, shd_device **out) {
    (void)config;
    *out = calloc(1, sizeof **out);
    (*out)->seed = (uint64_t)(uintptr_t)*out;
    return SHERD_OK;
}

static void close_device(shd_device *device) { free(device); }

static sherd_status allocate(shd_device *device, int64_t bytes, void **out) {
    (void)device;
    *out = aligned_alloc(4096, (size_t)(bytes + 4095) / 4096 * 4096 + 4096);
    memset(*out, 0, (size_t)bytes);
    return SHERD_OK;
}

static void release(shd_device *device, void *memory) {
    (void)device;
    free(memory);
}

static sherd_status pin(shd_device *device, void *memory, int64_t bytes, void **address) {
    (void)device;
    (void)bytes;
    *address = memory;
    return SHERD_OK;
}

static void unpin(shd_device *device, void *memory) {
    (void)device;
    (void)memory;
}

static sherd_status create_stream(shd_device *device, const char *name, bool urgent, shd_stream **out) {
    (void)name;
    (void)urgent;
    *out = calloc(1, sizeof **out);
    (*out)->device = device;
    device->streams[device->stream_count++] = *out;
    return SHERD_OK;
}

static void destroy_stream(shd_stream *stream) {
    shd_device *device = stream->device;
    while (stream->done < stream->given) run_some(device);
    for (int32_t i = 0; i < device->stream_count; i++)
        if (device->streams[i] == stream) device->streams[i--] = device->streams[--device->stream_count];
    free(stream);
}

static sherd_status create_event(shd_device *device, shd_event **out) {
    *out = calloc(1, sizeof **out);
    (*out)->device = device;
    return SHERD_OK;
}

static void destroy_event(shd_event *event) {
    event->is_destroyed = true;
    let_go(event);
}

static void record(shd_stream *stream, shd_event *event) {
    give(stream, (task){.kind = RECORD, .event = event, .number = ++event->recorded});
}

static void await(shd_stream *stream, shd_event *event) {
    give(stream, (task){.kind = AWAIT, .event = event, .number = event->recorded});
}

static bool reached(shd_event *event) {
    run_some(event->device);
    return event->reached == event->recorded;
}

static void copy(shd_stream *stream, void *to, const void *from, int64_t bytes) {
    give(stream, (task){.kind = COPY, .to = to, .from = from, .bytes = bytes});
}

/* What links need and their tests. */
const shd_device_ops slow_device_ops = {
    .name = "slow",
    .open = open_device,
    .close = close_device,
    .allocate = allocate,
    .release = release,
    .allocate_pinned = allocate,
    .release_pinned = release,
    .pin = pin,
    .unpin = unpin,
    .create_stream = create_stream,
    .destroy_stream = destroy_stream,
    .create_event = create_event,
    .destroy_event = destroy_event,
    .record = record,
    .await = await,
    .reached = reached,
    .copy = copy,
};
