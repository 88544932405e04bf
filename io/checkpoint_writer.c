/* Reading order: what is planned at create; the tasks that threads take, and their loop; what the trainer calls.
 *
 * All that threads share is under the lock, but for the two things that are asked without it: the state, and whether a
 * ticket is done. A thread takes one task at a time: to make the file, to encode a block and write it, to close the file
 * with its index, or to remove it after a failure. The last two are for a thread that finds no other one busy. */
#include "io/checkpoint_writer.h"

#include "io/checkpoint_file.h"
#include "io/checkpoint_folder.h"
#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { CAUSE_BYTES = 2048 };

/* A block that is written in every save. */
typedef struct planned_block {
    const void *values;
    int32_t ticket;
    shd_file_block about; /* without what encoding finds, and where it will lie */
} planned_block;

typedef struct writer_ticket {
    int64_t first_block, end_block;
    int64_t unread;   /* blocks that are still to be encoded */
    int32_t encoding; /* those of them that a thread is reading */
    bool submitted;
    atomic_bool done;
} writer_ticket;

typedef struct writer_thread {
    pthread_t thread;
    struct shd_writer *writer;
    int64_t save; /* the number of the save that the codec was made for: others use the room in between */
    shd_block_codec *codec;
    char *room;   /* of the codec */
    char *stored; /* a block */
} writer_thread;

typedef enum file_progress { FILE_WANTED, FILE_OPENING, FILE_OPEN, FILE_CLOSING } file_progress;

struct shd_writer {
    shd_writer_config config;
    int64_t block_count;
    planned_block *planned;
    shd_file_block *placed; /* this save's, by rising offset */
    writer_ticket *tickets;
    int32_t *queue; /* tickets in the order of submission */
    writer_thread *threads;
    int32_t thread_count; /* those that run */
    atomic_int state;

    pthread_mutex_t lock;
    pthread_cond_t work;    /* there may be a task */
    pthread_cond_t changed; /* of the state, or the file is open */
    bool ending;

    /* of this save: */
    char folder[SHD_PATH_BYTES];
    shd_rank_file_maker maker; /* its descriptor is -1 while there is none */
    int entered;               /* the folder, locked as somebody's from the file's making to close; -1 */
    file_progress file;
    int64_t save, step;
    int32_t rank;
    int32_t queued, current; /* tickets submitted; the one in the queue that blocks are taken from */
    int64_t next_block;      /* of it */
    int64_t placed_count, end_bytes;
    int32_t busy; /* threads at a task */
    bool finishing, failed;
    sherd_status status;
    char cause[CAUSE_BYTES];
    int64_t begin_ns;
    shd_writer_totals totals;
};

/* --- what is planned ---------------------------------------------------------------------------------------------- */

/* Room of one thread. */
static int64_t thread_bytes(int32_t compression) {
    return shd_block_codec_bytes(compression) + shd_block_stored_bytes_max(SHD_BLOCK_RAW_BYTES_MAX);
}

int64_t shd_writer_memory_bytes(int32_t compression, int32_t threads) { return threads * thread_bytes(compression); }

static sherd_status check_slice(const shd_checkpoint_slice *slice) {
    bool parameter = strcmp(slice->state, SHD_CHECKPOINT_PARAMETER) == 0;
    bool takes = slice->dtype == SHERD_FP32 || parameter != (slice->dtype == SHERD_INT8);
    if (slice->first < 0 || slice->count < 0 || !takes ||
        (slice->dtype == SHERD_INT8 && slice->first % SHD_CODE_BLOCK_COUNT != 0))
        return shd_fail(SHERD_ARGUMENT, "%s of tensor %s, elements %lld to %lld, cannot be stored as %s", slice->state,
                        slice->tensor, (long long)slice->first, (long long)(slice->first + slice->count),
                        shd_dtype_text(slice->dtype));
    return SHERD_OK;
}

static int64_t count_blocks(const shd_writer_config *config) {
    int64_t count = 0;
    for (int64_t i = 0; i < config->slice_count; i++)
        count += shd_div_ceil(config->slices[i].count, shd_block_count_max(config->slices[i].dtype));
    return count;
}

