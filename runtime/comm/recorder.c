/* How a record is written and read without a lock: a slot's `sequence` is 0 while its owner writes it anew, and 1 + the
 * record's number when it is whole. Every store of a slot is a release and every load an acquire, so that a reader that
 * has seen one new field sees, when it looks at `sequence` again, that it is no longer the same. Times that come later
 * (started, ended) are stored alone: a reader sees them or does not. */
#include "runtime/comm/recorder.h"

#include "runtime/base/arith.h"
#include "runtime/base/clock.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/comm/arena.h"
#include "runtime/comm/standing.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x7264726568730001)
enum { LINE_BYTES = 128, PAGE_BYTES = 4096, UNIT_TEXT_BYTES = 8192 };

/* Times are read by other processes while the owner goes on. */
struct slot {
    _Atomic uint64_t sequence; /* 1 + number; 0: nothing, or being written */
    _Atomic int64_t queued_ns, started_ns, ended_ns, bytes, step;
    _Atomic int32_t unit, micro_step, collective;
    _Atomic uint32_t tags; /* kind, queue, program: a byte each */
};
_Static_assert(sizeof(struct slot) == 64, "a record is one cache line");

struct part {
    _Alignas(LINE_BYTES) _Atomic int64_t count;
    _Atomic int64_t awaited; /* 1 + the record's number; 0: none */
    _Atomic int32_t activity;
    _Atomic int64_t activity_step, activity_since_ns;
    _Alignas(LINE_BYTES) _Atomic int32_t pid; /* set last: then all that follows is */
    int32_t tid;
    int64_t born, unix_offset_ns;
    char host[SHD_RECORDER_HOST_BYTES];
    char alarm[SHD_RECORDER_TEXT_BYTES]; /* written before `alarmed` names this rank, never after */
    char kinds[SHD_RECORD_KINDS][SHD_RECORDER_NAME_BYTES];
    _Atomic int32_t stack_signal, stack_bytes; /* bytes: set when it is there */
    char stack[SHD_RECORDER_STACK_BYTES];
    _Atomic int32_t unit_text_bytes; /* set when they are there */
    char units[UNIT_TEXT_BYTES];     /* names one after another, each with its 0 */
    _Alignas(LINE_BYTES) struct slot ring[SHD_RECORDER_EVENTS];
};

struct head {
    uint64_t magic;
    int32_t world_size;
    _Atomic int32_t alarmed; /* 1 + the rank whose alarm stands */
};
_Static_assert(sizeof(struct head) <= PAGE_BYTES, "parts begin after a page");

struct shd_recorder {
    struct head *head;
    struct part *parts, *own; /* own: NULL of a reader */
    int64_t count;            /* of the own records */
    int64_t step;             /* entered last */
    int32_t rank, world_size;
};

static const char *const kind_names[] = {[SHD_RECORD_EXCHANGE] = "EXCHANGE", [SHD_RECORD_DATA] = "DATA"};
enum { KIND_NAMES = sizeof kind_names / sizeof *kind_names };

const char *shd_activity_text(shd_activity activity) {
    static const char *const texts[SHD_ACTIVITIES] = {
#define ACTIVITY_TEXT(name, text) [SHD_ACTIVITY_##name] = (text),
        SHD_ACTIVITY_MAP(ACTIVITY_TEXT)
#undef ACTIVITY_TEXT
    };
    return activity >= 0 && activity < SHD_ACTIVITIES ? texts[activity] : "unknown";
}

/* --- life --------------------------------------------------------------------------------------------------------- */

int64_t shd_recorder_bytes(int32_t world_size) {
    return shd_round_up(PAGE_BYTES + world_size * (int64_t)sizeof(struct part), PAGE_BYTES);
}

sherd_status shd_recorder_file(int32_t world_size, int *fd) {
    int file;
    SHD_TRY(shd_arena_create("sherd-recorder", shd_recorder_bytes(world_size), &file));
    const struct head head = {.magic = MAGIC, .world_size = world_size};
    if (pwrite(file, &head, sizeof head, 0) != (ssize_t)sizeof head) {
        close(file);
        return shd_fail(SHERD_MEMORY, "cannot write the recorder's head");
    }
    *fd = file;
    return SHERD_OK;
}

static void come(shd_recorder *recorder) {
    struct part *own = recorder->own;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    own->unix_offset_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - shd_clock_ns();
    own->tid = gettid();
    own->born = shd_standing_born(getpid());
    if (gethostname(own->host, sizeof own->host - 1)) own->host[0] = 0;
    for (int32_t kind = 0; kind < KIND_NAMES; kind++) shd_recorder_name_kind(recorder, kind, kind_names[kind]);
    shd_recorder_enter(recorder, SHD_ACTIVITY_STARTING, -1);
    atomic_store(&own->pid, getpid());
}

