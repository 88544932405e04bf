/* The device of a session: opened after the ranks have met, so that a rank without one can say so to all. */
#include "runtime/base/arith.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/engine/on_device.h"
#include "runtime/session/internal.h"
#include "runtime/session/setup.h"

#include <stdio.h>
#include <time.h>

static bool is_on_device(const sherd_session *session) { return session->options.device != SHERD_DEVICE_CPU; }

/* Whether ranks exchange anything but small things. */
static bool has_link(const sherd_session *session) { return is_on_device(session) && session->options.world_size > 1; }

/* --- the link's needs --------------------------------------------------------------------------------------------- */

/* The link by library; NULL: it cannot be had, and the last error says why. */
static const shd_link_ops *find_library(void) {
    const shd_link_ops *ops = shd_link_library();
    if (!ops) (void)shd_fail(SHERD_CONFIG, "this program was built without the library that links devices");
    return ops && ops->usable() == SHERD_OK ? ops : NULL;
}

/* Devices of this host for each rank; all ranks are on it. */
static bool has_device_each(const sherd_session *session) {
    int32_t count = 0;
    const shd_device_ops *backend = shd_device_backend();
    return session->options.device_index < 0 && backend && backend->count(&count) == SHERD_OK &&
           count >= session->options.world_size;
}

/* Room for the staged link is there in any case with AUTO: which link it is to be, ranks find out together. */
static bool may_stage(const sherd_session *session) {
    return has_link(session) &&
           (session->options.link == SHERD_LINK_STAGED || session->options.link == SHERD_LINK_AUTO);
}

int64_t shd_place_exported_bytes(const sherd_session *session) {
    if (!may_stage(session)) return 0;
    return shd_link_staged.exported_bytes(shd_device_lane_bytes(session->plan, SHD_LANE_GATHER),
                                          shd_device_lane_bytes(session->plan, SHD_LANE_REDUCE));
}