static planned_block *plan_slice(const shd_checkpoint_slice *slice, int32_t ticket, planned_block *next) {
    int64_t most = shd_block_count_max(slice->dtype);
    for (int64_t done = 0; done < slice->count; done += most)
        *next++ = (planned_block){
            .values = (const char *)slice->values + shd_span_bytes(slice->dtype, done),
            .ticket = ticket,
            .about = {.tensor = slice->tensor,
                      .state = slice->state,
                      .first = slice->first + done,
                      .form = {.dtype = slice->dtype, .count = shd_min(most, slice->count - done)}},
        };
    return next;
}

static void plan_blocks(shd_writer *writer) {
    const shd_writer_config *config = &writer->config;
    planned_block *next = writer->planned;
    int64_t slice = 0;
    for (int32_t t = 0; t < config->ticket_count; t++) {
        writer->tickets[t].first_block = next - writer->planned;
        for (; slice < config->ticket_ends[t]; slice++) next = plan_slice(&config->slices[slice], t, next);
        writer->tickets[t].end_block = next - writer->planned;
    }
    assert(slice == config->slice_count);
}

/* --- failing, and giving tickets back (under the lock) ------------------------------------------------------------ */

static void end_ticket(writer_ticket *ticket) {
    if (ticket->unread == 0) atomic_store_explicit(&ticket->done, true, memory_order_release);
}

/* After a failure nobody begins to read a ticket's values; those who do already may finish. */
static void give_up_ticket(writer_ticket *ticket) {
    ticket->unread = ticket->encoding;
    end_ticket(ticket);
}

static void fail_save(shd_writer *writer, sherd_status status) {
    if (writer->failed) return;
    writer->failed = true;
    writer->status = status;
    snprintf(writer->cause, sizeof writer->cause, "%s", sherd_last_error());
    for (int32_t i = writer->current; i < writer->queued; i++) give_up_ticket(&writer->tickets[writer->queue[i]]);
    pthread_cond_broadcast(&writer->changed);
}

static void set_state(shd_writer *writer, shd_writer_state state) {
    atomic_store_explicit(&writer->state, (int)state, memory_order_release);
    pthread_cond_broadcast(&writer->changed);
}

/* --- tasks -------------------------------------------------------------------------------------------------------- */

typedef enum writer_task { TASK_NONE, TASK_OPEN, TASK_BLOCK, TASK_SEAL, TASK_ABANDON, TASK_END } writer_task;

static int64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * (int64_t)1000000000 + now.tv_nsec;
}

static bool has_block(const shd_writer *writer) { return writer->current < writer->queued; }

static writer_task find_task(const shd_writer *writer) {
    if (writer->ending) return TASK_END;
    if (shd_writer_state_of(writer) != SHD_WRITER_WRITING) return TASK_NONE;
    if (writer->failed) return writer->busy == 0 ? TASK_ABANDON : TASK_NONE;
    if (writer->file == FILE_WANTED) return TASK_OPEN;
    if (has_block(writer)) return TASK_BLOCK;
    bool last = writer->finishing && writer->busy == 0 && writer->file == FILE_OPEN;
    return last ? TASK_SEAL : TASK_NONE;
}

/* The next block of the ticket in turn. There is one: see advance. */
static const planned_block *take_block(shd_writer *writer) {
    const planned_block *block = &writer->planned[writer->next_block++];
    writer->tickets[block->ticket].encoding++;
    return block;
}

/* Makes the ticket in turn one that has a block left, if there is any. */
static void advance(shd_writer *writer, bool next_ticket) {
    while (writer->current < writer->queued) {
        const writer_ticket *ticket = &writer->tickets[writer->queue[writer->current]];
        if (next_ticket) writer->next_block = ticket->first_block;
        if (writer->next_block < ticket->end_block) return;
        writer->current++;
        next_ticket = true;
    }
}

static void leave(shd_writer *writer) {
    shd_file_close(writer->entered);
    writer->entered = -1;
}

static sherd_status open_file(shd_writer *writer, shd_rank_file_maker *maker) {
    char path[SHD_PATH_BYTES];
    SHD_TRY(shd_rank_file_path(path, writer->folder, writer->rank));
    SHD_TRY(shd_checkpoint_partial_enter(writer->folder, &writer->entered));
    return shd_rank_file_create(maker, path, writer->step, writer->rank);
}