sherd_status shd_recorder_open(int fd, int32_t rank, shd_recorder **out) {
    struct head head;
    struct stat facts;
    void *base;
    if (pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head || head.magic != MAGIC || head.world_size < 1 ||
        fstat(fd, &facts) || facts.st_size != shd_recorder_bytes(head.world_size))
        return shd_fail(SHERD_COMM, "descriptor %d is no flight recorder of this build", fd);
    if (rank < -1 || rank >= head.world_size)
        return shd_fail(SHERD_COMM, "the flight recorder has %d ranks: there is no rank %d", head.world_size, rank);
    shd_recorder *recorder = shd_alloc(1, sizeof *recorder);
    if (!recorder) return shd_fail(SHERD_MEMORY, "no memory for a flight recorder");
    sherd_status status = shd_arena_map(fd, facts.st_size, rank >= 0, &base);
    if (status != SHERD_OK) {
        shd_free(recorder);
        return status;
    }
    struct part *parts = (void *)((unsigned char *)base + PAGE_BYTES);
    *recorder = (shd_recorder){.step = -1,
                               .head = base,
                               .parts = parts,
                               .own = rank >= 0 ? &parts[rank] : NULL,
                               .rank = rank,
                               .world_size = head.world_size};
    if (rank >= 0) {
        recorder->count = atomic_load(&recorder->own->count); /* goes on where a session before this one ended */
        shd_memory_note(SHD_MEMORY_CONTROL, (int64_t)sizeof(struct part));
        come(recorder);
    }
    *out = recorder;
    return SHERD_OK;
}

void shd_recorder_close(shd_recorder *recorder) {
    if (!recorder) return;
    if (recorder->own) shd_memory_note(SHD_MEMORY_CONTROL, -(int64_t)sizeof(struct part));
    munmap(recorder->head, (size_t)shd_recorder_bytes(recorder->world_size));
    shd_free(recorder);
}

int32_t shd_recorder_world(const shd_recorder *recorder) { return recorder ? recorder->world_size : 0; }

/* --- writing ------------------------------------------------------------------------------------------------------ */

void shd_recorder_name_kind(shd_recorder *recorder, int32_t kind, const char *name) {
    if (recorder && kind >= 0 && kind < SHD_RECORD_KINDS)
        snprintf(recorder->own->kinds[kind], SHD_RECORDER_NAME_BYTES, "%s", name);
}

void shd_recorder_name_units(shd_recorder *recorder, char *const *names, int32_t count) {
    if (!recorder || atomic_load(&recorder->own->unit_text_bytes)) return;
    size_t used = 0;
    for (int32_t u = 0; u < count; u++) {
        size_t bytes = strlen(names[u]) + 1;
        if (used + bytes > UNIT_TEXT_BYTES) break;
        memcpy(recorder->own->units + used, names[u], bytes);
        used += bytes;
    }
    atomic_store(&recorder->own->unit_text_bytes, (int32_t)used);
}

void shd_recorder_enter(shd_recorder *recorder, shd_activity activity, int64_t step) {
    if (!recorder) return;
    recorder->step = step;
    atomic_store_explicit(&recorder->own->activity_since_ns, shd_clock_ns(), memory_order_relaxed);
    atomic_store_explicit(&recorder->own->activity_step, step, memory_order_relaxed);
    atomic_store_explicit(&recorder->own->activity, (int32_t)activity, memory_order_release);
}

int64_t shd_recorder_step(const shd_recorder *recorder) { return recorder ? recorder->step : -1; }

#define PUT(field, value) atomic_store_explicit(&(field), (value), memory_order_release)
#define GET(field)        atomic_load_explicit(&(field), memory_order_acquire)

int64_t shd_recorder_add(shd_recorder *recorder, const shd_record *record) {
    if (!recorder) return -1;
    int64_t number = recorder->count++;
    struct slot *slot = &recorder->own->ring[number % SHD_RECORDER_EVENTS];
    PUT(slot->sequence, 0);
    PUT(slot->queued_ns, record->queued_ns);
    PUT(slot->started_ns, record->started_ns);
    PUT(slot->ended_ns, 0);
    PUT(slot->bytes, record->bytes);
    PUT(slot->step, record->step);
    PUT(slot->unit, record->unit);
    PUT(slot->micro_step, record->micro_step);
    PUT(slot->collective, record->collective < 0 ? -1 : (int32_t)(record->collective & INT32_MAX));
    PUT(slot->tags, (uint32_t)record->kind | (uint32_t)record->queue << 8 | (uint32_t)record->program << 16);
    PUT(slot->sequence, (uint64_t)number + 1);
    PUT(recorder->own->count, number + 1);
    return number;
}

