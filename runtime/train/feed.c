#include "runtime/train/feed.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/session/setup.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { SLOTS = SHD_FEED_AHEAD + 1, CAUSE_BYTES = 2048 }; /* one more: the current step's */

/* How long each part of a row is; 0: rows have none. */
typedef struct row_lengths {
    int64_t inputs, targets, features, values, losses;
} row_lengths;

typedef struct slot {
    shd_example rows; /* [micro_steps, micro_batch] of them; NULL what they have not */
    int32_t *starts;  /* as long as inputs: document_starts of shd_batch; NULL without a separator */
    int64_t target_count;
} slot;

/* Step s lies in slot s mod SLOTS. The thread writes the slot of step `read`, the caller reads that of step taken - 1;
 * they are different ones, as read - (taken - 1) < SLOTS. */
struct shd_feed {
    shd_feed_config config;
    row_lengths lengths;
    slot slots[SLOTS];
    double *losses;  /* of a micro-batch */
    double *correct; /* [micro_batch] of classes, else NULL */
    pthread_t thread;
    bool started;
    int64_t first, step_count;
    pthread_mutex_t mutex; /* of what follows */
    pthread_cond_t changed;
    int64_t read, taken; /* steps */
    bool stop;
    sherd_status status; /* of the step that could not be read: number `read` */
    char cause[CAUSE_BYTES];
};

/* --- making ------------------------------------------------------------------------------------------------------- */

static int64_t loss_count(const shd_feed *feed) { return feed->config.micro_batch * feed->lengths.losses; }

static row_lengths find_lengths(const shd_feed_config *config) {
    const shd_sample_shape *shape = &config->shape;
    if (!config->samples)
        return (row_lengths){.inputs = config->context, .targets = config->context, .losses = config->context};
    if (shape->classes) return (row_lengths){.features = shape->input_count, .targets = 1, .losses = 1};
    return (row_lengths){.features = shape->input_count, .values = shape->output_count, .losses = shape->output_count};
}

static sherd_status out_of_memory(const shd_feed *feed) {
    return shd_fail(SHERD_MEMORY, "no memory for %d micro-batches of %lld %s", feed->config.micro_steps,
                    (long long)feed->config.micro_batch, feed->config.samples ? "samples" : "sequences");
}

/* Room for `length` elements of every row of a step in *out; none where that is 0. Elements are 4 bytes. */
static bool take_rows(const shd_feed *feed, int64_t length, void **out) {
    size_t row_count = (size_t)(feed->config.micro_batch * feed->config.micro_steps);
    if (length > 0) *out = shd_alloc(row_count, (size_t)length * 4);
    return length == 0 || *out;
}

static sherd_status init_slot(const shd_feed *feed, slot *made) {
    const row_lengths *lengths = &feed->lengths;
    bool good = take_rows(feed, lengths->inputs, (void **)&made->rows.inputs) &&
                take_rows(feed, lengths->targets, (void **)&made->rows.targets) &&
                take_rows(feed, lengths->features, (void **)&made->rows.features) &&
                take_rows(feed, lengths->values, (void **)&made->rows.values) &&
                take_rows(feed, feed->config.separator >= 0 ? lengths->inputs : 0, (void **)&made->starts);
    return good ? SHERD_OK : out_of_memory(feed);
}

static sherd_status init(shd_feed *feed) {
    bool classes = feed->config.samples && feed->config.shape.classes;
    feed->losses = shd_alloc((size_t)loss_count(feed), sizeof *feed->losses);
    if (classes) feed->correct = shd_alloc((size_t)feed->config.micro_batch, sizeof *feed->correct);
    if (!feed->losses || (classes && !feed->correct)) return out_of_memory(feed);
    return init_slot(feed, &feed->slots[0]);
}

sherd_status shd_feed_create(const shd_feed_config *config, shd_feed **out) {
    shd_feed *feed = shd_alloc(1, sizeof *feed);
    if (!feed) return shd_fail(SHERD_MEMORY, "no memory to feed data");
    feed->config = *config;
    feed->lengths = find_lengths(config);
    pthread_mutex_init(&feed->mutex, NULL);
    pthread_cond_init(&feed->changed, NULL);
    sherd_status status = init(feed);
    if (status != SHERD_OK) {
        shd_feed_destroy(feed);
        return status;
    }
    *out = feed;
    return SHERD_OK;
}

