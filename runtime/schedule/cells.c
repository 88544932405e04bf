/* See cells.h. */
#include "runtime/schedule/cells.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <inttypes.h>
#include <stdio.h>

/* An instruction, as actor and number; time 0: before all. */
typedef struct instant {
    int32_t actor, time;
} instant;

/* A segment of one instance of a buffer. */
typedef struct segment_state {
    instant written; /* or dropped */
    int32_t run;     /* in which that was */
    bool holds;
} segment_state;

/* What one rank may read of a segment of a HOST buffer. */
typedef struct segment_view {
    instant changed; /* acquired, written, dropped, or overwritten by its owner */
    bool readable;
} segment_view;

/* One buffer. Instance i, that of a rank or of a shard group, segment s is cells[i·segment_count + s]. */
typedef struct buffer_state {
    int32_t instance_count, segment_count;
    int32_t reader_count; /* actors that may read: all, or the rank's own */
    segment_state *cells;
    int32_t *reads;      /* [cells][reader_count]: each actor's last read */
    segment_view *views; /* HOST: [ranks][segments] */
} buffer_state;

struct shd_cells {
    const shd_host *host;
    const shd_segments *segments;
    buffer_state *stores; /* the plan's buffers, then the three things that have none */
    int32_t store_count;
};

/* --- what has no buffer ----------------------------------------------------------------------- */

static int32_t target_count_store(const shd_cells *cells) { return cells->segments->buffer_count; }
static int32_t verdict_store(const shd_cells *cells) { return cells->segments->buffer_count + 1; }
static int32_t norm_store(const shd_cells *cells, int32_t unit) { return cells->segments->buffer_count + 2 + unit; }

/* --- messages --------------------------------------------------------------------------------- */

/* Where an access is. */
typedef struct spot {
    const shd_moment *moment;
    int32_t store, instance, segment;
} spot;

static shd_name name_spot(const shd_cells *cells, const spot *at) {
    shd_name name;
    int32_t buffer_count = cells->segments->buffer_count;
    if (at->store >= buffer_count) {
        const char *unit =
            at->store >= buffer_count + 2 ? cells->host->plans[0]->unit_names[at->store - buffer_count - 2] : NULL;
        snprintf(name.text, sizeof name.text, "%s%s",
                 unit                                     ? "the norm of "
                 : at->store == target_count_store(cells) ? "the target count"
                                                          : "the verdict",
                 unit ? unit : "");
        return name;
    }
    const int64_t *cut = &cells->segments->buffers[at->store].bytes[at->segment];
    shd_name buffer = shd_name_buffer(cells->host->plans[0], at->store);
    char owner[32] = "";
    if (!cells->stores[at->store].views && at->instance != at->moment->rank)
        snprintf(owner, sizeof owner, "rank %" PRId32 "'s ", at->instance);
    snprintf(name.text, sizeof name.text, "%s%s, bytes %" PRId64 " to %" PRId64, owner, buffer.text, cut[0], cut[1]);
    return name;
}

static shd_name name_moment(const shd_cells *cells, const shd_moment *moment) {
    return shd_name_moment(cells->host, moment->actor, moment->time);
}

static sherd_status fail_unordered(const shd_cells *cells, const spot *at, const char *verb, const char *other_verb,
                                   instant other) {
    return shd_fail(SHERD_INTERNAL, "%s %s %s, which %s %s: nothing orders the two",
                    name_moment(cells, at->moment).text, verb, name_spot(cells, at).text,
                    shd_name_moment(cells->host, other.actor, other.time).text, other_verb);
}

/* A read of what is not there. */
static sherd_status fail_missing(const shd_cells *cells, const spot *at, instant since, const char *why) {
    if (since.time == 0)
        return shd_fail(SHERD_INTERNAL, "%s reads %s, which nothing before it has %s",
                        name_moment(cells, at->moment).text, name_spot(cells, at).text, why);
    return shd_fail(SHERD_INTERNAL, "%s reads %s, which nothing before it has %s since %s",
                    name_moment(cells, at->moment).text, name_spot(cells, at).text, why,
                    shd_name_moment(cells->host, since.actor, since.time).text);
}

/* --- one segment ------------------------------------------------------------------------------ */

/* The instance of a store that `rank` has. */
static int32_t instance_of(const shd_cells *cells, int32_t store, int32_t rank) {
    if (!cells->stores[store].views) return rank;
    shd_mesh mesh = shd_policy_mesh(&cells->host->plans[rank]->policy);
    return shd_mesh_replica(&mesh);
}

