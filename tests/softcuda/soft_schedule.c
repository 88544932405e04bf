/* Streams, and which of them runs next: strict priorities, drawn and now and then drawn anew, so that a stream can starve
 * for long while another runs far ahead. */
#include "tests/softcuda/soft_internal.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHANGES = 8 /* one in so many steps draws a priority anew */, BURST = 4, WATCHED = 64 };

static cudaStream_t streams[SOFT_ENTITIES]; /* by entity; 0, the host, is none */
static uint32_t last_ticks[SOFT_ENTITIES];  /* of ended streams: their successors count on */
static uint64_t draws, schedule;
static softcuda_order order;
static uint32_t operation_count;
static double patience;
static const volatile uint64_t *watched[WATCHED];

int64_t soft_event_count;

uint64_t softcuda_random(void) { /* splitmix64 */
    uint64_t z = draws += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void softcuda_restart(uint64_t seed, softcuda_order new_order) {
    draws = seed * 0x2545f4914f6cdd1du;
    order = new_order;
    schedule = 0;
    soft_draw_priorities();
    softcuda_forget_reports();
}

void soft_draw_priorities(void) {
    for (int i = 1; i < SOFT_ENTITIES; i++)
        if (streams[i]) streams[i]->priority = (uint32_t)softcuda_random();
}

uint64_t softcuda_schedule(void) { return schedule; }
void softcuda_set_patience(double seconds) { patience = seconds; }
void softcuda_name_stream(cudaStream_t stream, const char *name) {
    snprintf(stream->name, sizeof stream->name, "%s", name);
}

const char *soft_entity_name(uint16_t entity) {
    if (entity == SOFT_HOST) return "host";
    return streams[entity] ? streams[entity]->name : "an ended stream";
}

void softcuda_watch_progress(const volatile uint64_t *counter) {
    for (int i = 0; i < WATCHED; i++)
        if (!watched[i]) {
            watched[i] = counter;
            return;
        }
}

void softcuda_unwatch_progress(const volatile uint64_t *counter) {
    for (int i = 0; i < WATCHED; i++)
        if (watched[i] == counter) watched[i] = NULL;
}

cudaError_t soft_stream_begin(unsigned flags, int device, cudaStream_t *out) {
    uint16_t entity = 1;
    while (entity < SOFT_ENTITIES && streams[entity]) entity++;
    if (entity == SOFT_ENTITIES) return cudaErrorMemoryAllocation;
    cudaStream_t stream = calloc(1, sizeof *stream);
    stream->entity = entity;
    stream->device = device;
    stream->priority = (uint32_t)softcuda_random();
    stream->clock.ticks[entity] = last_ticks[entity];
    snprintf(stream->name, sizeof stream->name, "stream %d", entity);
    streams[entity] = stream;
    if (!(flags & cudaStreamNonBlocking))
        softcuda_add_report("blocking stream: %s is created without cudaStreamNonBlocking", stream->name);
    *out = stream;
    return cudaSuccess;
}

void soft_record_drop(soft_record *record) {
    if (record && --record->references == 0) free(record);
}

static void end_entry(soft_entry *entry) {
    soft_record_drop(entry->record);
    if (entry->operation.drop) entry->operation.drop(entry->operation.state);
    free(entry);
}

static void pop(cudaStream_t stream) {
    soft_entry *entry = stream->head;
    stream->head = entry->next;
    if (!stream->head) stream->tail = NULL;
    end_entry(entry);
}

void soft_stream_end(cudaStream_t stream) {
    while (stream->head && soft_step()) {}
    while (stream->head) {
        if (stream->head->kind == SOFT_RECORD) stream->head->record->is_done = true;
        pop(stream);
    }
    last_ticks[stream->entity] = stream->clock.ticks[stream->entity];
    streams[stream->entity] = NULL;
    soft_tsan_end(stream->fiber);
    free(stream);
}

cudaStream_t soft_stream_at(int i) { return streams[i]; }
int soft_stream_slots(void) { return SOFT_ENTITIES; }

void soft_report_stream_leaks(void) {
    for (int i = 1; i < SOFT_ENTITIES; i++)
        if (streams[i]) softcuda_add_report("leak: %s", streams[i]->name);
    if (soft_event_count > 0) softcuda_add_report("leak: %lld events", (long long)soft_event_count);
}

soft_entry *soft_entry_create(cudaStream_t stream, soft_kind kind, const char *name) {
    soft_entry *entry = calloc(1, sizeof *entry);
    entry->kind = kind;
    entry->number = ++operation_count;
    entry->operation.name = soft_interned(soft_intern(name));
    soft_clock_join(&stream->clock, &soft_host_clock);
    stream->clock.ticks[stream->entity]++;
    soft_host_clock.ticks[SOFT_HOST]++;
    return entry;
}

void soft_entry_push(cudaStream_t stream, soft_entry *entry) {
    soft_tsan_release(entry);
    if (stream->tail)
        stream->tail->next = entry;
    else
        stream->head = entry;
    stream->tail = entry;
    if (order == SOFTCUDA_EAGER) {
        while (soft_step()) {}
    } else if (order == SOFTCUDA_RANDOM && softcuda_random() % 2) {
        for (uint64_t left = softcuda_random() % BURST; left > 0 && soft_step(); left--) {}
    }
}

cudaError_t soft_enqueue(cudaStream_t stream, const softcuda_operation *operation) {
    if ((uintptr_t)stream <= 2) { /* none, cudaStreamLegacy, cudaStreamPerThread */
        softcuda_add_report("default stream: %s is enqueued on it", operation->name);
        if (operation->drop) operation->drop(operation->state);
        return cudaErrorInvalidResourceHandle;
    }
    /* The entry has its accesses behind it. */
    soft_entry *entry = soft_entry_create(stream, SOFT_RUN, operation->name);
    size_t bytes = operation->access_count * sizeof *operation->accesses;
    entry = realloc(entry, sizeof *entry + bytes);
    softcuda_access *accesses = (softcuda_access *)(entry + 1);
    if (bytes > 0) memcpy(accesses, operation->accesses, bytes);
    const char *name = entry->operation.name;
    entry->operation = *operation;
    entry->operation.name = name;
    entry->operation.accesses = accesses;
    soft_stamp stamp = {stream->clock.ticks[stream->entity], entry->number, stream->entity, soft_intern(name)};
    bool is_inside = true;
    for (size_t i = 0; i < operation->access_count; i++) is_inside &= soft_check(&stamp, &stream->clock, &accesses[i]);
    if (!is_inside) { /* as on a device, where it is found when it runs and ends everything */
        end_entry(entry);
        softcuda_break(cudaErrorIllegalAddress);
        return cudaSuccess;
    }
    soft_entry_push(stream, entry);
    return cudaSuccess;
}

cudaError_t softcuda_enqueue(cudaStream_t stream, const softcuda_operation *operation) {
    soft_lock();
    cudaError_t code = soft_broken();
    if (code == cudaSuccess)
        code = soft_enqueue(stream, operation);
    else if (operation->drop)
        operation->drop(operation->state);
    return soft_leave(code);
}

/* What the sanitizers see of an operation: its own code, or its accesses. */
static softcuda_progress run_operation(cudaStream_t stream, soft_entry *entry) {
    softcuda_operation *operation = &entry->operation;
    void *host = soft_tsan_current();
    soft_tsan_switch(stream->fiber = soft_tsan_fiber(stream->fiber, stream->name));
    soft_tsan_acquire(entry);
    if (!operation->is_instrumented) soft_tsan_touch(operation->accesses, operation->access_count);
    soft_unveil(operation->accesses, operation->access_count);
    softcuda_progress progress = operation->run(operation->state);
    soft_veil(operation->accesses, operation->access_count);
    if (operation->is_instrumented && progress == SOFTCUDA_DONE && operation->drop) {
        operation->drop(operation->state); /* which its code has touched */
        operation->drop = NULL;
    }
    soft_tsan_release(&stream->done);
    soft_tsan_switch(host);
    return progress;
}

/* ThreadSanitizer's edge between streams, and to the host, goes over the record. */
static void mark_record(cudaStream_t stream, soft_record *record, bool is_reached) {
    void *host = soft_tsan_current();
    soft_tsan_switch(stream->fiber = soft_tsan_fiber(stream->fiber, stream->name));
    if (is_reached)
        soft_tsan_acquire(record);
    else
        soft_tsan_release(record);
    soft_tsan_switch(host);
}

/* False: it waits for something. */
static bool run_head(cudaStream_t stream) {
    soft_entry *entry = stream->head;
    switch (entry->kind) {
    case SOFT_RUN:
        if (soft_broken() == cudaSuccess && run_operation(stream, entry) == SOFTCUDA_WAITING) return false;
        break;
    case SOFT_RECORD:
        mark_record(stream, entry->record, false);
        entry->record->is_done = true;
        break;
    case SOFT_WAIT:
        if (!entry->record->is_done) return false;
        mark_record(stream, entry->record, true);
    }
    const uint32_t step[] = {stream->entity, entry->kind, soft_intern(entry->operation.name)};
    schedule = soft_hash(schedule, step, sizeof step);
    pop(stream);
    return true;
}

bool soft_step(void) {
    static bool is_running;
    bool is_tried[SOFT_ENTITIES] = {false};
    if (is_running) return false; /* an operation that enqueues: its turn has not ended */
    is_running = true;
    cudaStream_t best;
    do {
        best = NULL;
        for (int i = 1; i < SOFT_ENTITIES; i++)
            if (streams[i] && streams[i]->head && !is_tried[i] && (!best || streams[i]->priority > best->priority))
                best = streams[i];
        if (best) is_tried[best->entity] = true;
    } while (best && !run_head(best));
    if (best && softcuda_random() % CHANGES == 0) best->priority = (uint32_t)softcuda_random();
    is_running = false;
    return best != NULL;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Changes while anybody makes progress that this process waits for. */
static uint64_t look_at_peers(void) {
    uint64_t sum = 0;
    for (int i = 0; i < WATCHED; i++)
        if (watched[i]) sum += *watched[i] * (uint64_t)(2 * i + 1);
    return sum;
}

static void report_deadlock(const char *caller) {
    char text[900];
    size_t length = 0;
    for (int i = 1; i < SOFT_ENTITIES && length < sizeof text; i++) {
        if (!streams[i] || !streams[i]->head) continue;
        const soft_entry *head = streams[i]->head;
        length += (size_t)snprintf(text + length, sizeof text - length, "; %s is at %s (operation %u)",
                                   streams[i]->name, head->operation.name, head->number);
        if (head->kind == SOFT_WAIT && length < sizeof text)
            length += (size_t)snprintf(text + length, sizeof text - length, ", which waits for record %u on %s",
                                       head->record->number, soft_entity_name(head->record->entity));
    }
    softcuda_add_report("deadlock: %s waits and nothing has run for %g s%s", caller, patience, length ? text : "");
}

cudaError_t soft_wait_until(bool (*is_done)(void *what), void *what, const char *caller) {
    double since = now();
    uint64_t peers = look_at_peers();
    while (!is_done(what)) {
        if (soft_step()) {
            since = now();
            continue;
        }
        if (look_at_peers() != peers) {
            peers = look_at_peers();
            since = now();
        }
        if (now() - since > patience) {
            report_deadlock(caller);
            softcuda_break(cudaErrorLaunchTimeout);
            return cudaErrorLaunchTimeout;
        }
        soft_unlock();
        sched_yield();
        soft_lock();
    }
    return soft_broken();
}
