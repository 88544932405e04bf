/* Which accesses are ordered: every byte range remembers its last write and the reads after it, by whom and when; an
 * access whose clock does not cover them races with them. Ranges of equal history are one, and a write takes the place
 * of all that it covers, so a step that touches the same buffers again keeps as many ranges as it has buffers. */
#include "tests/softcuda/soft_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES = 4096 };

soft_clock soft_host_clock = {{1}};

static const char *names[NAMES] = {"nobody"};
static uint16_t name_count = 1;

/* What an access is checked by, and what the ranges it touches become. */
typedef struct visit {
    const soft_stamp *stamp;
    const soft_clock *clock;
    const soft_allocation *allocation;
    bool writes;
    soft_interval *pieces; /* take the place of the intervals that it touches */
    size_t count, capacity;
} visit;

void soft_clock_join(soft_clock *clock, const soft_clock *other) {
    for (int i = 0; i < SOFT_ENTITIES; i++)
        if (other->ticks[i] > clock->ticks[i]) clock->ticks[i] = other->ticks[i];
}

uint16_t soft_intern(const char *name) {
    static uint16_t slots[2 * NAMES];
    size_t at = soft_hash(0, name, strlen(name)) % (2 * NAMES);
    for (; slots[at]; at = (at + 1) % (2 * NAMES))
        if (strcmp(names[slots[at]], name) == 0) return slots[at];
    if (name_count == NAMES) return NAMES - 1; /* the last name stands for all further ones */
    names[name_count] = strdup(name);
    return slots[at] = name_count++;
}

const char *soft_interned(uint16_t name) { return names[name]; }

static bool is_before(const soft_stamp *earlier, const soft_clock *clock) {
    return clock->ticks[earlier->entity] >= earlier->tick;
}

static void report_race(const visit *v, const soft_stamp *earlier, bool earlier_writes, uintptr_t begin,
                        uintptr_t end) {
    const struct {
        uint16_t now, then, now_by, then_by, kinds;
    } key = {v->stamp->name, earlier->name, v->stamp->entity, earlier->entity,
             (uint16_t)(2 * v->writes + earlier_writes)};
    const soft_allocation *a = v->allocation;
    soft_report_once(
        soft_hash(1, &key, sizeof key),
        "race: %s by %s (operation %u, %s) is not ordered after %s by %s (operation %u, %s): bytes [%zu, %zu) "
        "of the %zu bytes of %s allocation %u",
        v->writes ? "write" : "read", names[v->stamp->name], v->stamp->number, soft_entity_name(v->stamp->entity),
        earlier_writes ? "write" : "read", names[earlier->name], earlier->number, soft_entity_name(earlier->entity),
        begin - a->begin, end - a->begin, a->end - a->begin, soft_place_name(a->place), a->number);
}

static bool is_same_stamp(const soft_stamp *a, const soft_stamp *b) {
    return a->entity == b->entity && a->tick == b->tick && a->name == b->name;
}

static bool is_same_history(const soft_interval *a, const soft_interval *b) {
    if (!is_same_stamp(&a->write, &b->write) || a->read_count != b->read_count) return false;
    for (uint32_t i = 0; i < a->read_count; i++)
        if (!is_same_stamp(&a->reads[i], &b->reads[i])) return false;
    return true;
}

static void add_piece(visit *v, const soft_interval *piece, uintptr_t begin, uintptr_t end) {
    if (begin >= end) return;
    soft_interval *last = v->count > 0 ? &v->pieces[v->count - 1] : NULL;
    if (last && last->end == begin && is_same_history(last, piece)) {
        last->end = end;
        return;
    }
    if (v->count == v->capacity) {
        v->capacity = 2 * v->capacity + 16;
        v->pieces = realloc(v->pieces, v->capacity * sizeof *v->pieces);
    }
    v->pieces[v->count] = *piece;
    v->pieces[v->count].begin = begin;
    v->pieces[v->count++].end = end;
}

/* The new read stands for the earlier ones that are ordered before it: a write ordered after it is after them too. */
static void add_read(soft_interval *piece, const visit *v) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < piece->read_count; i++)
        if (!is_before(&piece->reads[i], v->clock)) piece->reads[kept++] = piece->reads[i];
    if (kept == SOFT_READERS) {
        softcuda_add_report("race: more than %d reads at once that nothing orders", SOFT_READERS);
        kept--;
    }
    piece->reads[kept++] = *v->stamp;
    piece->read_count = kept;
}

static void visit_overlap(visit *v, const soft_interval *old, uintptr_t begin, uintptr_t end) {
    if (old->write.name && !is_before(&old->write, v->clock)) report_race(v, &old->write, true, begin, end);
    for (uint32_t i = 0; v->writes && i < old->read_count; i++)
        if (!is_before(&old->reads[i], v->clock)) report_race(v, &old->reads[i], false, begin, end);
    if (v->writes) return;
    soft_interval piece = *old;
    add_read(&piece, v);
    add_piece(v, &piece, begin, end);
}

