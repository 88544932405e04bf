/* Device memory moved between ranks of one host through their EXPORTED arenas, which the device copies from and to.
 *
 * A lane has two halves of the arena and moves its transfers in portions, which take the halves in turn. A portion goes
 * through the stages of its half, each begun by the host in `progress` when what it needs is there:
 *   FILLING   what this rank gives is being copied into the half; needs the half drained by all who read it before
 *   FILLED    that is done, and peers were told; needs their FILLED
 *   DRAINING  peers' portions are being copied from their halves to where they belong
 *   FREE      that is done, and peers were told
 * One portion may be filled while the one before is drained. Nobody waits for more than that its peers go on making
 * progress: the first portion that is not drained everywhere needs nothing of a later one.
 *
 * Peers are told by the comm's counters, a unit for each lane and scope; the n-th portion of a lane and scope is the same
 * one on all members. Each half begins with a note of its transfer, so that ranks that disagree find out. */
#include "runtime/base/arith.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/comm/transfer.h"
#include "runtime/comm/watch.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum {
    HALVES = 2,
    PAGE_BYTES = 4096,
    NOTE_BYTES = 256,           /* before a half's data */
    MOST_HALF_BYTES = 8 << 20,  /* a copy of them takes some 0.3 ms, many times what the host needs between two */
    PIECE_ALIGNMENT_BYTES = 16, /* of the pieces of a SPREAD */
    SCOPES = 2,                 /* GROUP and REPLICAS */
};

/* Counter kinds. */
enum { FILLED_COUNTER, DRAINED_COUNTER };

typedef enum stage { FREE, FILLING, FILLED, DRAINING } stage;

/* What a half holds a portion of. */
typedef struct note {
    int64_t kind, bytes, part_bytes;
} note;

typedef struct half {
    stage stage;
    int64_t offset;   /* in every rank's arena */
    shd_event *event; /* of the copies of its stage */
    shd_scope scope;  /* of the last portion it held */
    int64_t number;   /* of that portion, from 1, among those of the lane and scope; 0: none yet */
    note note;        /* of its transfer */
} half;

typedef struct lane {
    shd_stream *stream;
    int64_t data_bytes; /* of a half */
    half halves[HALVES];
    int32_t older;                     /* index of the one that was filled first */
    int64_t numbers[SCOPES];           /* of the portions filled so far */
    shd_transfer transfer;             /* the open one */
    int64_t piece_bytes;               /* of every part, in a portion of it */
    int64_t portions, filled, drained; /* of it: all, and how many of them have begun to */
} lane;

struct shd_link {
    shd_comm *comm;
    const shd_device_ops *ops;
    shd_device *device;
    int32_t first_unit;
    int64_t arena_bytes;
    int32_t pinned; /* arenas of ranks below this are pinned */
    lane lanes[SHD_LANES];
};

static unsigned char *arena_of(const shd_link *link, int32_t rank) { return shd_comm_exported(link->comm, rank); }

static int32_t scope_index(shd_scope scope) { return scope == SHD_SCOPE_REPLICAS; }

static int32_t unit_of(const shd_link *link, const lane *of, shd_scope scope) {
    return link->first_unit + (int32_t)(of - link->lanes) * SCOPES + scope_index(scope);
}

/* --- life --------------------------------------------------------------------------------------------------------- */

static sherd_status staged_usable(void) { return SHERD_OK; }

/* A half with its note, in whole pages. */
static int64_t half_bytes(int64_t largest_bytes) {
    return shd_round_up(shd_min(NOTE_BYTES + shd_max(largest_bytes, 0), MOST_HALF_BYTES), PAGE_BYTES);
}

static int64_t staged_exported_bytes(int64_t gather_bytes, int64_t spread_bytes) {
    return HALVES * (half_bytes(gather_bytes) + half_bytes(spread_bytes));
}

static sherd_status open_lane(shd_link *link, lane *out, shd_stream *stream, int64_t offset, int64_t bytes) {
    out->stream = stream;
    out->data_bytes = bytes - NOTE_BYTES;
    for (int h = 0; h < HALVES; h++) {
        out->halves[h].offset = offset + h * bytes;
        SHD_TRY(link->ops->create_event(link->device, &out->halves[h].event));
    }
    return SHERD_OK;
}