/* The slot of an own record, NULL when it has been written over. */
static struct slot *own_slot(shd_recorder *recorder, int64_t number) {
    if (!recorder || number < 0 || number >= recorder->count || recorder->count - number > SHD_RECORDER_EVENTS)
        return NULL;
    return &recorder->own->ring[number % SHD_RECORDER_EVENTS];
}

void shd_recorder_start(shd_recorder *recorder, int64_t number, int64_t now_ns) {
    struct slot *slot = own_slot(recorder, number);
    if (slot) PUT(slot->started_ns, now_ns);
}

void shd_recorder_end(shd_recorder *recorder, int64_t number, int64_t now_ns) {
    struct slot *slot = own_slot(recorder, number);
    if (slot) PUT(slot->ended_ns, now_ns);
}

void shd_recorder_await(shd_recorder *recorder, int64_t number) {
    if (recorder) PUT(recorder->own->awaited, number + 1);
}

void shd_recorder_offer_stack(shd_recorder *recorder, int32_t signal) {
    if (recorder) atomic_store(&recorder->own->stack_signal, signal);
}

void shd_recorder_put_stack(shd_recorder *recorder, const char *text) {
    if (!recorder || atomic_load(&recorder->own->stack_bytes)) return;
    size_t bytes = strnlen(text, SHD_RECORDER_STACK_BYTES - 1);
    memcpy(recorder->own->stack, text, bytes);
    atomic_store(&recorder->own->stack_bytes, (int32_t)bytes);
}

