/* Filling many slices at once. What is wanted becomes jobs that do not touch each other's memory: mostly one for each
 * block, with the pieces of it that go somewhere, in the order of the files; and one for each slice of INT8 that is made of
 * FP32, whose groups of 256 may lie across blocks. Threads take jobs in turn, each with room of its own. */
#include "io/checkpoint_reader_parts.h"
#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CAUSE_BYTES = 2048 };

/* A piece of a block that goes to a wanted slice. */
typedef struct piece_use {
    shd_interval piece; /* its source is the block's number */
    int64_t wanted_index;
} piece_use;

/* Uses [first_use, end_use), of one block, or of one slice when `gathers`. */
typedef struct read_job {
    int64_t first_use, end_use;
    bool gathers;
} read_job;

typedef struct use_list {
    piece_use *list;
    int64_t count, capacity;
} use_list;

typedef struct slice_load {
    const shd_reader *reader;
    const shd_checkpoint_slice *wanted;
    const shd_reader_config *config;
    use_list uses;
    int64_t gathered_count; /* the first of the uses: of slices that gather, in the order of elements */
    read_job *jobs;
    int64_t job_count;
    atomic_bool failed; /* no more jobs are done */
    pthread_mutex_t lock;
    sherd_status status; /* of the first failure, under the lock */
    char cause[CAUSE_BYTES];
} slice_load;

/* --- jobs --------------------------------------------------------------------------------------------------------- */

static sherd_status fail_memory(void) { return shd_fail(SHERD_MEMORY, "out of memory to read a checkpoint"); }

static sherd_status add_uses(use_list *uses, const shd_interval *pieces, int64_t count, int64_t wanted_index) {
    if (uses->count + count > uses->capacity) {
        int64_t capacity = shd_max(uses->count + count, 2 * uses->capacity);
        piece_use *grown = shd_realloc(uses->list, (size_t)capacity * sizeof *grown);
        if (!grown) return fail_memory();
        uses->list = grown;
        uses->capacity = capacity;
    }
    for (int64_t i = 0; i < count; i++)
        uses->list[uses->count++] = (piece_use){.piece = pieces[i], .wanted_index = wanted_index};
    return SHERD_OK;
}

/* Whether a slice of INT8 is to be made of other numbers. */
static bool gathers(const slice_load *load, const shd_checkpoint_slice *wanted, const shd_interval *pieces,
                    int64_t count) {
    for (int64_t i = 0; wanted->dtype == SHERD_INT8 && i < count; i++)
        if (shd_reader_block(load->reader, pieces[i].source)->form.dtype != SHERD_INT8) return true;
    return false;
}

/* Adds the uses of one wanted slice, if it is of this kind. */
static sherd_status add_wanted(slice_load *load, int64_t index, bool gathering) {
    const shd_checkpoint_slice *wanted = &load->wanted[index];
    shd_interval *pieces = NULL;
    int64_t count = 0;
    if (!wanted->values || wanted->count == 0 || (gathering && wanted->dtype != SHERD_INT8)) return SHERD_OK;
    assert(wanted->dtype != SHERD_INT8 || wanted->first % SHD_CODE_BLOCK_COUNT == 0);
    SHD_TRY(shd_reader_cut(load->reader, wanted->tensor, wanted->state, wanted->first, wanted->count, &pieces, &count));
    sherd_status status = SHERD_OK;
    if (gathers(load, wanted, pieces, count) == gathering) status = add_uses(&load->uses, pieces, count, index);
    shd_free(pieces);
    return status;
}

static int compare_uses(const void *left, const void *right) {
    const piece_use *a = left, *b = right;
    if (a->piece.source != b->piece.source) return a->piece.source < b->piece.source ? -1 : 1;
    return a->piece.first < b->piece.first ? -1 : a->piece.first > b->piece.first;
}

static bool same_job(const slice_load *load, int64_t a, int64_t b) {
    const piece_use *uses = load->uses.list;
    bool gathered = b < load->gathered_count;
    if (gathered) return uses[a].wanted_index == uses[b].wanted_index;
    return a >= load->gathered_count && uses[a].piece.source == uses[b].piece.source;
}

static sherd_status make_jobs(slice_load *load, int64_t wanted_count) {
    for (int64_t i = 0; i < wanted_count; i++) SHD_TRY(add_wanted(load, i, true));
    load->gathered_count = load->uses.count;
    for (int64_t i = 0; i < wanted_count; i++) SHD_TRY(add_wanted(load, i, false));
    int64_t sorted = load->uses.count - load->gathered_count;
    if (sorted > 0)
        qsort(load->uses.list + load->gathered_count, (size_t)sorted, sizeof *load->uses.list, compare_uses);
    load->jobs = shd_alloc((size_t)load->uses.count, sizeof *load->jobs);
    if (!load->jobs) return fail_memory();
    for (int64_t first = 0, end; first < load->uses.count; first = end) {
        for (end = first + 1; end < load->uses.count && same_job(load, first, end); end++) continue;
        load->jobs[load->job_count++] =
            (read_job){.first_use = first, .end_use = end, .gathers = first < load->gathered_count};
    }
    return SHERD_OK;
}

/* --- doing them --------------------------------------------------------------------------------------------------- */