/* Pinning takes pages as the device would write them, which peers' arenas are not mapped for: they are for as long as it
 * lasts. */
static sherd_status pin_arena(shd_link *link, int32_t rank) {
    unsigned char *arena = arena_of(link, rank);
    void *address;
    bool is_own = rank == link->comm->rank;
    if (!is_own && mprotect(arena, (size_t)link->arena_bytes, PROT_READ | PROT_WRITE))
        return shd_fail(SHERD_MEMORY, "the arena of rank %d cannot be made writable: %s", rank, strerror(errno));
    sherd_status status = link->ops->pin(link->device, arena, link->arena_bytes, &address);
    if (!is_own) (void)mprotect(arena, (size_t)link->arena_bytes, PROT_READ);
    return status;
}

static sherd_status open_all(shd_link *link, const shd_link_config *config) {
    int64_t gather = half_bytes(config->gather_bytes), spread = half_bytes(config->spread_bytes);
    SHD_TRY(open_lane(link, &link->lanes[SHD_LANE_GATHER], config->streams[SHD_LANE_GATHER], 0, gather));
    SHD_TRY(open_lane(link, &link->lanes[SHD_LANE_REDUCE], config->streams[SHD_LANE_REDUCE], HALVES * gather, spread));
    for (; link->comm->world_size > 1 && link->pinned < link->comm->world_size; link->pinned++)
        SHD_TRY(pin_arena(link, link->pinned));
    return SHERD_OK;
}

static void staged_close(shd_link *link, bool abort) {
    (void)abort; /* no copy waits for a peer, so none hangs */
    if (!link) return;
    for (int l = 0; l < SHD_LANES; l++)
        for (int h = 0; h < HALVES; h++)
            if (link->lanes[l].halves[h].event) link->ops->destroy_event(link->lanes[l].halves[h].event);
    for (int32_t rank = 0; rank < link->pinned; rank++) link->ops->unpin(link->device, arena_of(link, rank));
    shd_free(link);
}

static sherd_status staged_open(const shd_link_config *config, shd_link **out) {
    const shd_comm *comm = config->comm;
    int64_t bytes = staged_exported_bytes(config->gather_bytes, config->spread_bytes);
    if (comm->world_size > 1 && comm->exported_bytes < bytes)
        return shd_fail(SHERD_ARGUMENT, "the staged link needs %lld exported bytes, of which there are %lld",
                        (long long)bytes, (long long)comm->exported_bytes);
    if (config->first_counter_unit < 0 || config->first_counter_unit + SHD_LANES * SCOPES > comm->unit_count)
        return shd_fail(SHERD_ARGUMENT, "the staged link needs %d units of counters from %d on; there are %d",
                        SHD_LANES * SCOPES, config->first_counter_unit, comm->unit_count);
    shd_link *link = shd_alloc(1, sizeof *link);
    if (!link) return shd_fail(SHERD_MEMORY, "no memory for a link");
    link->comm = config->comm;
    link->ops = config->ops;
    link->device = config->device;
    link->first_unit = config->first_counter_unit;
    link->arena_bytes = bytes;
    sherd_status status = open_all(link, config);
    if (status != SHERD_OK) {
        staged_close(link, true);
        return status;
    }
    *out = link;
    return SHERD_OK;
}

/* --- what moves --------------------------------------------------------------------------------------------------- */

/* Where portion `portion` is in a part of the open transfer, and how many bytes of it: none beyond the part's end. */
static shd_part piece_of(const lane *of, int64_t portion, int32_t part) {
    const shd_transfer *open = &of->transfer;
    shd_part whole = shd_part_of(open->bytes, open->part_bytes, part);
    shd_part piece = shd_part_of(whole.count, of->piece_bytes, (int32_t)portion);
    piece.first += whole.first;
    return piece;
}

static void copy(const shd_link *link, const lane *of, void *to, const void *from, int64_t bytes) {
    if (bytes > 0) link->ops->copy(of->stream, to, from, bytes);
}

