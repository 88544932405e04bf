#include "runtime/train/tracing.h"

#include "io/file.h"
#include "io/folder.h"
#include "io/timeline.h"
#include "runtime/base/arith.h"
#include "runtime/base/clock.h"

#include <stdio.h>
#include <time.h>

bool shd_tracing_wants(const shd_job *job, int64_t step) {
    for (int32_t i = 0; i < job->log.trace_steps.count; i++)
        if (job->log.trace_steps.items[i] == step) return true;
    return false;
}

/* Between slices that follow each other at once: viewers add a start and a length in microseconds, and what then ends some
 * billionths behind the next one's start is drawn around it. */
enum { GAP_NS = 1 };

/* Tracks of a rank beside those of queues. */
enum { TRACK_DATA = SHD_QUEUES, TRACK_EXCHANGE, TRACKS };

static const char *track_name(int32_t track) {
    return track == TRACK_DATA ? "data" : track == TRACK_EXCHANGE ? "exchange" : shd_queue_text((shd_queue_id)track);
}

/* One rank's records of one step. */
typedef struct step_records {
    const shd_recorder *recorder;
    int32_t rank;
    int64_t step;       /* from 0, as the recorder counts */
    int64_t first, end; /* numbers of the records that are there; not all are of the step */
    bool cut;           /* what came before `first` may be of the step, too */
} step_records;

static bool is_of_step(const step_records *from, const shd_record *record) {
    if (record->step != from->step || record->started_ns == 0 || record->ended_ns < record->started_ns) return false;
    return record->kind < SHD_RECORD_INSTRUCTION || record->program == SHD_PROGRAM_TRAIN;
}

/* The next record of the step from number *at on, which moves behind it. */
static bool next_record(const step_records *from, int64_t *at, shd_record *out) {
    while (*at < from->end)
        if (shd_recorder_read(from->recorder, from->rank, (*at)++, out) && is_of_step(from, out)) return true;
    return false;
}

/* --- finding them ------------------------------------------------------------------------------------------------- */

static bool is_over(const shd_recorder_head *head, int64_t step) {
    return head->activity_step > step || (head->activity_step == step && head->activity != SHD_ACTIVITY_STEP);
}

/* Waits until all ranks have done the step. Those that do not come to its end are taken as they are. */
static void await_step(const shd_recorder *recorder, int64_t step) {
    enum { PATIENCE_MS = 1000, PAUSE_NS = 100 * 1000 };
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    double until_ms = shd_clock_ms() + PATIENCE_MS;
    shd_recorder_head head;
    for (int32_t rank = 0; rank < shd_recorder_world(recorder); rank++)
        while (shd_recorder_look(recorder, rank, &head) && !is_over(&head, step) && shd_clock_ms() < until_ms)
            nanosleep(&pause, NULL);
}

static step_records find_records(const shd_recorder *recorder, int32_t rank, int64_t step) {
    shd_recorder_head head = {0};
    shd_record oldest;
    shd_recorder_look(recorder, rank, &head);
    bool cut = head.first > 0 && (!shd_recorder_read(recorder, rank, head.first, &oldest) || oldest.step >= step);
    return (step_records){
        .recorder = recorder, .rank = rank, .step = step, .first = head.first, .end = head.count, .cut = cut};
}

/* When the first thing of the step began on any rank. */
static int64_t find_origin(const shd_recorder *recorder, int64_t step) {
    int64_t origin_ns = INT64_MAX;
    for (int32_t rank = 0; rank < shd_recorder_world(recorder); rank++) {
        const step_records from = find_records(recorder, rank, step);
        shd_record record;
        for (int64_t at = from.first; next_record(&from, &at, &record);)
            origin_ns = shd_min(origin_ns, record.queued_ns > 0 ? record.queued_ns : record.started_ns);
    }
    return origin_ns == INT64_MAX ? 0 : origin_ns;
}

/* --- slices ------------------------------------------------------------------------------------------------------- */

static int32_t track_of(const shd_record *record) {
    if (record->kind >= SHD_RECORD_INSTRUCTION) return record->queue;
    return record->kind == SHD_RECORD_DATA ? TRACK_DATA : TRACK_EXCHANGE;
}

/* The compute queue does one thing after another, so what an instruction of it has waited is a gap of its own; of other
 * queues several wait at once. */