int32_t shd_place_counter_units(const sherd_session *session) {
    return may_stage(session) ? shd_link_staged.counter_units : 0;
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static sherd_status find_index(const sherd_session *session, const shd_device_ops *ops, int32_t *out) {
    int32_t count;
    SHD_TRY(ops->count(&count));
    int32_t wanted = session->options.device_index;
    if (wanted >= count)
        return shd_fail(SHERD_CONFIG, "device_index is %d, and there %s %d device%s", wanted, count == 1 ? "is" : "are",
                        count, count == 1 ? "" : "s");
    *out = wanted >= 0 ? wanted : session->options.rank % count;
    return SHERD_OK;
}

/* Held against what is free before anything is allocated. */
static sherd_status check_memory(const sherd_session *session) {
    const shd_plan *plan = session->plan;
    shd_device_facts facts;
    session->place.ops->facts(session->place.device, &facts);
    int64_t wanted = plan->arena_bytes[SHD_PLACE_PRIVATE] + plan->arena_bytes[SHD_PLACE_EXPORTED];
    if (facts.free_bytes < 0 || wanted <= facts.free_bytes) return SHERD_OK;
    char table[600] = "";
    int length = 0;
    for (int c = 0; c < SHD_CATEGORIES && length < (int)sizeof table; c++)
        if (plan->category_bytes[c] > 0)
            length += snprintf(table + length, sizeof table - (size_t)length, "%s%s %.2f", length ? ", " : "",
                               shd_category_text((shd_category)c), (double)plan->category_bytes[c] / (1 << 30));
    return shd_fail(SHERD_MEMORY,
                    "rank %d needs %.2f GiB of %s, of which %.2f GiB of %.2f GiB are free; in GiB: %s; lower "
                    "micro_batch, take more ranks, stage 3 or recompute",
                    session->options.rank, (double)wanted / (1 << 30), facts.name, (double)facts.free_bytes / (1 << 30),
                    (double)facts.total_bytes / (1 << 30), table);
}

sherd_status shd_place_open(sherd_session *session) {
    static const char *const names[SHD_QUEUES] = {"sherd compute", "sherd gather", "sherd reduce", "sherd copy"};
    shd_engine_place *place = &session->place;
    if (!is_on_device(session)) return SHERD_OK;
    place->ops = shd_device_backend();
    place->spans = shd_spans_device();
    if (!place->ops || !place->spans)
        return shd_fail(SHERD_CONFIG, "device is a GPU, but this program was built without what computes there");
    shd_device_config config = {.index = 0};
    SHD_TRY(find_index(session, place->ops, &config.index));
    SHD_TRY(place->ops->open(&config, &place->device));
    SHD_TRY(check_memory(session));
    for (int q = 0; q < SHD_QUEUES; q++)
        SHD_TRY(place->ops->create_stream(place->device, names[q], q == SHD_QUEUE_GATHER || q == SHD_QUEUE_REDUCE,
                                          &place->streams[q]));
    return SHERD_OK;
}

/* With AUTO by library where every rank can; all tell, and rank 0's answer need not be asked for twice. */
static sherd_status choose_link(sherd_session *session, const shd_link_ops **out) {
    const sherd_link wanted = session->options.link;
    const shd_link_ops *library = wanted == SHERD_LINK_STAGED ? NULL : find_library();
    char why[SHD_BALLOT_TEXT_BYTES] = "";
    sherd_status mine = SHERD_OK;
    if (wanted == SHERD_LINK_STAGED) {
        *out = &shd_link_staged;
        return SHERD_OK;
    }
    if (!library)
        snprintf(why, sizeof why, "%s", sherd_last_error());
    else if (wanted == SHERD_LINK_AUTO && !has_device_each(session))
        snprintf(why, sizeof why, "ranks share devices");
    if (wanted != SHERD_LINK_AUTO && !library) mine = shd_fail(SHERD_CONFIG, "%s", why);
    SHD_TRY(shd_session_vote(session, mine, why));
    SHD_TRY(shd_session_outcome(session));
    *out = library;
    for (int32_t r = 0; r < session->options.world_size; r++)
        if (session->ballots[r].text[0]) *out = &shd_link_staged;
    return SHERD_OK;
}

sherd_status shd_place_link(sherd_session *session) {
    shd_engine_place *place = &session->place;
    if (!has_link(session)) return SHERD_OK;
    SHD_TRY(choose_link(session, &place->link_ops));
    const bool staged = place->link_ops == &shd_link_staged;
    const shd_link_config config = {
        .comm = session->comm,
        .ops = place->ops,
        .device = place->device,
        .streams = {[SHD_LANE_GATHER] = place->streams[SHD_QUEUE_GATHER],
                    [SHD_LANE_REDUCE] = place->streams[SHD_QUEUE_REDUCE]},
        .gather_bytes = staged ? shd_device_lane_bytes(session->plan, SHD_LANE_GATHER) : 0,
        .spread_bytes = staged ? shd_device_lane_bytes(session->plan, SHD_LANE_REDUCE) : 0,
        .first_counter_unit = session->plan->unit_count,
    };
    sherd_status status = place->link_ops->open(&config, &place->link);
    return status == SHERD_OK || !sherd_status_is_fatal(status) ? status : shd_session_die(session, status);
}

/* --- ending ------------------------------------------------------------------------------------------------------- */

void shd_place_unlink(sherd_session *session) {
    shd_engine_place *place = &session->place;
    if (place->link) place->link_ops->close(place->link, session->phase == SHD_PHASE_DEAD);
    place->link = NULL;
}

void shd_place_close(sherd_session *session) {
    shd_engine_place *place = &session->place;
    if (!place->device) return;
    for (int q = 0; q < SHD_QUEUES; q++)
        if (place->streams[q]) place->ops->destroy_stream(place->streams[q]);
    place->ops->close(place->device);
    *place = (shd_engine_place){0};
}

/* --- for model code ----------------------------------------------------------------------------------------------- */

bool shd_session_device(const sherd_session *session, shd_session_place *out) {
    if (!is_on_device(session)) return false;
    *out = (shd_session_place){.device_ops = session->place.ops,
                               .device = session->place.device,
                               .stream = session->place.streams[SHD_QUEUE_COMPUTE],
                               .link = session->place.link ? session->place.link_ops->name : NULL};
    return true;
}

sherd_status shd_session_await(sherd_session *session, shd_event *event, const char *what) {
    return shd_engine_await(session->engine, event, what);
}

static sherd_status add_later(sherd_session *session, int32_t metric, const double *terms, int64_t count) {
    if (session->phase != SHD_PHASE_EVALUATION) SHD_TRY(shd_session_expect(session, SHD_PHASE_STEP, "add_later"));
    return shd_engine_add_terms_later(session->engine, metric, terms, count);
}

sherd_status shd_session_add_loss_later(sherd_session *session, const double *terms, int64_t count) {
    return add_later(session, -1, terms, count);
}

sherd_status shd_session_add_metric_later(sherd_session *session, int32_t metric, const double *terms, int64_t count) {
    return add_later(session, metric, terms, count);
}

/* How long a device may take to come to rest, in which nothing it waits for comes from others any more. */
enum { REST_MS = 10000, REST_NAP_NS = 100000 };

void shd_session_rest(sherd_session *session) {
    if (!session || !session->place.device) return;
    const shd_engine_place *place = &session->place;
    shd_event *event;
    if (session->phase == SHD_PHASE_DEAD) shd_place_unlink(session);
    const struct timespec nap = {.tv_nsec = REST_NAP_NS};
    for (int q = 0; q < SHD_QUEUES; q++) {
        if (!place->streams[q] || place->ops->create_event(place->device, &event) != SHERD_OK) continue;
        place->ops->record(place->streams[q], event);
        for (double until_ms = shd_clock_ms() + REST_MS; !place->ops->reached(event) && shd_clock_ms() < until_ms;)
            nanosleep(&nap, NULL);
        place->ops->destroy_event(event);
    }
}
