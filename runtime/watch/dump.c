#include "runtime/watch/dump.h"

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/comm/standing.h"
#include "runtime/watch/stack.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <sherd/version.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* How long ranks have to write their own dumps before the finder does it for them, how much longer the others stay, and
 * how often all look. */
enum { PATIENCE_MS = 1000, GRACE_MS = 2000, LOOK_MS = 10, STACK_MS = 300 };
enum { ASIDE_MAX = 10000 };

/* --- folders ------------------------------------------------------------------------------------------------------ */

void shd_dump_path(const char *log_dir, int32_t attempt, char *out, size_t bytes) {
    snprintf(out, bytes, "%s/dumps/attempt_%d", log_dir, attempt);
}

void shd_dump_file(const char *dir, int32_t rank, char *out, size_t bytes) {
    snprintf(out, bytes, "%s/rank-%05d.json", dir, rank);
}

sherd_status shd_dump_settle(const char *log_dir) {
    char path[PATH_MAX], aside[PATH_MAX];
    snprintf(path, sizeof path, "%s/dumps", log_dir);
    for (int n = 1; n < ASIDE_MAX; n++) {
        snprintf(aside, sizeof aside, "%s/dumps.%d", log_dir, n);
        if (!access(aside, F_OK)) continue;
        if (!rename(path, aside) || errno == ENOENT) return SHERD_OK;
        break;
    }
    return shd_fail(SHERD_IO, "cannot move %s, which an earlier run has left, aside: %s", path, strerror(errno));
}

/* Makes `dir` and what is above it. */
static sherd_status make_folders(const char *dir) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s", dir) >= (int)sizeof path)
        return shd_fail(SHERD_IO, "the path of a dump is too long: %.200s", dir);
    for (char *at = path + 1;; at++) {
        if (*at && *at != '/') continue;
        char end = *at;
        *at = 0;
        if (mkdir(path, 0777) && errno != EEXIST)
            return shd_fail(SHERD_IO, "cannot make %s for dumps: %s", path, strerror(errno));
        *at = end;
        if (!end) return SHERD_OK;
    }
}

/* --- a dump ------------------------------------------------------------------------------------------------------- */

/* Names from elsewhere may not be UTF-8, or cut: then what is not is left out, not the dump. */
static json_t *text_json(const char *text) {
    char good[SHD_RECORDER_TEXT_BYTES];
    size_t used = 0;
    uint32_t code;
    for (int length; *text && used < sizeof good - 4; text += length ? length : 1) {
        length = shd_utf8_read(text, strlen(text), &code);
        memcpy(good + used, text, (size_t)length);
        used += (size_t)length;
    }
    return json_stringn(good, used);
}

static json_t *alarm_json(const shd_recorder *recorder) {
    char text[SHD_RECORDER_TEXT_BYTES];
    int32_t rank = shd_recorder_alarmed(recorder, text);
    return rank < 0 ? json_null() : json_pack("{s:i, s:o}", "rank", rank, "text", text_json(text));
}

static json_t *process_json(const shd_recorder_head *head) {
    shd_standing standing;
    char state[2] = "";
    shd_standing_look(head->pid, head->tid, head->born, &standing);
    state[0] = standing.state;
    return json_pack("{s:s, s:s, s:o, s:I}", "life", shd_life_word(standing.life), "state", state, "wchan",
                     text_json(standing.wchan), "cpu_ms", (json_int_t)standing.cpu_ms);
}

static json_t *where_json(const shd_recorder *recorder, int32_t rank) {
    static const char *const kinds[] = {[SHD_AT_NOTHING] = "nothing", [SHD_AT_WORK] = "work", [SHD_AT_WAIT] = "wait"};
    shd_where where;
    char text[256];
    if (!shd_recorder_where(recorder, rank, &where)) return json_null();
    shd_standing_print_where(recorder, rank, false, text, sizeof text);
    json_int_t sequence = where.kind == SHD_AT_NOTHING ? -1 : (json_int_t)where.record.sequence;
    json_int_t awaited = where.waits_for ? (json_int_t)where.awaited.sequence : -1;
    return json_pack("{s:s, s:o, s:I, s:I, s:I}", "kind", kinds[where.kind], "text", text_json(text), "since_ns",
                     (json_int_t)where.since_ns, "sequence", sequence, "awaited", awaited);
}

static json_t *event_json(const shd_recorder *recorder, int32_t rank, const shd_record *record) {
    char kind[SHD_RECORDER_NAME_BYTES];
    shd_recorder_kind_name(recorder, rank, record->kind, kind, sizeof kind);
    return json_pack("{s:I, s:o, s:i, s:i, s:I, s:I, s:i, s:I, s:I, s:I, s:I}", "sequence",
                     (json_int_t)record->sequence, "kind", text_json(kind), "unit", record->unit, "micro_step",
                     record->micro_step, "step", (json_int_t)record->step, "bytes", (json_int_t)record->bytes, "queue",
                     record->queue, "collective", (json_int_t)record->collective, "queued_ns",
                     (json_int_t)record->queued_ns, "started_ns", (json_int_t)record->started_ns, "ended_ns",
                     (json_int_t)record->ended_ns);
}