/* Where a block can be decoded at once: it is wanted whole, in its own dtype, by one slice. */
static void *find_place(const slice_load *load, const read_job *job, const shd_file_block *block) {
    const piece_use *use = &load->uses.list[job->first_use];
    const shd_checkpoint_slice *wanted = &load->wanted[use->wanted_index];
    bool whole = job->end_use == job->first_use + 1 && wanted->dtype == block->form.dtype &&
                 use->piece.first == block->first && use->piece.count == block->form.count;
    if (!whole) return NULL;
    return (char *)wanted->values + shd_span_bytes(wanted->dtype, block->first - wanted->first);
}

static sherd_status read_block(const slice_load *load, const read_job *job, const shd_decode_room *room) {
    int64_t number = load->uses.list[job->first_use].piece.source;
    const shd_file_block *block = shd_reader_block(load->reader, number);
    void *place = find_place(load, job, block);
    SHD_TRY(shd_reader_decode(load->reader, number, room, place ? place : room->values));
    for (int64_t i = job->first_use; !place && i < job->end_use; i++) {
        const piece_use *use = &load->uses.list[i];
        SHD_TRY(shd_deliver(block, room->values, &use->piece, &load->wanted[use->wanted_index], &load->config->convert,
                            room->portion));
    }
    return SHERD_OK;
}

/* Values on their way into codes: a portion is gathered, then turned. */
typedef struct code_gathering {
    const shd_checkpoint_slice *wanted;
    const shd_reader_convert *convert;
    float *portion;
    int64_t done, count; /* values turned; gathered behind them */
} code_gathering;

static sherd_status turn_portion(code_gathering *gathering) {
    const shd_checkpoint_slice *wanted = gathering->wanted;
    char *codes = (char *)wanted->values + shd_span_bytes(SHERD_INT8, gathering->done);
    SHD_TRY(gathering->convert->run(gathering->convert->user, wanted->state, SHERD_FP32, gathering->portion, SHERD_INT8,
                                    gathering->count, codes));
    gathering->done += gathering->count;
    gathering->count = 0;
    return SHERD_OK;
}

static sherd_status gather_piece(code_gathering *gathering, const float *values, int64_t count) {
    while (count > 0) {
        int64_t taken = shd_min(count, SHD_PORTION_COUNT - gathering->count);
        memcpy(gathering->portion + gathering->count, values, (size_t)taken * sizeof *values);
        gathering->count += taken;
        values += taken;
        count -= taken;
        if (gathering->count == SHD_PORTION_COUNT) SHD_TRY(turn_portion(gathering));
    }
    return SHERD_OK;
}

static sherd_status gather_codes(const slice_load *load, const read_job *job, const shd_decode_room *room) {
    const shd_checkpoint_slice *wanted = &load->wanted[load->uses.list[job->first_use].wanted_index];
    code_gathering gathering = {.wanted = wanted, .convert = &load->config->convert, .portion = room->portion};
    for (int64_t i = job->first_use; i < job->end_use; i++) {
        const shd_interval *piece = &load->uses.list[i].piece;
        const shd_file_block *block = shd_reader_block(load->reader, piece->source);
        if (block->form.dtype != SHERD_FP32 || !gathering.convert->run)
            return shd_fail(SHERD_DATA, "%s of tensor %s is stored as %s, and cannot be had as int8", wanted->state,
                            wanted->tensor, shd_dtype_text(block->form.dtype));
        SHD_TRY(shd_reader_decode(load->reader, piece->source, room, room->values));
        SHD_TRY(gather_piece(&gathering, (const float *)room->values + (piece->first - block->first), piece->count));
    }
    return gathering.count > 0 ? turn_portion(&gathering) : SHERD_OK;
}

static void note_failure(slice_load *load, sherd_status status) {
    pthread_mutex_lock(&load->lock);
    if (load->status == SHERD_OK) {
        load->status = status;
        snprintf(load->cause, sizeof load->cause, "%s", sherd_last_error());
    }
    pthread_mutex_unlock(&load->lock);
    atomic_store(&load->failed, true);
}

static void do_job(void *user, int64_t index, const shd_decode_room *room) {
    slice_load *load = user;
    const read_job *job = &load->jobs[index];
    if (atomic_load(&load->failed)) return;
    sherd_status status = job->gathers ? gather_codes(load, job, room) : read_block(load, job, room);
    if (status != SHERD_OK) note_failure(load, status);
}

sherd_status shd_reader_read(shd_reader *reader, const shd_checkpoint_slice *wanted, int64_t count,
                             const shd_reader_config *config) {
    slice_load load = {.reader = reader, .wanted = wanted, .config = config};
    for (int32_t i = 0; i < reader->file_count; i++) shd_file_use_cache(reader->files[i]->descriptor, config->cached);
    pthread_mutex_init(&load.lock, NULL);
    sherd_status status = make_jobs(&load, count);
    if (status == SHERD_OK) {
        shd_jobs_run(config, load.job_count, do_job, NULL, &load);
        if (load.status != SHERD_OK) status = shd_fail(load.status, "%s", load.cause);
    }
    pthread_mutex_destroy(&load.lock);
    shd_free(load.jobs);
    shd_free(load.uses.list);
    return status;
}
