/* The communication kernels: what moves through the rings, and when a kernel may start.
 *
 * What runs as a kernel hands no memory of the stack to functions that a sanitizer watches, and reports nothing itself. */
#include "tests/softcuda/soft_internal.h"
#include "tests/softcuda/soft_nccl.h"

#include <stdlib.h>
#include <string.h>

static soft_nccl_ring *ring_of(const struct ncclComm *communicator, int from, int to) {
    return &communicator->shared->rings[from * communicator->size + to];
}

static size_t room_in(soft_nccl_ring *ring) {
    return SOFT_NCCL_RING_BYTES - (size_t)(atomic_load(&ring->given) - atomic_load(&ring->taken));
}

static void give(soft_nccl_ring *ring, const void *from, size_t bytes) {
    size_t at = (size_t)(atomic_load(&ring->given) % SOFT_NCCL_RING_BYTES), first = SOFT_NCCL_RING_BYTES - at;
    if (first > bytes) first = bytes;
    memcpy(ring->bytes + at, from, first);
    memcpy(ring->bytes, (const char *)from + first, bytes - first);
    atomic_fetch_add(&ring->given, bytes);
}

static void take(soft_nccl_ring *ring, void *to, size_t bytes) {
    size_t at = (size_t)(atomic_load(&ring->taken) % SOFT_NCCL_RING_BYTES), first = SOFT_NCCL_RING_BYTES - at;
    if (first > bytes) first = bytes;
    memcpy(to, ring->bytes + at, first);
    memcpy((char *)to + first, ring->bytes, bytes - first);
    atomic_fetch_add(&ring->taken, bytes);
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static soft_nccl_heading heading_of(const soft_nccl_kernel *kernel, const soft_nccl_part *part) {
    return (soft_nccl_heading){.call = (uint64_t)part->call, .bytes = part->bytes, .launch = kernel->launch};
}

static void give_some(const soft_nccl_kernel *kernel, soft_nccl_part *part) {
    const struct ncclComm *communicator = kernel->communicator;
    soft_nccl_ring *ring = ring_of(communicator, communicator->rank, part->peer);
    if (!part->has_met) {
        if (room_in(ring) < sizeof part->heading) return;
        part->heading = heading_of(kernel, part);
        give(ring, &part->heading, sizeof part->heading);
        part->has_met = true;
    }
    size_t bytes = least(room_in(ring), part->bytes - part->moved);
    if (bytes > 0) give(ring, (const char *)part->from + part->moved, bytes);
    part->moved += bytes;
    if (part->moved == part->bytes && part->end == 0) part->end = atomic_load(&ring->given);
    part->is_done = part->end > 0 && atomic_load(&ring->taken) >= part->end;
}

static void take_some(soft_nccl_kernel *kernel, soft_nccl_part *part) {
    struct ncclComm *communicator = kernel->communicator;
    soft_nccl_ring *ring = ring_of(communicator, part->peer, communicator->rank);
    size_t there = SOFT_NCCL_RING_BYTES - room_in(ring);
    if (!part->has_met) {
        soft_nccl_heading ours = heading_of(kernel, part);
        if (there < sizeof ours) return;
        take(ring, &part->heading, sizeof part->heading);
        there -= sizeof ours;
        part->has_met = true;
        if (part->heading.call != ours.call || part->heading.bytes != ours.bytes ||
            part->heading.launch != ours.launch) {
            communicator->quarrel = (soft_nccl_quarrel){part->peer, ours, part->heading, true};
            communicator->failure = ncclInternalError;
            return;
        }
    }
    size_t bytes = least(there, part->bytes - part->moved);
    if (bytes > 0) take(ring, (char *)part->to + part->moved, bytes);
    part->moved += bytes;
    part->is_done = part->moved == part->bytes;
}

static bool is_blocked(const soft_nccl_kernel *kernel, size_t index) {
    const soft_nccl_part *part = &kernel->parts[index];
    for (size_t i = 0; i < index; i++) {
        const soft_nccl_part *before = &kernel->parts[i];
        bool is_same = before->kind == part->kind && before->peer == part->peer;
        if (!before->is_done && (is_same || part->is_after)) return true;
    }
    return false;
}

static void move(soft_nccl_kernel *kernel, soft_nccl_part *part) {
    size_t moved = part->moved;
    bool had_met = part->has_met;
    switch (part->kind) {
    case SOFT_NCCL_GIVE: give_some(kernel, part); break;
    case SOFT_NCCL_TAKE: take_some(kernel, part); break;
    case SOFT_NCCL_COPY:
        memmove(part->to, part->from, part->bytes);
        part->is_done = true;
        break;
    case SOFT_NCCL_ADD:
        for (size_t i = 0; i < part->bytes / sizeof(float); i++)
            ((float *)part->to)[i] += ((const float *)part->from)[i];
        part->is_done = true;
        break;
    }
    if (part->is_done || part->moved != moved || part->has_met != had_met)
        atomic_fetch_add(&kernel->communicator->shared->progress, 1);
}

static bool is_set(const char *variable) {
    const char *text = getenv(variable);
    return text && *text && strcmp(text, "0") != 0;
}

/* Whether the kernel may become one that runs. */
static bool may_start(const soft_nccl_kernel *kernel) {
    const soft_nccl_host *host = kernel->communicator->host;
    if (kernel->communicator->finished != kernel->number) return false;
    if (is_set("NCCL_LAUNCH_ORDER_IMPLICIT") && host->started != kernel->launch) return false;
    return !host->resident || !is_set("SOFTCUDA_NCCL_ONE");
}

static softcuda_progress run(void *state) {
    soft_nccl_kernel *kernel = state;
    struct ncclComm *communicator = kernel->communicator;
    if (!kernel->is_started) {
        if (!may_start(kernel)) return SOFTCUDA_WAITING;
        kernel->is_started = true;
        communicator->host->started++;
        communicator->host->resident = kernel;
    }
    bool all = true;
    for (size_t i = 0; i < kernel->part_count; i++) {
        if (communicator->is_aborted || communicator->failure != ncclSuccess) break;
        if (!kernel->parts[i].is_done && !is_blocked(kernel, i)) move(kernel, &kernel->parts[i]);
        all &= kernel->parts[i].is_done;
    }
    bool has_ended = communicator->is_aborted || communicator->failure != ncclSuccess;
    if (!all && !has_ended) return SOFTCUDA_WAITING;
    if (communicator->host->resident == kernel) communicator->host->resident = NULL;
    communicator->finished++;
    return SOFTCUDA_DONE;
}

/* --- life --------------------------------------------------------------------------------------------------------- */

soft_nccl_kernel *soft_nccl_kernel_create(struct ncclComm *communicator, cudaStream_t stream) {
    soft_nccl_kernel *kernel = calloc(1, sizeof *kernel);
    kernel->communicator = communicator;
    kernel->stream = stream;
    communicator->references++;
    return kernel;
}

void soft_nccl_kernel_drop(void *state) {
    soft_nccl_kernel *kernel = state;
    soft_nccl_release(kernel->communicator);
    free(kernel->parts);
    free(kernel->accesses);
    free(kernel->scratch);
    free(kernel);
}

void soft_nccl_add_part(soft_nccl_kernel *kernel, soft_nccl_part part) {
    kernel->parts = realloc(kernel->parts, (kernel->part_count + 1) * sizeof part);
    kernel->parts[kernel->part_count++] = part;
}

void soft_nccl_add_access(soft_nccl_kernel *kernel, const void *memory, size_t bytes, bool writes) {
    if (bytes == 0) return;
    kernel->accesses = realloc(kernel->accesses, (kernel->access_count + 1) * sizeof *kernel->accesses);
    kernel->accesses[kernel->access_count++] = (softcuda_access){.memory = memory, .bytes = bytes, .writes = writes};
}

ncclResult_t soft_nccl_launch(soft_nccl_kernel *kernel) {
    struct ncclComm *communicator = kernel->communicator;
    kernel->number = communicator->launched++;
    kernel->launch = communicator->host->launched++;
    softcuda_operation operation = {.name = soft_nccl_call_name(kernel->parts[0].call),
                                    .run = run,
                                    .drop = soft_nccl_kernel_drop,
                                    .state = kernel,
                                    .accesses = kernel->accesses,
                                    .access_count = kernel->access_count};
    return softcuda_enqueue(kernel->stream, &operation) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
