#include "runtime/base/status.h"
#include "runtime/device/queue.h"

#include <criterion/criterion.h>

/* Items record that they ran, are ready up to `ready_until`, fail at `fails_at`, and submit `child` after `parent`. */
typedef struct trace {
    shd_queue *queue;
    int32_t ready_until, fails_at, parent, child;
    int32_t ran[64], ran_count, asked_count;
} trace;

static bool ready(void *context, int32_t item) {
    trace *t = context;
    t->asked_count++;
    return item <= t->ready_until;
}

static sherd_status run(void *context, int32_t item) {
    trace *t = context;
    t->ran[t->ran_count++] = item;
    if (item == t->fails_at) return shd_fail(SHERD_IO, "item %d", item);
    if (item != t->parent) return SHERD_OK;
    shd_work more = {.ready = ready, .run = run, .context = t, .item = t->child};
    SHD_TRY(shd_queue_submit(t->queue, &more));
    return shd_queue_progress(t->queue, NULL);
}

static sherd_status submit(trace *t, int32_t item) {
    shd_work work = {.ready = ready, .run = run, .context = t, .item = item};
    return shd_queue_submit(t->queue, &work);
}

static trace make(int32_t capacity) {
    trace t = {.ready_until = 1000, .fails_at = -1, .parent = -1};
    cr_assert_eq(shd_queue_create(capacity, &t.queue), SHERD_OK);
    return t;
}

Test(queue, runs_nothing_before_progress_and_everything_ready_in_order) {
    trace t = make(4);
    for (int32_t i = 0; i < 4; i++) cr_assert_eq(submit(&t, i), SHERD_OK);
    cr_assert_eq(t.ran_count, 0);
    cr_assert_eq(t.asked_count, 0);
    bool ran = false;
    cr_assert_eq(shd_queue_progress(t.queue, &ran), SHERD_OK);
    cr_assert(ran);
    cr_assert_eq(t.ran_count, 4);
    for (int32_t i = 0; i < 4; i++) cr_assert_eq(t.ran[i], i);
    cr_assert_eq(shd_queue_length(t.queue), 0);
    shd_queue_destroy(t.queue);
}

Test(queue, an_item_that_is_not_ready_holds_back_those_behind_it) {
    trace t = make(3);
    t.ready_until = 0;
    submit(&t, 0);
    submit(&t, 5); /* not ready */
    submit(&t, 0); /* ready, but second to 5 */
    cr_assert_eq(shd_queue_front(t.queue), 0);
    cr_assert_eq(shd_queue_progress(t.queue, NULL), SHERD_OK);
    cr_assert_eq(t.ran_count, 1);
    cr_assert_eq(shd_queue_length(t.queue), 2);
    cr_assert_eq(shd_queue_front(t.queue), 5);
    bool ran = false;
    cr_assert_eq(shd_queue_progress(t.queue, &ran), SHERD_OK);
    cr_assert_not(ran, "nothing ran, so *ran stays as it was");
    t.ready_until = 5;
    shd_queue_progress(t.queue, &ran);
    cr_assert(ran);
    cr_assert_eq(t.ran[1], 5);
    cr_assert_eq(t.ran[2], 0);
    cr_assert_eq(shd_queue_front(t.queue), -1, "an empty list");
    shd_queue_destroy(t.queue);
}

Test(queue, goes_round_its_ring_many_times) {
    trace t = make(3);
    int32_t next_in = 0, next_out = 0;
    for (int round = 0; round < 50; round++) {
        for (int k = 0; k <= round % 3; k++) cr_assert_eq(submit(&t, next_in++), SHERD_OK);
        t.ran_count = 0;
        cr_assert_eq(shd_queue_progress(t.queue, NULL), SHERD_OK);
        cr_assert_eq(t.ran_count, round % 3 + 1);
        for (int k = 0; k < t.ran_count; k++) cr_assert_eq(t.ran[k], next_out++);
    }
    shd_queue_destroy(t.queue);
}

Test(queue, refuses_more_than_its_capacity_and_keeps_what_it_has) {
    trace t = make(2);
    submit(&t, 7);
    submit(&t, 8);
    cr_assert_eq(submit(&t, 9), SHERD_INTERNAL);
    cr_assert_eq(shd_queue_length(t.queue), 2);
    shd_queue_progress(t.queue, NULL);
    cr_assert_eq(t.ran_count, 2);
    cr_assert_eq(t.ran[1], 8);
    shd_queue_destroy(t.queue);

    trace none = make(0);
    cr_assert_eq(submit(&none, 1), SHERD_INTERNAL);
    cr_assert_eq(shd_queue_progress(none.queue, NULL), SHERD_OK);
    shd_queue_destroy(none.queue);
}

Test(queue, passes_on_the_failure_of_an_item_and_stops_there) {
    trace t = make(3);
    t.fails_at = 1;
    for (int32_t i = 0; i < 3; i++) submit(&t, i);
    cr_assert_eq(shd_queue_progress(t.queue, NULL), SHERD_IO);
    cr_assert_str_eq(sherd_last_error(), "item 1");
    cr_assert_eq(t.ran_count, 2);
    cr_assert_eq(shd_queue_length(t.queue), 1);
    shd_queue_destroy(t.queue);
}

Test(queue, an_item_may_submit_and_make_progress_itself) {
    trace t = make(2);
    t.parent = 3;
    t.child = 4;
    submit(&t, 3);
    submit(&t, 9);
    cr_assert_eq(shd_queue_progress(t.queue, NULL), SHERD_OK);
    cr_assert_eq(t.ran_count, 3);
    cr_assert_eq(t.ran[0], 3);
    cr_assert_eq(t.ran[1], 9);
    cr_assert_eq(t.ran[2], 4);
    shd_queue_destroy(t.queue);
}

Test(queue, destroying_drops_waiting_items_and_accepts_null) {
    trace t = make(2);
    submit(&t, 1);
    shd_queue_destroy(t.queue);
    cr_assert_eq(t.ran_count, 0);
    shd_queue_destroy(NULL);
}