void shd_recorder_alarm(shd_recorder *recorder, const char *text) {
    int32_t none = 0;
    if (!recorder || atomic_load(&recorder->head->alarmed)) return;
    snprintf(recorder->own->alarm, sizeof recorder->own->alarm, "%s", text);
    atomic_compare_exchange_strong(&recorder->head->alarmed, &none, recorder->rank + 1);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static void copy_text(char *to, size_t to_bytes, const char *from, size_t from_bytes) {
    size_t length = strnlen(from, from_bytes < to_bytes ? from_bytes - 1 : to_bytes - 1);
    memcpy(to, from, length);
    to[length] = 0;
}

int32_t shd_recorder_alarmed(const shd_recorder *recorder, char *text) {
    int32_t rank = recorder ? atomic_load(&recorder->head->alarmed) - 1 : -1;
    if (rank < 0 || rank >= recorder->world_size) return -1;
    if (text) copy_text(text, SHD_RECORDER_TEXT_BYTES, recorder->parts[rank].alarm, SHD_RECORDER_TEXT_BYTES);
    return rank;
}

static const struct part *part_of(const shd_recorder *recorder, int32_t rank) {
    return recorder && rank >= 0 && rank < recorder->world_size ? &recorder->parts[rank] : NULL;
}

bool shd_recorder_look(const shd_recorder *recorder, int32_t rank, shd_recorder_head *out) {
    const struct part *part = part_of(recorder, rank);
    int32_t pid = part ? atomic_load(&part->pid) : 0;
    if (!pid) return false;
    int64_t count = GET(part->count);
    *out = (shd_recorder_head){
        .rank = rank,
        .pid = pid,
        .tid = part->tid,
        .born = part->born,
        .count = count,
        .first = shd_max(0, count - SHD_RECORDER_EVENTS),
        .activity = (shd_activity)GET(part->activity),
        .activity_step = GET(part->activity_step),
        .activity_since_ns = GET(part->activity_since_ns),
        .stack_signal = atomic_load(&part->stack_signal),
        .unix_offset_ns = part->unix_offset_ns,
    };
    copy_text(out->host, sizeof out->host, part->host, sizeof part->host);
    return true;
}

bool shd_recorder_read(const shd_recorder *recorder, int32_t rank, int64_t number, shd_record *out) {
    const struct part *part = part_of(recorder, rank);
    if (!part || number < 0) return false;
    const struct slot *slot = &part->ring[number % SHD_RECORDER_EVENTS];
    if (GET(slot->sequence) != (uint64_t)number + 1) return false;
    uint32_t tags = GET(slot->tags);
    shd_record seen = {
        .sequence = number,
        .queued_ns = GET(slot->queued_ns),
        .started_ns = GET(slot->started_ns),
        .ended_ns = GET(slot->ended_ns),
        .bytes = GET(slot->bytes),
        .step = GET(slot->step),
        .collective = GET(slot->collective),
        .unit = GET(slot->unit),
        .micro_step = GET(slot->micro_step),
        .kind = (uint8_t)tags,
        .queue = (uint8_t)(tags >> 8),
        .program = (uint8_t)(tags >> 16),
    };
    if (GET(slot->sequence) != (uint64_t)number + 1) return false;
    *out = seen;
    return true;
}

bool shd_recorder_stack(const shd_recorder *recorder, int32_t rank, char out[SHD_RECORDER_STACK_BYTES]) {
    const struct part *part = part_of(recorder, rank);
    int32_t bytes = part ? atomic_load(&part->stack_bytes) : 0;
    if (bytes <= 0 || bytes >= SHD_RECORDER_STACK_BYTES) return false;
    memcpy(out, part->stack, (size_t)bytes);
    out[bytes] = 0;
    return true;
}

const char *shd_recorder_kind_name(const shd_recorder *recorder, int32_t rank, int32_t kind, char *out, size_t bytes) {
    const struct part *part = part_of(recorder, rank);
    out[0] = 0;
    if (part && kind >= 0 && kind < SHD_RECORD_KINDS) copy_text(out, bytes, part->kinds[kind], SHD_RECORDER_NAME_BYTES);
    if (!out[0]) snprintf(out, bytes, "kind %d", kind);
    return out;
}

const char *shd_recorder_unit_name(const shd_recorder *recorder, int32_t rank, int32_t unit, char *out, size_t bytes) {
    const struct part *part = part_of(recorder, rank);
    size_t used = part ? (size_t)atomic_load(&part->unit_text_bytes) : 0, at = 0;
    snprintf(out, bytes, "unit %d", unit);
    if (unit < 0) out[0] = 0;
    if (unit < 0 || used > UNIT_TEXT_BYTES) return out;
    for (int32_t u = 0; u < unit && at < used; u++) at += strnlen(part->units + at, used - at) + 1;
    if (at < used) copy_text(out, bytes, part->units + at, used - at);
    return out;
}

void shd_recorder_print(const shd_recorder *recorder, int32_t rank, const shd_record *record, char *out, size_t bytes) {
    char kind[SHD_RECORDER_NAME_BYTES], unit[64];
    shd_recorder_kind_name(recorder, rank, record->kind, kind, sizeof kind);
    shd_recorder_unit_name(recorder, rank, record->unit, unit, sizeof unit);
    snprintf(out, bytes, "%s%s%s", kind, unit[0] ? " " : "", unit);
}

/* Whether the rank's thread cannot go on before it: an instruction of its own queue, the first of the four. */
static bool holds(const shd_record *record) { return record->kind >= SHD_RECORD_INSTRUCTION && record->queue == 0; }

bool shd_recorder_where(const shd_recorder *recorder, int32_t rank, shd_where *out) {
    shd_recorder_head head;
    shd_record record, awaited;
    if (!shd_recorder_look(recorder, rank, &head)) return false;
    shd_where where = {.kind = SHD_AT_NOTHING, .since_ns = head.activity_since_ns};
    shd_record held;
    bool is_held = false;
    for (int64_t number = head.count; number-- > head.first;) {
        if (!shd_recorder_read(recorder, rank, number, &record) || record.ended_ns) continue;
        if (!record.started_ns) {
            if (!is_held && holds(&record)) held = record;
            is_held |= holds(&record);
        } else if (where.kind == SHD_AT_NOTHING || record.started_ns > where.since_ns) {
            where.kind = record.kind == SHD_RECORD_EXCHANGE ? SHD_AT_WAIT : SHD_AT_WORK;
            where.record = record;
            where.since_ns = record.started_ns;
        }
    }
    if (where.kind == SHD_AT_NOTHING && is_held)
        where = (shd_where){.kind = SHD_AT_WAIT, .record = held, .since_ns = held.queued_ns};
    int64_t waits_for = GET(part_of(recorder, rank)->awaited) - 1;
    if (where.kind == SHD_AT_WAIT && holds(&where.record) && waits_for >= 0 &&
        shd_recorder_read(recorder, rank, waits_for, &awaited) && !awaited.ended_ns) {
        where.waits_for = true;
        where.awaited = awaited;
    }
    *out = where;
    return true;
}