/* Each task is entered and left with the lock held. */
static void run_open(shd_writer *writer) {
    writer->file = FILE_OPENING;
    pthread_mutex_unlock(&writer->lock);
    sherd_status status = open_file(writer, &writer->maker);
    pthread_mutex_lock(&writer->lock);
    writer->file = FILE_OPEN;
    if (status != SHERD_OK) fail_save(writer, status);
    pthread_cond_broadcast(&writer->changed);
}

/* Gives an encoded block its place, behind all others. */
static const shd_file_block *place_block(shd_writer *writer, const planned_block *block, const shd_block_form *form) {
    shd_file_block *placed = &writer->placed[writer->placed_count++];
    *placed = block->about;
    placed->form = *form;
    placed->offset_bytes = writer->end_bytes;
    writer->end_bytes += form->stored_bytes;
    writer->totals.raw_bytes += shd_span_bytes(form->dtype, form->count);
    return placed;
}

/* The room was others' since the last save. */
static void prepare_codec(const shd_writer *writer, writer_thread *self) {
    if (self->save != writer->save) self->codec = shd_block_codec_init(self->room, writer->config.compression);
    self->save = writer->save;
}

static void run_block(shd_writer *writer, writer_thread *self) {
    const planned_block *block = take_block(writer);
    writer_ticket *ticket = &writer->tickets[block->ticket];
    shd_block_form form = block->about.form;
    advance(writer, false);
    pthread_mutex_unlock(&writer->lock);
    prepare_codec(writer, self);
    shd_block_encode(self->codec, block->values, self->stored, &form);
    pthread_mutex_lock(&writer->lock);
    ticket->encoding--;
    ticket->unread--;
    end_ticket(ticket);
    while (writer->file != FILE_OPEN && !writer->failed && !writer->ending)
        pthread_cond_wait(&writer->changed, &writer->lock);
    if (writer->failed || writer->ending) return;
    shd_file_block placed = *place_block(writer, block, &form);
    pthread_mutex_unlock(&writer->lock);
    sherd_status status =
        shd_rank_file_put(&writer->maker, self->stored, placed.form.stored_bytes, placed.offset_bytes);
    pthread_mutex_lock(&writer->lock);
    if (status != SHERD_OK) fail_save(writer, status);
}

static void run_seal(shd_writer *writer) {
    shd_index index = {.count = writer->placed_count, .blocks = writer->placed};
    assert(index.count == writer->block_count);
    writer->file = FILE_CLOSING;
    pthread_mutex_unlock(&writer->lock);
    sherd_status status = shd_rank_file_finish(&writer->maker, &index);
    pthread_mutex_lock(&writer->lock);
    if (status != SHERD_OK) {
        fail_save(writer, status);
        return;
    }
    writer->totals.file_bytes = writer->maker.bytes;
    writer->totals.wall_ns = clock_ns(CLOCK_MONOTONIC) - writer->begin_ns;
}

static void run_abandon(shd_writer *writer) {
    pthread_mutex_unlock(&writer->lock);
    if (writer->maker.descriptor >= 0) shd_rank_file_discard(&writer->maker);
    pthread_mutex_lock(&writer->lock);
}

static void run_task(shd_writer *writer, writer_thread *self, writer_task task) {
    int64_t begin_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    writer->busy++;
    switch (task) {
    case TASK_OPEN: run_open(writer); break;
    case TASK_BLOCK: run_block(writer, self); break;
    case TASK_SEAL: run_seal(writer); break;
    case TASK_ABANDON: run_abandon(writer); break;
    case TASK_NONE:
    case TASK_END: break;
    }
    writer->busy--;
    writer->totals.cpu_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin_ns;
    if (task == TASK_ABANDON) set_state(writer, SHD_WRITER_FAILED);
    if (task == TASK_SEAL && !writer->failed) set_state(writer, SHD_WRITER_WRITTEN);
}

static void *thread_main(void *argument) {
    writer_thread *self = argument;
    shd_writer *writer = self->writer;
    pthread_setname_np(pthread_self(), "sherd-writer"); /* in ps and top, beside the rank's own */
    pthread_mutex_lock(&writer->lock);
    for (writer_task task; (task = find_task(writer)) != TASK_END;) {
        if (task == TASK_NONE)
            pthread_cond_wait(&writer->work, &writer->lock);
        else
            run_task(writer, self, task);
    }
    pthread_mutex_unlock(&writer->lock);
    return NULL;
}

