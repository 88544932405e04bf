/* In-order lists of deferred work: the CPU's counterpart of a stream.
 *
 * An item runs on the session's thread, at a progress call, once it is first in its list and its `ready` says so; so a
 * list never blocks, and everything between submission and a wait is slack that hides the wait for other ranks. */
#ifndef SHD_DEVICE_QUEUE_H
#define SHD_DEVICE_QUEUE_H

#include <sherd/status.h>
#include <stdbool.h>
#include <stdint.h>

/* One deferred piece of work. Both functions get `context` and `item`. */
typedef struct shd_work {
    bool (*ready)(void *context, int32_t item);
    sherd_status (*run)(void *context, int32_t item);
    void *context;
    int32_t item;
} shd_work;

typedef struct shd_queue shd_queue;

/* `capacity`: the most items that can wait at once. Fails: MEMORY. */
sherd_status shd_queue_create(int32_t capacity, shd_queue **out);
/* Accepts NULL; waiting items are dropped. */
void shd_queue_destroy(shd_queue *queue);

/* Appends; never runs anything. Fails: INTERNAL when full. */
sherd_status shd_queue_submit(shd_queue *queue, const shd_work *work);

/* Runs items from the front while they are ready; *ran (may be NULL) becomes true if one ran. An item leaves the list
 * before it runs, so it may submit or make progress itself. Fails: as the items do; those behind the failed one still
 * wait. */
sherd_status shd_queue_progress(shd_queue *queue, bool *ran);

/* The item that is first in the list; -1: none waits. */
int32_t shd_queue_front(const shd_queue *queue);
/* Items that wait. */
int32_t shd_queue_length(const shd_queue *queue);

#endif