void shd_feed_destroy(shd_feed *feed) {
    if (!feed) return;
    if (feed->started) {
        pthread_mutex_lock(&feed->mutex);
        feed->stop = true;
        pthread_cond_broadcast(&feed->changed);
        pthread_mutex_unlock(&feed->mutex);
        pthread_join(feed->thread, NULL);
    }
    pthread_cond_destroy(&feed->changed);
    pthread_mutex_destroy(&feed->mutex);
    for (int i = 0; i < SLOTS; i++) {
        shd_free(feed->slots[i].rows.inputs);
        shd_free(feed->slots[i].rows.targets);
        shd_free(feed->slots[i].rows.features);
        shd_free(feed->slots[i].rows.values);
        shd_free(feed->slots[i].starts);
    }
    shd_free(feed->losses);
    shd_free(feed->correct);
    shd_free(feed);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* A separator belongs to the document that it ends. */
static void find_starts(const shd_feed *feed, const int32_t *inputs, int32_t *starts) {
    int32_t start = 0;
    for (int64_t i = 0; i < feed->config.context; i++) {
        starts[i] = start;
        if (inputs[i] == feed->config.separator) start = (int32_t)i + 1;
    }
}

static int32_t *integers_at(int32_t *rows, int64_t row, int64_t length) { return rows ? rows + row * length : NULL; }

static float *floats_at(float *rows, int64_t row, int64_t length) { return rows ? rows + row * length : NULL; }

/* Row `row` of all that a slot holds. */
static shd_example row_at(const shd_feed *feed, const slot *of, int64_t row) {
    const row_lengths *lengths = &feed->lengths;
    return (shd_example){.inputs = integers_at(of->rows.inputs, row, lengths->inputs),
                         .targets = integers_at(of->rows.targets, row, lengths->targets),
                         .features = floats_at(of->rows.features, row, lengths->features),
                         .values = floats_at(of->rows.values, row, lengths->values)};
}

/* Reads sequence number `q` into row `row` of a micro-step and counts its targets. */
static sherd_status read_row(const shd_feed *feed, slot *into, int32_t micro_step, int64_t row, int64_t q) {
    int64_t at = micro_step * feed->config.micro_batch + row, counted;
    const shd_example place = row_at(feed, into, at);
    SHD_TRY(shd_dataset_read(feed->config.dataset, q, &place, &counted));
    into->target_count += counted;
    if (into->starts) find_starts(feed, place.inputs, into->starts + at * feed->lengths.inputs);
    return SHERD_OK;
}

/* What stands in for a sequence or sample: its targets count for nothing. */
static void fill_row(const shd_feed *feed, slot *into, int64_t row) {
    const row_lengths *lengths = &feed->lengths;
    const shd_example place = row_at(feed, into, row);
    for (int64_t i = 0; i < lengths->inputs; i++) place.inputs[i] = 0;
    for (int64_t i = 0; i < lengths->features; i++) place.features[i] = 0;
    for (int64_t i = 0; i < lengths->targets; i++) place.targets[i] = -1;
    for (int64_t i = 0; i < lengths->values; i++) place.values[i] = NAN;
    for (int64_t i = 0; into->starts && i < lengths->inputs; i++) into->starts[row * lengths->inputs + i] = 0;
}

/* The number in the run of the first sequence of this rank's micro-batch `micro_step` in step `step`. */
static int64_t first_of_micro_batch(const shd_feed *feed, int64_t step, int32_t micro_step) {
    const shd_mesh *mesh = &feed->config.mesh;
    int64_t of_step = (int64_t)feed->config.micro_steps * mesh->world_size;
    int64_t micro_batch = step * of_step + shd_mesh_micro_batch(mesh, feed->config.micro_steps, micro_step);
    return feed->first + micro_batch * feed->config.micro_batch;
}

/* Reads this rank's micro-batches of a step. */
static sherd_status read_step(const shd_feed *feed, int64_t step, slot *into) {
    into->target_count = 0;
    for (int32_t k = 0; k < feed->config.micro_steps; k++) {
        int64_t first = first_of_micro_batch(feed, step, k);
        for (int64_t row = 0; row < feed->config.micro_batch; row++) SHD_TRY(read_row(feed, into, k, row, first + row));
    }
    return SHERD_OK;
}

/* Waits until there is room for another step; false when there is none left to read. */
static bool wait_for_room(shd_feed *feed) {
    pthread_mutex_lock(&feed->mutex);
    while (!feed->stop && feed->read < feed->step_count && feed->read - feed->taken == SHD_FEED_AHEAD)
        pthread_cond_wait(&feed->changed, &feed->mutex);
    bool more = !feed->stop && feed->read < feed->step_count;
    pthread_mutex_unlock(&feed->mutex);
    return more;
}

/* Hands the step over, or the reason why there is none. */
static void hand_over(shd_feed *feed, sherd_status status) {
    pthread_mutex_lock(&feed->mutex);
    feed->status = status;
    if (status == SHERD_OK)
        feed->read++;
    else
        snprintf(feed->cause, sizeof feed->cause, "%s", sherd_last_error());
    pthread_cond_broadcast(&feed->changed);
    pthread_mutex_unlock(&feed->mutex);
}

static void *read_ahead(void *user) {
    shd_feed *feed = user;
    sherd_status status = SHERD_OK;
    for (int64_t step = 0; status == SHERD_OK && wait_for_room(feed); step++) {
        status = read_step(feed, step, &feed->slots[step % SLOTS]);
        hand_over(feed, status);
    }
    return NULL;
}

sherd_status shd_feed_start(shd_feed *feed, int64_t first, int64_t step_count) {
    feed->first = first;
    feed->step_count = step_count;
    for (int i = 1; i < SLOTS; i++) SHD_TRY(init_slot(feed, &feed->slots[i]));
    /* Signals are the program's: none is to interrupt this thread. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&feed->thread, NULL, read_ahead, feed);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) return shd_fail(SHERD_MEMORY, "cannot start the thread that reads data: %s", strerror(error));
    feed->started = true;
    return SHERD_OK;
}

sherd_status shd_feed_next(shd_feed *feed, int64_t *target_count, int32_t *ready) {
    if (feed->taken == feed->step_count) return shd_fail(SHERD_ARGUMENT, "the feed has no step left");
    pthread_mutex_lock(&feed->mutex);
    *ready = (int32_t)(feed->read - feed->taken);
    while (feed->read == feed->taken && feed->status == SHERD_OK) pthread_cond_wait(&feed->changed, &feed->mutex);
    bool there = feed->read > feed->taken;
    if (there) feed->taken++;
    pthread_cond_broadcast(&feed->changed);
    pthread_mutex_unlock(&feed->mutex);
    if (!there) return shd_fail(feed->status, "%s", feed->cause);
    *target_count = feed->slots[(feed->taken - 1) % SLOTS].target_count;
    return SHERD_OK;
}

sherd_status shd_feed_read_padded(shd_feed *feed, int64_t index, int64_t sequence_count, int64_t *target_count) {
    int64_t size = feed->config.micro_batch;
    slot *into = &feed->slots[0];
    into->target_count = 0;
    for (int64_t row = 0; row < size; row++) {
        int64_t sequence = index * size + row;
        if (sequence < sequence_count)
            SHD_TRY(read_row(feed, into, 0, row, sequence));
        else
            fill_row(feed, into, row);
    }
    *target_count = into->target_count;
    return SHERD_OK;
}

shd_batch shd_feed_batch(const shd_feed *feed, int32_t micro_step) {
    const slot *current = &feed->slots[feed->started ? (feed->taken - 1) % SLOTS : 0];
    int64_t row = micro_step * feed->config.micro_batch;
    const shd_example rows = row_at(feed, current, row);
    return (shd_batch){.inputs = rows.inputs,
                       .targets = rows.targets,
                       .losses = feed->losses,
                       .first_sequence = feed->started ? first_of_micro_batch(feed, feed->taken - 1, micro_step) : 0,
                       .document_starts = integers_at(current->starts, row, feed->lengths.inputs),
                       .features = rows.features,
                       .values = rows.values,
                       .correct = feed->correct};
}

/* The same of a model on a device. */
static sherd_status add_later(const shd_feed *feed, sherd_session *session, const double *losses,
                              const double *correct) {
    SHD_TRY(shd_session_add_loss_later(session, losses, loss_count(feed)));
    return correct ? shd_session_add_metric_later(session, 0, correct, feed->config.micro_batch) : SHERD_OK;
}

sherd_status shd_feed_add(const shd_feed *feed, sherd_session *session, const shd_model *model,
                          const shd_batch *batch) {
    const double *losses, *correct;
    if (shd_model_late_losses(model, &losses, &correct)) return add_later(feed, session, losses, correct);
    SHD_TRY(sherd_add_loss(session, batch->losses, loss_count(feed)));
    return batch->correct ? sherd_add_metric(session, 0, batch->correct, feed->config.micro_batch) : SHERD_OK;
}