static size_t first_behind(const soft_history *history, uintptr_t address) {
    size_t low = 0, high = history->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (history->intervals[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Puts the pieces in place of intervals [first, last). */
static void replace(soft_history *history, size_t first, size_t last, const visit *v) {
    size_t count = history->count - (last - first) + v->count;
    if (count > history->capacity) {
        history->capacity = 2 * count;
        history->intervals = realloc(history->intervals, history->capacity * sizeof *history->intervals);
    }
    memmove(history->intervals + first + v->count, history->intervals + last,
            (history->count - last) * sizeof *history->intervals);
    memcpy(history->intervals + first, v->pieces, v->count * sizeof *v->pieces);
    history->count = count;
}

static void note_access(soft_history *history, visit *v, uintptr_t begin, uintptr_t end) {
    /* The neighbours that touch it take part, so that they can become one with it. */
    size_t first = first_behind(history, begin - 1), last = first;
    const soft_interval fresh = {
        .write = v->writes ? *v->stamp : (soft_stamp){0}, .reads = {*v->stamp}, .read_count = v->writes ? 0 : 1};
    uintptr_t at = begin; /* up to where pieces of [begin, end) are made */
    for (; last < history->count && history->intervals[last].begin <= end; last++) {
        const soft_interval *old = &history->intervals[last];
        uintptr_t from = old->begin > begin ? old->begin : begin, to = old->end < end ? old->end : end;
        add_piece(v, old, old->begin, old->end < begin ? old->end : begin);
        if (from < to) {
            if (!v->writes) add_piece(v, &fresh, at, from);
            visit_overlap(v, old, from, to);
            if (!v->writes) at = to;
        }
        if (old->end > end) {
            add_piece(v, &fresh, at, end);
            at = end;
            add_piece(v, old, old->begin > end ? old->begin : end, old->end);
        }
    }
    add_piece(v, &fresh, at, end);
    replace(history, first, last, v);
}

static void complain(const char *kind, const soft_stamp *stamp, const softcuda_access *access, const char *what) {
    softcuda_add_report("%s: %s (operation %u, %s) %s %zu bytes at %p, %s", kind, names[stamp->name], stamp->number,
                        soft_entity_name(stamp->entity), access->writes ? "writes" : "reads", access->bytes,
                        access->memory, what);
}

bool soft_check(const soft_stamp *stamp, const soft_clock *clock, const softcuda_access *access) {
    static soft_interval *pieces; /* kept, so that a check allocates nothing */
    static size_t capacity;
    uintptr_t begin = (uintptr_t)access->memory, end = begin + access->bytes;
    if (access->bytes == 0) return true;
    soft_allocation *allocation = soft_find(begin);
    if (!allocation) {
        if (stamp->entity == SOFT_HOST) return true; /* memory of the host's own */
        complain("bad pointer", stamp, access, "which is neither device nor pinned memory");
        return false;
    }
    if (allocation->is_freed) {
        complain("use after free", stamp, access, "in memory that is freed");
        return false;
    }
    if (end > allocation->end || end < begin) {
        char what[128];
        snprintf(what, sizeof what, "from byte %zu of the %zu bytes of %s allocation %u", begin - allocation->begin,
                 allocation->end - allocation->begin, soft_place_name(allocation->place), allocation->number);
        complain("out of bounds", stamp, access, what);
        return false;
    }
    visit v = {stamp, clock, allocation, access->writes, pieces, 0, capacity};
    note_access(&allocation->history, &v, begin, end);
    pieces = v.pieces;
    capacity = v.capacity;
    return true;
}

soft_stamp soft_pending(const soft_history *history) {
    for (size_t i = 0; i < history->count; i++) {
        const soft_interval *interval = &history->intervals[i];
        if (!is_before(&interval->write, &soft_host_clock)) return interval->write;
        for (uint32_t k = 0; k < interval->read_count; k++)
            if (!is_before(&interval->reads[k], &soft_host_clock)) return interval->reads[k];
    }
    return (soft_stamp){0};
}

void soft_history_end(soft_history *history) {
    free(history->intervals);
    *history = (soft_history){0};
}

static void host_access(const void *memory, size_t bytes, bool writes) {
    soft_lock();
    soft_stamp stamp = {.tick = soft_host_clock.ticks[SOFT_HOST], .entity = SOFT_HOST, .name = soft_intern("the host")};
    soft_check(&stamp, &soft_host_clock, &(softcuda_access){memory, bytes, writes});
    soft_unlock();
}

void softcuda_host_reads(const void *memory, size_t bytes) { host_access(memory, bytes, false); }
void softcuda_host_writes(const void *memory, size_t bytes) { host_access(memory, bytes, true); }