/* A GATHER's half holds a piece of the own part; a SPREAD's one of every part, each with its own room. */
static void copy_to_half(const shd_link *link, const lane *of, const half *into) {
    const shd_transfer *open = &of->transfer;
    const unsigned char *from = open->from;
    unsigned char *data = arena_of(link, link->comm->rank) + into->offset + NOTE_BYTES;
    int32_t own = shd_transfer_own(open, &link->comm->mesh);
    if (open->kind == SHD_TRANSFER_GATHER) {
        shd_part piece = piece_of(of, of->filled, own);
        copy(link, of, data, from + piece.first - own * open->part_bytes, piece.count);
        return;
    }
    for (int32_t i = 0; i < shd_transfer_members(open, &link->comm->mesh); i++) {
        shd_part piece = piece_of(of, of->filled, i);
        if (i != own) copy(link, of, data + i * of->piece_bytes, from + piece.first, piece.count);
    }
}

/* The next member first, so that not all read the same one. */
static void copy_from_halves(const shd_link *link, const lane *of, const half *from) {
    const shd_transfer *open = &of->transfer;
    unsigned char *to = open->to;
    int32_t own = shd_transfer_own(open, &link->comm->mesh), count = shd_transfer_members(open, &link->comm->mesh);
    for (int32_t step = 1; step < count; step++) {
        int32_t i = (own + step) % count;
        const unsigned char *data =
            arena_of(link, shd_mesh_member(&link->comm->mesh, open->scope, i)) + from->offset + NOTE_BYTES;
        shd_part piece = piece_of(of, of->drained, open->kind == SHD_TRANSFER_GATHER ? i : own);
        if (open->kind == SHD_TRANSFER_GATHER)
            copy(link, of, to + piece.first, data, piece.count);
        else
            copy(link, of, to + piece.first + (i - own) * open->part_bytes, data + own * of->piece_bytes, piece.count);
    }
}

/* --- stages ------------------------------------------------------------------------------------------------------- */

/* Ends the stage of a half whose copies are done, and tells peers. */
static void finish_stage(shd_link *link, const lane *of, half *in) {
    bool is_filling = in->stage == FILLING, is_draining = in->stage == DRAINING;
    if (!(is_filling || is_draining) || !link->ops->reached(in->event)) return;
    if (is_filling) memcpy(arena_of(link, link->comm->rank) + in->offset, &in->note, sizeof in->note);
    in->stage = is_filling ? FILLED : FREE;
    shd_comm_signal(link->comm, is_filling ? FILLED_COUNTER : DRAINED_COUNTER, unit_of(link, of, in->scope));
}

/* Whether every member of its scope has come so far with what the half holds. */
static bool all_have(const shd_link *link, const lane *of, const half *in, int32_t counter) {
    return shd_comm_reached(link->comm, in->scope, counter, unit_of(link, of, in->scope), in->number);
}

static const char *kind_text(int64_t kind) { return kind == SHD_TRANSFER_GATHER ? "gathers" : "spreads"; }

static sherd_status compare_notes(const shd_link *link, const half *in) {
    for (int32_t i = 0; i < shd_mesh_count(&link->comm->mesh, in->scope); i++) {
        int32_t rank = shd_mesh_member(&link->comm->mesh, in->scope, i);
        note theirs;
        memcpy(&theirs, arena_of(link, rank) + in->offset, sizeof theirs);
        if (!memcmp(&theirs, &in->note, sizeof theirs)) continue;
        return shd_watch_fail(link->comm, SHERD_MISMATCH,
                              "rank %d %s %lld bytes in parts of %lld where rank %d %s %lld bytes in parts of %lld",
                              rank, kind_text(theirs.kind), (long long)theirs.bytes, (long long)theirs.part_bytes,
                              link->comm->rank, kind_text(in->note.kind), (long long)in->note.bytes,
                              (long long)in->note.part_bytes);
    }
    return SHERD_OK;
}