/* Units by their numbers: the highest that an event has is the last. */
static json_t *units_json(const shd_recorder *recorder, int32_t rank, int32_t count) {
    json_t *units = json_array();
    char name[256];
    for (int32_t u = 0; u < count; u++)
        json_array_append_new(units, text_json(shd_recorder_unit_name(recorder, rank, u, name, sizeof name)));
    return units;
}

/* What another rank has told of its stack; NULL: nothing. */
static json_t *told_stack_json(const shd_recorder *recorder, int32_t rank) {
    char text[SHD_RECORDER_STACK_BYTES];
    if (!shd_recorder_stack(recorder, rank, text)) return NULL;
    json_t *frames = json_array();
    for (char *at = text, *end; *at; at = end) {
        end = at + strcspn(at, "\n");
        if (*end) *end++ = 0;
        json_array_append_new(frames, text_json(at));
    }
    return frames;
}

static json_t *stack_json(const shd_stack *stack) {
    json_t *frames = json_array();
    for (int32_t i = 0; i < stack->count; i++) json_array_append_new(frames, text_json(stack->frames[i]));
    return frames;
}

/* NULL: memory is out. */
static json_t *dump_json(const shd_recorder *recorder, const shd_recorder_head *head, int32_t by) {
    json_t *events = json_array();
    int32_t rank = head->rank, unit_count = 0;
    shd_stack own = {0}, kernel = {0};
    shd_record record;
    if (by == rank)
        shd_stack_take(&own);
    else
        shd_stack_read_kernel(head->pid, head->tid, &kernel);
    for (int64_t number = head->first; number < head->count; number++) {
        if (!shd_recorder_read(recorder, rank, number, &record)) continue;
        if (record.unit >= unit_count) unit_count = record.unit + 1;
        json_array_append_new(events, event_json(recorder, rank, &record));
    }
    json_t *told = by == rank ? NULL : told_stack_json(recorder, rank);
    json_t *activity = json_pack("{s:s, s:I, s:I}", "name", shd_activity_text(head->activity), "step",
                                 (json_int_t)head->activity_step, "since_ns", (json_int_t)head->activity_since_ns);
    return json_pack("{s:i, s:s, s:i, s:i, s:i, s:o, s:i, s:i, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                     "sherd_dump", SHD_DUMP_VERSION, "version", SHERD_VERSION, "rank", rank, "world_size",
                     shd_recorder_world(recorder), "written_by", by, "host", text_json(head->host), "pid", head->pid,
                     "tid", head->tid, "now_ns", (json_int_t)shd_clock_ns(), "unix_offset_ns",
                     (json_int_t)head->unix_offset_ns, "alarm", alarm_json(recorder), "process", process_json(head),
                     "activity", activity, "where", where_json(recorder, rank), "stack", told ? told : stack_json(&own),
                     "kernel_stack", stack_json(&kernel), "units", units_json(recorder, rank, unit_count), "events",
                     events);
}

/* Gathers what the encoder gives out token by token, some 150 thousand of them a dump: as many calls of the kernel would
 * take seconds where processors are scarce, and the job is to be over by then. */
typedef struct sink {
    int file;
    size_t used;
    char bytes[16384];
} sink;

static int flush(sink *out) {
    ssize_t written = write(out->file, out->bytes, out->used);
    bool whole = written >= 0 && (size_t)written == out->used;
    if (written >= 0 && !whole) errno = ENOSPC;
    out->used = 0;
    return whole ? 0 : -1;
}

static int gather(const char *text, size_t bytes, void *user) {
    sink *out = user;
    while (bytes > 0) {
        size_t room = sizeof out->bytes - out->used, part = bytes < room ? bytes : room;
        memcpy(out->bytes + out->used, text, part);
        out->used += part;
        text += part;
        bytes -= part;
        if (out->used == sizeof out->bytes && flush(out)) return -1;
    }
    return 0;
}

static bool write_dump(const json_t *dump, int file) {
    sink out;
    out.file = file;
    out.used = 0;
    return !json_dump_callback(dump, gather, &out, JSON_COMPACT) && !gather("\n", 1, &out) && !flush(&out);
}