/* --- the trainer's side ------------------------------------------------------------------------------------------- */

static sherd_status allocate(shd_writer *writer) {
    const shd_writer_config *config = &writer->config;
    writer->block_count = count_blocks(config);
    writer->planned = shd_alloc((size_t)writer->block_count, sizeof *writer->planned);
    writer->placed = shd_alloc((size_t)writer->block_count, sizeof *writer->placed);
    writer->tickets = shd_alloc((size_t)config->ticket_count, sizeof *writer->tickets);
    writer->queue = shd_alloc((size_t)config->ticket_count, sizeof *writer->queue);
    writer->threads = shd_alloc((size_t)config->threads, sizeof *writer->threads);
    if (!writer->planned || !writer->placed || !writer->tickets || !writer->queue || !writer->threads)
        return shd_fail(SHERD_MEMORY, "out of memory for %lld blocks of checkpoints", (long long)writer->block_count);
    plan_blocks(writer);
    return SHERD_OK;
}

/* Signals are the trainer's. */
static sherd_status start_threads(shd_writer *writer) {
    sigset_t all, before;
    int error = 0;
    int64_t codec_bytes = shd_block_codec_bytes(writer->config.compression);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (error == 0 && writer->thread_count < writer->config.threads) {
        writer_thread *thread = &writer->threads[writer->thread_count];
        char *room = (char *)writer->config.memory + writer->thread_count * thread_bytes(writer->config.compression);
        *thread = (writer_thread){.writer = writer, .room = room, .stored = room + codec_bytes};
        error = pthread_create(&thread->thread, NULL, thread_main, thread);
        if (error == 0) writer->thread_count++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) return SHERD_OK;
    return shd_fail(SHERD_MEMORY, "cannot start thread %d of %d that write checkpoints: %s", writer->thread_count + 1,
                    writer->config.threads, strerror(error));
}

sherd_status shd_writer_create(const shd_writer_config *config, shd_writer **out) {
    assert(config->threads >= 1 && config->threads <= SHD_WRITER_THREADS_MAX);
    assert((uintptr_t)config->memory % SHD_BLOCK_ALIGN_BYTES == 0);
    for (int64_t i = 0; i < config->slice_count; i++) SHD_TRY(check_slice(&config->slices[i]));
    shd_writer *writer = shd_alloc(1, sizeof *writer);
    if (!writer) return shd_fail(SHERD_MEMORY, "out of memory for a writer of checkpoints");
    writer->config = *config;
    writer->maker.descriptor = -1;
    writer->entered = -1;
    atomic_init(&writer->state, SHD_WRITER_IDLE);
    pthread_mutex_init(&writer->lock, NULL);
    pthread_cond_init(&writer->work, NULL);
    pthread_cond_init(&writer->changed, NULL);
    sherd_status status = allocate(writer);
    if (status == SHERD_OK) status = start_threads(writer);
    if (status != SHERD_OK) {
        shd_writer_destroy(writer);
        return status;
    }
    *out = writer;
    return SHERD_OK;
}

void shd_writer_destroy(shd_writer *writer) {
    if (!writer) return;
    pthread_mutex_lock(&writer->lock);
    writer->ending = true;
    pthread_cond_broadcast(&writer->work);
    pthread_cond_broadcast(&writer->changed);
    pthread_mutex_unlock(&writer->lock);
    for (int32_t i = 0; i < writer->thread_count; i++) pthread_join(writer->threads[i].thread, NULL);
    bool whole = shd_writer_state_of(writer) == SHD_WRITER_WRITTEN;
    if (writer->maker.descriptor >= 0 && !whole) shd_rank_file_discard(&writer->maker);
    shd_rank_file_maker_close(&writer->maker);
    leave(writer);
    pthread_cond_destroy(&writer->changed);
    pthread_cond_destroy(&writer->work);
    pthread_mutex_destroy(&writer->lock);
    shd_free(writer->threads);
    shd_free(writer->queue);
    shd_free(writer->tickets);
    shd_free(writer->placed);
    shd_free(writer->planned);
    shd_free(writer);
}