/* Whether portion of->filled could begin to be filled. */
static bool fill(shd_link *link, lane *of) {
    const shd_transfer *open = &of->transfer;
    int64_t number = of->numbers[scope_index(open->scope)] + 1;
    half *into = &of->halves[number % HALVES];
    if (of->filled == of->portions || into->stage != FREE) return false;
    if (into->number && !all_have(link, of, into, DRAINED_COUNTER)) return false;
    into->scope = open->scope;
    into->number = of->numbers[scope_index(open->scope)] = number;
    into->note = (note){.kind = open->kind, .bytes = open->bytes, .part_bytes = open->part_bytes};
    into->stage = FILLING;
    copy_to_half(link, of, into);
    link->ops->record(of->stream, into->event);
    of->older = (int32_t)((number + 1) % HALVES);
    of->filled++;
    return true;
}

/* *moved: portion of->drained could begin to be drained. */
static sherd_status drain(shd_link *link, lane *of, bool *moved) {
    *moved = false;
    if (of->drained == of->filled) return SHERD_OK;
    int64_t number = of->numbers[scope_index(of->transfer.scope)] - (of->filled - of->drained - 1);
    half *from = &of->halves[number % HALVES];
    if (from->stage != FILLED || !all_have(link, of, from, FILLED_COUNTER)) return SHERD_OK;
    SHD_TRY(compare_notes(link, from));
    copy_from_halves(link, of, from);
    from->stage = DRAINING;
    link->ops->record(of->stream, from->event);
    of->drained++;
    *moved = true;
    return SHERD_OK;
}

/* Takes a lane as far as it goes now. Of two halves in the same stage the older one ends it first: peers are told in the
 * order of portions. */
static sherd_status advance(shd_link *link, lane *of) {
    half *older = &of->halves[of->older], *newer = &of->halves[HALVES - 1 - of->older];
    finish_stage(link, of, older);
    if (newer->stage != older->stage) finish_stage(link, of, newer);
    for (bool moved = true; moved;) {
        SHD_TRY(drain(link, of, &moved));
        moved = fill(link, of) || moved;
    }
    return SHERD_OK;
}

/* --- transfers ---------------------------------------------------------------------------------------------------- */

static bool is_open(const lane *of) { return of->drained < of->portions; }

static sherd_status staged_begin(shd_link *link, shd_lane index, const shd_transfer *transfer) {
    lane *of = &link->lanes[index];
    SHD_TRY(shd_transfer_check(transfer, &link->comm->mesh));
    if (is_open(of)) return shd_fail(SHERD_STATE, "lane %d has a transfer that is not enqueued yet", (int)index);
    int32_t members = shd_transfer_members(transfer, &link->comm->mesh);
    of->transfer = *transfer;
    of->piece_bytes = of->data_bytes;
    if (transfer->kind == SHD_TRANSFER_SPREAD)
        of->piece_bytes = of->data_bytes / members / PIECE_ALIGNMENT_BYTES * PIECE_ALIGNMENT_BYTES;
    bool is_alone = members == 1 || transfer->bytes == 0;
    of->portions = is_alone ? 0 : shd_div_ceil(shd_min(transfer->part_bytes, transfer->bytes), of->piece_bytes);
    of->filled = of->drained = 0;
    shd_transfer_copy_own(transfer, &link->comm->mesh, link->ops, of->stream);
    return advance(link, of);
}

static sherd_status staged_progress(shd_link *link, shd_lane index, bool *enqueued) {
    for (int l = 0; l < SHD_LANES; l++) SHD_TRY(advance(link, &link->lanes[l]));
    *enqueued = !is_open(&link->lanes[index]);
    return SHERD_OK;
}

static sherd_status staged_check(shd_link *link) {
    (void)link; /* the device and the comm know of all that can fail */
    return SHERD_OK;
}

const shd_link_ops shd_link_staged = {
    .name = "staged",
    .usable = staged_usable,
    .exported_bytes = staged_exported_bytes,
    .counter_units = SHD_LANES * SCOPES,
    .open = staged_open,
    .close = staged_close,
    .begin = staged_begin,
    .progress = staged_progress,
    .check = staged_check,
};