static void add_wait(shd_timeline *timeline, const shd_record *record, const char *name, int32_t rank) {
    enum { LEAST_NS = 1000 };
    bool computes = record->kind >= SHD_RECORD_INSTRUCTION && record->queue == SHD_QUEUE_COMPUTE;
    if (!computes || record->queued_ns == 0 || record->started_ns - record->queued_ns < LEAST_NS) return;
    char text[128];
    snprintf(text, sizeof text, "wait before %s", name);
    shd_timeline_add_slice(timeline, &(shd_timeline_slice){.name = text,
                                                           .category = "wait",
                                                           .process = rank,
                                                           .track = record->queue,
                                                           .started_ns = record->queued_ns,
                                                           .ended_ns = record->started_ns - GAP_NS,
                                                           .micro_step = -1,
                                                           .bytes = -1,
                                                           .sequence = -1,
                                                           .waited_ns = -1});
}

static void add_record(shd_timeline *timeline, const step_records *from, const shd_record *record) {
    char name[96], unit[64];
    bool instruction = record->kind >= SHD_RECORD_INSTRUCTION;
    shd_recorder_print(from->recorder, from->rank, record, name, sizeof name);
    shd_recorder_unit_name(from->recorder, from->rank, record->unit, unit, sizeof unit);
    add_wait(timeline, record, name, from->rank);
    shd_timeline_add_slice(
        timeline,
        &(shd_timeline_slice){.name = name,
                              .category = instruction ? "instruction" : "step",
                              .process = from->rank,
                              .track = track_of(record),
                              .started_ns = record->started_ns,
                              .ended_ns = record->ended_ns,
                              .unit = record->unit >= 0 ? unit : NULL,
                              .micro_step = record->micro_step,
                              .bytes = record->bytes > 0 ? record->bytes : -1,
                              .sequence = record->sequence,
                              .waited_ns = record->queued_ns > 0 ? record->started_ns - record->queued_ns : -1});
}

/* SAVE runs in threads of the writer: a record starts when the rank learns that one has ended, which says nothing. They
 * are written in order, each from when it was issued, or the one before had ended, on. */
static void place_save(shd_record *record, int64_t *before_ended_ns) {
    record->started_ns = shd_min(shd_max(record->queued_ns, *before_ended_ns + GAP_NS), record->ended_ns);
    *before_ended_ns = record->ended_ns;
}

static void add_rank(shd_timeline *timeline, const step_records *from) {
    char process[32];
    shd_record record;
    int64_t save_ended_ns = 0;
    snprintf(process, sizeof process, "rank %d", from->rank);
    for (int32_t track = 0; track < TRACKS; track++)
        shd_timeline_add_track(timeline, from->rank, process, track, track_name(track));
    for (int64_t at = from->first; next_record(from, &at, &record);) {
        if (record.kind >= SHD_RECORD_INSTRUCTION && record.queue == SHD_QUEUE_COPY)
            place_save(&record, &save_ended_ns);
        add_record(timeline, from, &record);
    }
}

sherd_status shd_tracing_write(const shd_recorder *recorder, const char *dir, int64_t step, int32_t *cut) {
    char folder[SHD_PATH_BYTES], path[SHD_PATH_BYTES], about[160];
    shd_recorder_head head = {0};
    await_step(recorder, step - 1);
    int64_t origin_ns = find_origin(recorder, step - 1);
    shd_timeline timeline = shd_timeline_make(origin_ns);
    *cut = 0;
    for (int32_t rank = 0; rank < shd_recorder_world(recorder); rank++) {
        const step_records from = find_records(recorder, rank, step - 1);
        *cut += from.cut;
        add_rank(&timeline, &from);
    }
    shd_recorder_look(recorder, 0, &head);
    snprintf(about, sizeof about, "{\"step\":%lld,\"ranks\":%d,\"unix_ns\":%lld,\"cut_ranks\":%d}", (long long)step,
             shd_recorder_world(recorder), (long long)(origin_ns + head.unix_offset_ns), *cut);
    sherd_status status = shd_path_make(folder, "%s/trace", dir);
    if (status == SHERD_OK) status = shd_folder_make(folder);
    if (status == SHERD_OK) status = shd_path_make(path, "%s/step-%08lld.json", folder, (long long)step);
    if (status == SHERD_OK) return shd_timeline_write(&timeline, path, about);
    shd_timeline_drop(&timeline);
    return status;
}