static bool is_done(const shd_moment *moment, instant other) { return moment->clock[other.actor] >= other.time; }

static int32_t first_reader(const buffer_state *store, int32_t instance) {
    return store->reader_count == SHD_QUEUES ? instance * SHD_QUEUES : 0;
}

static size_t cell_index(const buffer_state *store, const spot *at) {
    return (size_t)at->instance * (size_t)store->segment_count + (size_t)at->segment;
}

/* Contents outlive a run only in parameters and optimizer state. */
static bool outlives_runs(const shd_cells *cells, int32_t store) {
    if (store >= cells->segments->buffer_count) return false;
    shd_buffer_kind kind = cells->host->plans[0]->buffers[store].kind;
    return kind == SHD_BUFFER_PARAMETERS || kind == SHD_BUFFER_SHARD || kind == SHD_BUFFER_MASTER ||
           kind == SHD_BUFFER_STATE || kind == SHD_BUFFER_OWNED_STATE;
}

static bool owns(const shd_cells *cells, int32_t rank, const spot *at) {
    const shd_buffer *buffer = &cells->host->plans[0]->buffers[at->store];
    int64_t shard = cells->host->plans[0]->groups[buffer->owner_index].shard_count * shd_dtype_bytes(buffer->dtype);
    int64_t first = cells->segments->buffers[at->store].bytes[at->segment];
    int32_t place = shd_policy_place(&cells->host->plans[rank]->policy);
    return first >= place * shard && first < (place + 1) * shard;
}

static void note_read(buffer_state *store, const spot *at) {
    size_t reader = (size_t)(at->moment->actor - first_reader(store, at->instance));
    store->reads[cell_index(store, at) * (size_t)store->reader_count + reader] = at->moment->time;
}

static segment_view *view_at(const buffer_state *store, int32_t rank, const spot *at) {
    return &store->views[(size_t)rank * (size_t)store->segment_count + (size_t)at->segment];
}

static sherd_status read_segment(shd_cells *cells, const spot *at, bool acquire) {
    buffer_state *store = &cells->stores[at->store];
    const segment_state *cell = &store->cells[cell_index(store, at)];
    if (!is_done(at->moment, cell->written))
        return fail_unordered(cells, at, acquire ? "acquires" : "reads", cell->holds ? "writes" : "drops",
                              cell->written);
    if (!cell->holds) return fail_missing(cells, at, cell->written, "written");
    if (cell->run != at->moment->run && !outlives_runs(cells, at->store))
        return fail_missing(cells, at, cell->written, "written in this run,");
    note_read(store, at);
    if (!store->views) return SHERD_OK;

    segment_view *view = view_at(store, at->moment->rank, at);
    const instant now = {.actor = at->moment->actor, .time = at->moment->time};
    if (acquire) {
        view->changed = now;
        view->readable = true;
        return SHERD_OK;
    }
    if (!view->readable) return fail_missing(cells, at, view->changed, "acquired");
    if (!is_done(at->moment, view->changed)) return fail_unordered(cells, at, "reads", "acquires", view->changed);
    return SHERD_OK;
}

/* A write, or the end of contents. */
static sherd_status write_segment(shd_cells *cells, const spot *at, bool drop) {
    buffer_state *store = &cells->stores[at->store];
    size_t index = cell_index(store, at);
    segment_state *cell = &store->cells[index];
    const char *verb = drop ? "drops" : "writes";
    if (!is_done(at->moment, cell->written))
        return fail_unordered(cells, at, verb, cell->holds ? "writes" : "drops", cell->written);
    const int32_t *reads = &store->reads[index * (size_t)store->reader_count];
    for (int32_t i = 0; i < store->reader_count; i++) {
        const instant read = {.actor = first_reader(store, at->instance) + i, .time = reads[i]};
        if (!is_done(at->moment, read)) return fail_unordered(cells, at, verb, "reads", read);
    }
    const instant now = {.actor = at->moment->actor, .time = at->moment->time};
    cell->written = now;
    cell->run = at->moment->run;
    cell->holds = !drop;
    for (int32_t r = 0; store->views && r < cells->host->rank_count; r++)
        if (instance_of(cells, at->store, r) == at->instance)
            *view_at(store, r, at) = (segment_view){.changed = now, .readable = r == at->moment->rank};
    return SHERD_OK;
}