static void renew_tickets(shd_writer *writer) {
    for (int32_t t = 0; t < writer->config.ticket_count; t++) {
        writer_ticket *ticket = &writer->tickets[t];
        ticket->unread = ticket->end_block - ticket->first_block;
        ticket->encoding = 0;
        ticket->submitted = false;
        atomic_store_explicit(&ticket->done, false, memory_order_relaxed);
    }
}

void shd_writer_begin(shd_writer *writer, const char *folder, int64_t step, int32_t rank) {
    pthread_mutex_lock(&writer->lock);
    assert(shd_writer_state_of(writer) == SHD_WRITER_IDLE);
    renew_tickets(writer);
    writer->file = FILE_WANTED;
    writer->save++;
    writer->step = step;
    writer->rank = rank;
    writer->queued = writer->current = 0;
    writer->placed_count = writer->next_block = 0;
    writer->end_bytes = SHD_FILE_HEAD_BYTES;
    writer->finishing = writer->failed = false;
    writer->status = SHERD_OK;
    writer->begin_ns = clock_ns(CLOCK_MONOTONIC);
    writer->totals = (shd_writer_totals){0};
    set_state(writer, SHD_WRITER_WRITING);
    sherd_status status = shd_path_make(writer->folder, "%s", folder);
    if (status != SHERD_OK) fail_save(writer, status);
    pthread_cond_signal(&writer->work);
    pthread_mutex_unlock(&writer->lock);
}

void shd_writer_submit(shd_writer *writer, int32_t ticket_index) {
    assert(ticket_index >= 0 && ticket_index < writer->config.ticket_count);
    pthread_mutex_lock(&writer->lock);
    writer_ticket *ticket = &writer->tickets[ticket_index];
    assert(shd_writer_state_of(writer) != SHD_WRITER_IDLE && !ticket->submitted && !writer->finishing);
    ticket->submitted = true;
    bool idle = !has_block(writer);
    writer->queue[writer->queued++] = ticket_index;
    if (writer->failed)
        give_up_ticket(ticket);
    else
        end_ticket(ticket);
    if (idle) advance(writer, true);
    pthread_cond_broadcast(&writer->work);
    pthread_mutex_unlock(&writer->lock);
}

bool shd_writer_done(const shd_writer *writer, int32_t ticket) {
    return atomic_load_explicit(&writer->tickets[ticket].done, memory_order_acquire);
}

void shd_writer_finish(shd_writer *writer) {
    pthread_mutex_lock(&writer->lock);
    assert(writer->queued == writer->config.ticket_count && !writer->finishing);
    writer->finishing = true;
    pthread_cond_signal(&writer->work);
    pthread_mutex_unlock(&writer->lock);
}

shd_writer_state shd_writer_state_of(const shd_writer *writer) {
    return (shd_writer_state)atomic_load_explicit(&writer->state, memory_order_acquire);
}

void shd_writer_wait(shd_writer *writer) {
    pthread_mutex_lock(&writer->lock);
    assert(writer->finishing);
    while (shd_writer_state_of(writer) == SHD_WRITER_WRITING) pthread_cond_wait(&writer->changed, &writer->lock);
    pthread_mutex_unlock(&writer->lock);
}

/* After WRITING no thread touches what these read. */
sherd_status shd_writer_result(const shd_writer *writer) {
    assert(shd_writer_state_of(writer) >= SHD_WRITER_WRITTEN);
    return writer->status == SHERD_OK ? SHERD_OK : shd_fail(writer->status, "%s", writer->cause);
}

shd_writer_totals shd_writer_totals_of(const shd_writer *writer) {
    assert(shd_writer_state_of(writer) == SHD_WRITER_WRITTEN);
    return writer->totals;
}

void shd_writer_close(shd_writer *writer) {
    pthread_mutex_lock(&writer->lock);
    assert(shd_writer_state_of(writer) >= SHD_WRITER_WRITTEN);
    shd_rank_file_maker_close(&writer->maker);
    leave(writer);
    set_state(writer, SHD_WRITER_IDLE);
    pthread_mutex_unlock(&writer->lock);
}
