/* A ring of work items. Invariant: the `length` items from `head` on wait, in the order of their submission. */
#include "runtime/device/queue.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <assert.h>

struct shd_queue {
    int32_t capacity, head, length;
    shd_work items[];
};

sherd_status shd_queue_create(int32_t capacity, shd_queue **out) {
    assert(capacity >= 0);
    shd_queue *queue = shd_alloc(1, sizeof *queue + (size_t)capacity * sizeof *queue->items);
    if (!queue) return shd_fail(SHERD_MEMORY, "no memory for a queue of %d items", capacity);
    queue->capacity = capacity;
    *out = queue;
    return SHERD_OK;
}

void shd_queue_destroy(shd_queue *queue) { shd_free(queue); }

sherd_status shd_queue_submit(shd_queue *queue, const shd_work *work) {
    if (queue->length == queue->capacity)
        return shd_fail(SHERD_INTERNAL, "a queue planned for %d waiting items is full", queue->capacity);
    int64_t tail = ((int64_t)queue->head + queue->length) % queue->capacity;
    queue->items[tail] = *work;
    queue->length++;
    return SHERD_OK;
}

sherd_status shd_queue_progress(shd_queue *queue, bool *ran) {
    while (queue->length > 0) {
        shd_work work = queue->items[queue->head];
        if (!work.ready(work.context, work.item)) break;
        /* Taken out before it runs, so that it may submit, and cannot run twice if it makes progress itself. */
        queue->head = (queue->head + 1) % queue->capacity;
        queue->length--;
        if (ran) *ran = true;
        SHD_TRY(work.run(work.context, work.item));
    }
    return SHERD_OK;
}

int32_t shd_queue_front(const shd_queue *queue) { return queue->length > 0 ? queue->items[queue->head].item : -1; }

int32_t shd_queue_length(const shd_queue *queue) { return queue->length; }