/* A view ends for its rank alone; the owner keeps its shard. */
static void drop_view(shd_cells *cells, const spot *at) {
    if (owns(cells, at->moment->rank, at)) return;
    *view_at(&cells->stores[at->store], at->moment->rank, at) =
        (segment_view){.changed = {.actor = at->moment->actor, .time = at->moment->time}};
}

static sherd_status touch_segment(shd_cells *cells, const spot *at, shd_access_mode mode) {
    bool viewed = cells->stores[at->store].views != NULL;
    switch (mode) {
    case SHD_ACCESS_READ: return read_segment(cells, at, false);
    case SHD_ACCESS_ACQUIRE: return read_segment(cells, at, viewed);
    case SHD_ACCESS_WRITE: return write_segment(cells, at, false);
    case SHD_ACCESS_DROP:
        if (!viewed) return write_segment(cells, at, true);
        drop_view(cells, at);
        return SHERD_OK;
    }
    return shd_fail(SHERD_INTERNAL, "%s: access mode %d is unknown", name_moment(cells, at->moment).text, (int)mode);
}

/* --- instructions ----------------------------------------------------------------------------- */

static sherd_status touch_range(shd_cells *cells, spot at, shd_access_mode mode, int64_t first, int64_t bytes) {
    const shd_cuts *cuts = &cells->segments->buffers[at.store];
    for (at.segment = shd_segments_find(cells->segments, at.store, first); cuts->bytes[at.segment] < first + bytes;
         at.segment++)
        SHD_TRY(touch_segment(cells, &at, mode));
    return SHERD_OK;
}

static sherd_status touch(shd_cells *cells, const shd_moment *moment, const shd_access *access) {
    shd_mesh mesh = shd_policy_mesh(&cells->host->plans[moment->rank]->policy);
    spot at = {.moment = moment, .store = access->buffer_index};
    for (int32_t i = 0; i < shd_mesh_count(&mesh, access->scope); i++) {
        if (access->peer > 0 && i != access->peer - 1) continue;
        shd_part range = shd_access_range(access, i);
        at.instance = instance_of(cells, at.store, shd_mesh_member(&mesh, access->scope, i));
        if (range.count > 0) SHD_TRY(touch_range(cells, at, access->mode, range.first, range.count));
    }
    return SHERD_OK;
}

static sherd_status touch_bufferless(shd_cells *cells, const shd_moment *moment, int32_t store, shd_access_mode mode) {
    const spot at = {.moment = moment, .store = store, .instance = moment->rank};
    return touch_segment(cells, &at, mode);
}

static sherd_status visit_bufferless(shd_cells *cells, const shd_moment *moment, shd_op op) {
    const shd_program *program = cells->host->programs[moment->rank];
    const shd_plan *plan = cells->host->plans[0];
    switch (op) {
    case SHD_OP_COUNT: return touch_bufferless(cells, moment, target_count_store(cells), SHD_ACCESS_WRITE);
    case SHD_OP_BACKWARD: return touch_bufferless(cells, moment, target_count_store(cells), SHD_ACCESS_READ);
    case SHD_OP_NORM: return touch_bufferless(cells, moment, norm_store(cells, moment->unit_index), SHD_ACCESS_WRITE);
    case SHD_OP_VERDICT:
        for (int32_t i = 0; program->kind == SHD_PROGRAM_TRAIN && i < plan->gradient_count; i++)
            SHD_TRY(touch_bufferless(cells, moment, norm_store(cells, plan->gradients[i].unit_index), SHD_ACCESS_READ));
        return touch_bufferless(cells, moment, verdict_store(cells), SHD_ACCESS_WRITE);
    case SHD_OP_DIRECT:
    case SHD_OP_UPDATE:
        return program->late_updates ? touch_bufferless(cells, moment, verdict_store(cells), SHD_ACCESS_READ)
                                     : SHERD_OK;
    default: return SHERD_OK;
    }
}

/* An update before the first run: only what others may read of it matters. */
static sherd_status visit_lingering(shd_cells *cells, const shd_moment *moment) {
    const shd_plan *plan = cells->host->plans[moment->rank];
    const shd_group *group = &plan->groups[plan->units[moment->unit_index].trainable_group];
    int64_t shard_bytes = group->shard_count * shd_dtype_bytes(plan->policy.parameter_dtype);
    bool in_full = group->parameters_buffer >= 0;
    const shd_access write = {.mode = SHD_ACCESS_WRITE,
                              .buffer_index = in_full ? group->parameters_buffer : group->shard_buffer,
                              .first_byte = in_full ? shd_policy_place(&plan->policy) * shard_bytes : 0,
                              .byte_count = shard_bytes};
    return touch(cells, moment, &write);
}