/* Under a name of its own first; the link fails where somebody else's dump is there already. */
static sherd_status place(const json_t *dump, const char *dir, const char *path, int32_t rank, int32_t by) {
    char partial[PATH_MAX];
    snprintf(partial, sizeof partial, "%s/.rank-%05d-by-%d-%d", dir, rank, by, (int)getpid());
    int file = open(partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool written = file >= 0 && write_dump(dump, file);
    if (file >= 0) written = !close(file) && written;
    bool linked = written && (!link(partial, path) || errno == EEXIST);
    int cause = errno;
    unlink(partial);
    return linked ? SHERD_OK : shd_fail(SHERD_IO, "cannot write the dump %s: %s", path, strerror(cause));
}

sherd_status shd_dump_write(const shd_recorder *recorder, int32_t rank, int32_t by, const char *dir) {
    char path[PATH_MAX];
    shd_recorder_head head;
    shd_dump_file(dir, rank, path, sizeof path);
    if (!shd_recorder_look(recorder, rank, &head) || !access(path, F_OK)) return SHERD_OK;
    SHD_TRY(make_folders(dir));
    json_t *dump = dump_json(recorder, &head, by);
    if (!dump) return shd_fail(SHERD_MEMORY, "no memory for the dump of rank %d", rank);
    sherd_status status = place(dump, dir, path, rank, by);
    json_decref(dump);
    return status;
}

/* --- who writes which --------------------------------------------------------------------------------------------- */

static bool is_there(const char *dir, int32_t rank) {
    char path[PATH_MAX];
    shd_dump_file(dir, rank, path, sizeof path);
    return !access(path, F_OK);
}

/* Whether nobody need wait for a rank to write its own. */
static bool cannot_write(const shd_recorder *recorder, int32_t rank) {
    shd_recorder_head head;
    shd_standing standing;
    if (!shd_recorder_look(recorder, rank, &head)) return true;
    shd_standing_look(head.pid, head.tid, head.born, &standing);
    return standing.life == SHD_LIFE_GONE || standing.life == SHD_LIFE_STOPPED || standing.life == SHD_LIFE_DISK;
}

static sherd_status write_for_others(const shd_recorder *recorder, int32_t own, const char *dir) {
    double until_ms = shd_clock_ms() + PATIENCE_MS;
    const struct timespec nap = {.tv_nsec = LOOK_MS * 1000000L};
    for (int32_t rank = 0; rank < shd_recorder_world(recorder); rank++)
        if (rank != own && cannot_write(recorder, rank)) SHD_TRY(shd_dump_write(recorder, rank, own, dir));
    for (int32_t rank = 0; rank < shd_recorder_world(recorder); rank++) {
        shd_recorder_head head;
        if (rank == own || !shd_recorder_look(recorder, rank, &head)) continue;
        while (!is_there(dir, rank) && shd_clock_ms() < until_ms) nanosleep(&nap, NULL);
        if (!is_there(dir, rank)) shd_stack_ask(recorder, rank, STACK_MS);
        SHD_TRY(shd_dump_write(recorder, rank, own, dir));
    }
    return SHERD_OK;
}

/* Whoever ends first makes a launcher end, or let go, the ranks whose dumps the finder is still to write. */
static void await_others(const shd_recorder *recorder, const char *dir) {
    double until_ms = shd_clock_ms() + PATIENCE_MS + GRACE_MS;
    const struct timespec nap = {.tv_nsec = LOOK_MS * 1000000L};
    shd_recorder_head head;
    for (int32_t rank = 0; rank < shd_recorder_world(recorder); rank++)
        while (shd_recorder_look(recorder, rank, &head) && !is_there(dir, rank) && shd_clock_ms() < until_ms)
            nanosleep(&nap, NULL);
}

sherd_status shd_dump_after_failure(const shd_recorder *recorder, int32_t own, const char *dir, bool *dumped) {
    int32_t finder = shd_recorder_alarmed(recorder, NULL);
    if (dumped) *dumped = false;
    if (finder < 0) return SHERD_OK;
    SHD_TRY(shd_dump_write(recorder, own, own, dir));
    if (dumped) *dumped = true;
    if (finder == own) return write_for_others(recorder, own, dir);
    await_others(recorder, dir);
    return SHERD_OK;
}

sherd_status shd_dump_missing(const shd_recorder *recorder, const char *dir, int32_t *count) {
    int32_t there = 0;
    sherd_status first = SHERD_OK;
    for (int32_t rank = 0; rank < shd_recorder_world(recorder); rank++) {
        sherd_status status = shd_dump_write(recorder, rank, SHD_DUMP_LAUNCHER, dir);
        if (first == SHERD_OK) first = status;
        there += is_there(dir, rank);
    }
    if (count) *count = there;
    return first;
}

void shd_dump_print_where(const shd_recorder *recorder, int32_t rank, char *out, size_t bytes) {
    shd_standing_print_where(recorder, rank, false, out, bytes);
}