sherd_status shd_cells_visit(void *user, const shd_moment *moment) {
    shd_cells *cells = user;
    if (moment->index < 0) return visit_lingering(cells, moment);
    const shd_program *program = cells->host->programs[moment->rank];
    const shd_instruction *instruction = &program->instructions[moment->index];
    SHD_TRY(visit_bufferless(cells, moment, instruction->op));
    for (int32_t i = 0; i < instruction->accesses.count; i++)
        SHD_TRY(touch(cells, moment, &program->accesses[instruction->accesses.first + i]));
    return SHERD_OK;
}

/* --- life ------------------------------------------------------------------------------------- */

/* Whether the first run finds a segment filled: parameters and state are, but a prologue finds the own shard only where
 * it gathers the others. */
static bool is_filled(const shd_cells *cells, const spot *at) {
    if (!outlives_runs(cells, at->store)) return false;
    const shd_buffer *buffer = &cells->host->plans[0]->buffers[at->store];
    bool gathers = cells->host->programs[0]->kind == SHD_PROGRAM_PROLOGUE && buffer->place == SHD_PLACE_EXPORTED &&
                   buffer->kind == SHD_BUFFER_PARAMETERS;
    return !gathers || owns(cells, at->instance, at);
}

static void fill(shd_cells *cells, int32_t index) {
    buffer_state *store = &cells->stores[index];
    spot at = {.store = index};
    for (at.instance = 0; at.instance < store->instance_count; at.instance++)
        for (at.segment = 0; at.segment < store->segment_count; at.segment++)
            store->cells[cell_index(store, &at)].holds = is_filled(cells, &at);
    for (int32_t r = 0; store->views && r < cells->host->rank_count; r++)
        for (at.segment = 0; at.segment < store->segment_count; at.segment++)
            view_at(store, r, &at)->readable = owns(cells, r, &at);
}

static bool store_init(shd_cells *cells, int32_t index) {
    bool bufferless = index >= cells->segments->buffer_count;
    shd_place place = bufferless ? SHD_PLACE_PRIVATE : cells->host->plans[0]->buffers[index].place;
    int32_t ranks = cells->host->rank_count;
    buffer_state *store = &cells->stores[index];
    store->instance_count = place == SHD_PLACE_HOST ? cells->host->plans[0]->policy.replicas : ranks;
    store->segment_count = bufferless ? 1 : shd_segments_count(cells->segments, index);
    store->reader_count = place == SHD_PLACE_PRIVATE ? SHD_QUEUES : ranks * SHD_QUEUES;
    size_t count = (size_t)store->instance_count * (size_t)store->segment_count;
    store->cells = shd_alloc(count, sizeof *store->cells);
    store->reads = shd_alloc(count * (size_t)store->reader_count, sizeof *store->reads);
    if (!store->cells || !store->reads) return false;
    if (place == SHD_PLACE_HOST) {
        store->views = shd_alloc((size_t)ranks * (size_t)store->segment_count, sizeof *store->views);
        if (!store->views) return false;
    }
    fill(cells, index);
    return true;
}

static bool stores_init(shd_cells *cells) {
    cells->stores = shd_alloc((size_t)cells->store_count, sizeof *cells->stores);
    if (!cells->stores) return false;
    for (int32_t i = 0; i < cells->store_count; i++)
        if (!store_init(cells, i)) return false;
    return true;
}

sherd_status shd_cells_create(const shd_host *host, const shd_segments *segments, shd_cells **out) {
    shd_cells *cells = shd_alloc(1, sizeof *cells);
    if (cells) {
        *cells = (shd_cells){
            .host = host, .segments = segments, .store_count = segments->buffer_count + 2 + host->plans[0]->unit_count};
        if (stores_init(cells)) {
            *out = cells;
            return SHERD_OK;
        }
    }
    shd_cells_destroy(cells);
    return shd_fail(SHERD_MEMORY, "no memory to verify step programs");
}

void shd_cells_destroy(shd_cells *cells) {
    if (!cells) return;
    for (int32_t i = 0; cells->stores && i < cells->store_count; i++) {
        shd_free(cells->stores[i].cells);
        shd_free(cells->stores[i].reads);
        shd_free(cells->stores[i].views);
    }
    shd_free(cells->stores);
    shd_free(cells);
}
