/* Device memory moved by NCCL: a communicator for each lane and scope of more than one rank, all without blocking.
 *
 * A call of NCCL may be done by a thread of its own, after it has returned; kernels of two communicators that each wait
 * for the other's peers would never end. So transfers are issued one after another, in the order in which they were begun,
 * each when NCCL has enqueued the one before; NCCL keeps that order on the device (nccl_env.h). */
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/comm/nccl_env.h"
#include "runtime/comm/transfer.h"
#include "runtime/comm/watch.h"
#include "runtime/device/cuda_loader.h"

#include <nccl.h>
#include <string.h>

enum { SCOPES = 2 }; /* GROUP and REPLICAS */
static const shd_scope scopes[SCOPES] = {SHD_SCOPE_GROUP, SHD_SCOPE_REPLICAS};

static const double NAP_MS = 0.2;

typedef enum progress { IDLE, BEGUN, ISSUED } progress;

typedef struct lane {
    shd_stream *stream;
    ncclComm_t communicators[SCOPES]; /* NULL: the scope is this rank alone */
    progress progress;
    shd_transfer transfer; /* unless IDLE */
} lane;

struct shd_link {
    shd_comm *comm;
    const shd_device_ops *ops;
    const shd_nccl *nccl;
    ncclComm_t world; /* NULL with one rank; may be one of the lanes' too */
    lane lanes[SHD_LANES];
    shd_lane queue[SHD_LANES]; /* lanes that are not IDLE, in the order in which their transfers were begun */
    int32_t queued;
};

/* --- failures and waits ------------------------------------------------------------------------------------------- */

/* NCCL's texts may tell of another communicator's trouble, but they are what there is. */
static sherd_status refuse(const shd_link *link, ncclComm_t communicator, ncclResult_t result, const char *what) {
    if (result == ncclSuccess || result == ncclInProgress) return SHERD_OK;
    const char *last = link->nccl->ncclGetLastError(communicator);
    return shd_fail(SHERD_COMM, "%s: NCCL says '%s'%s%s%s; with NCCL_DEBUG=WARN in the environment it says more", what,
                    link->nccl->ncclGetErrorString(result), last && *last ? " ('" : "", last ? last : "",
                    last && *last ? "')" : "");
}

/* *done: the communicator has carried out all that it was given on the host. */
static sherd_status look(const shd_link *link, ncclComm_t communicator, const char *what, bool *done) {
    ncclResult_t state = ncclSuccess;
    SHD_TRY(refuse(link, communicator, link->nccl->ncclCommGetAsyncError(communicator, &state), what));
    SHD_TRY(refuse(link, communicator, state, what));
    *done = state == ncclSuccess;
    return SHERD_OK;
}

/* Until it has, or a peer fails or stays away too long. */
static sherd_status await_communicator(const shd_link *link, ncclComm_t communicator, const char *what) {
    shd_patience patience = {.nap_ms = NAP_MS};
    for (bool done = false;;) {
        SHD_TRY(look(link, communicator, what, &done));
        if (done) return SHERD_OK;
        SHD_TRY(shd_comm_pause(link->comm, &patience, what));
    }
}

/* --- life --------------------------------------------------------------------------------------------------------- */

static sherd_status nccl_usable(void) {
    const shd_nccl *nccl;
    return shd_nccl_load(&nccl);
}

static int64_t nccl_exported_bytes(int64_t gather_bytes, int64_t spread_bytes) {
    (void)gather_bytes;
    (void)spread_bytes;
    return 0;
}

static sherd_status open_world(shd_link *link, ncclConfig_t *config) {
    static const char what[] = "opening NCCL's communicator of all ranks";
    const shd_mesh *mesh = &link->comm->mesh;
    ncclUniqueId ids[SHD_COMM_MAX_RANKS], own = {0};
    if (mesh->rank == 0) SHD_TRY(refuse(link, NULL, link->nccl->ncclGetUniqueId(&own), "meeting over NCCL"));
    SHD_TRY(shd_comm_exchange(link->comm, &own, sizeof own, ids));
    ncclResult_t result =
        link->nccl->ncclCommInitRankConfig(&link->world, mesh->world_size, ids[0], mesh->rank, config);
    SHD_TRY(refuse(link, link->world, result, what));
    return await_communicator(link, link->world, what);
}

/* The ranks that have this rank's `color`, in order of ranks. *out belongs to NCCL until the world is done with it. */
static sherd_status split_world(shd_link *link, int32_t color, ncclConfig_t *config, ncclComm_t *out) {
    static const char what[] = "opening one of NCCL's communicators";
    ncclResult_t result = link->nccl->ncclCommSplit(link->world, color, link->comm->mesh.rank, out, config);
    SHD_TRY(refuse(link, link->world, result, what));
    SHD_TRY(await_communicator(link, link->world, what));
    if (!*out) return shd_fail(SHERD_COMM, "%s: NCCL gave none", what);
    return await_communicator(link, *out, what);
}

static sherd_status open_communicators(shd_link *link) {
    const shd_mesh *mesh = &link->comm->mesh;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (mesh->world_size == 1) return SHERD_OK;
    SHD_TRY(open_world(link, &config));
    for (int l = 0; l < SHD_LANES; l++)
        for (int s = 0; s < SCOPES; s++) {
            ncclComm_t *out = &link->lanes[l].communicators[s];
            int32_t members = shd_mesh_count(mesh, scopes[s]);
            int32_t color = scopes[s] == SHD_SCOPE_GROUP ? shd_mesh_replica(mesh) : shd_mesh_place(mesh);
            if (l == SHD_LANE_GATHER && members == mesh->world_size)
                *out = link->world;
            else if (members > 1)
                SHD_TRY(split_world(link, color, &config, out));
        }
    return SHERD_OK;
}

/* Every communicator once, the world last. Returns how many. */
static int32_t list_communicators(const shd_link *link, ncclComm_t list[SHD_LANES * SCOPES + 1]) {
    int32_t count = 0;
    for (int l = 0; l < SHD_LANES; l++)
        for (int s = 0; s < SCOPES; s++) {
            ncclComm_t communicator = link->lanes[l].communicators[s];
            if (communicator && communicator != link->world) list[count++] = communicator;
        }
    if (link->world) list[count++] = link->world;
    return count;
}

static void nccl_close(shd_link *link, bool abort) {
    if (!link) return;
    ncclComm_t list[SHD_LANES * SCOPES + 1];
    int32_t count = list_communicators(link, list);
    for (int32_t i = 0; i < count && !abort; i++) {
        ncclResult_t result = link->nccl->ncclCommFinalize(list[i]);
        abort = refuse(link, list[i], result, "closing NCCL") != SHERD_OK;
    }
    for (int32_t i = 0; i < count && !abort; i++) abort = await_communicator(link, list[i], "closing NCCL") != SHERD_OK;
    for (int32_t i = 0; i < count; i++)
        (void)(abort ? link->nccl->ncclCommAbort(list[i]) : link->nccl->ncclCommDestroy(list[i]));
    shd_free(link);
}

static sherd_status nccl_open(const shd_link_config *config, shd_link **out) {
    SHD_TRY(shd_nccl_ready_environment(config->comm->rank == 0));
    shd_link *link = shd_alloc(1, sizeof *link);
    if (!link) return shd_fail(SHERD_MEMORY, "no memory for a link");
    link->comm = config->comm;
    link->ops = config->ops;
    for (int l = 0; l < SHD_LANES; l++) link->lanes[l].stream = config->streams[l];
    sherd_status status = shd_nccl_load(&link->nccl);
    if (status == SHERD_OK) status = open_communicators(link);
    if (status != SHERD_OK) {
        nccl_close(link, true);
        return status;
    }
    *out = link;
    return SHERD_OK;
}

/* --- transfers ---------------------------------------------------------------------------------------------------- */

static bool are_parts_equal(const shd_transfer *transfer, int32_t members) {
    return transfer->kind == SHD_TRANSFER_GATHER && transfer->bytes == transfer->part_bytes * members;
}

/* What this rank gives each peer, and what each peer gives it; the own part aside. */
static ncclResult_t issue_pairs(const shd_link *link, const lane *of, ncclComm_t communicator) {
    const shd_nccl *nccl = link->nccl;
    const shd_transfer *transfer = &of->transfer;
    int32_t own = shd_transfer_own(transfer, &link->comm->mesh);
    int32_t members = shd_transfer_members(transfer, &link->comm->mesh);
    bool is_gather = transfer->kind == SHD_TRANSFER_GATHER;
    cudaStream_t stream = link->ops->native_stream(of->stream);
    ncclResult_t result = nccl->ncclGroupStart(), end;
    if (result != ncclSuccess) return result;
    for (int32_t i = 0; i < members && result == ncclSuccess; i++) {
        shd_part ours = shd_part_of(transfer->bytes, transfer->part_bytes, own);
        shd_part theirs = shd_part_of(transfer->bytes, transfer->part_bytes, i);
        shd_part give = is_gather ? (shd_part){.count = ours.count} : theirs;
        shd_part take = is_gather ? theirs : (shd_part){.first = i * transfer->part_bytes, .count = ours.count};
        if (i == own) continue;
        if (give.count > 0)
            result = nccl->ncclSend((const char *)transfer->from + give.first, (size_t)give.count, ncclInt8, i,
                                    communicator, stream);
        if (take.count > 0 && result == ncclSuccess)
            result = nccl->ncclRecv((char *)transfer->to + take.first, (size_t)take.count, ncclInt8, i, communicator,
                                    stream);
    }
    end = nccl->ncclGroupEnd();
    return result == ncclSuccess ? end : result;
}

static ncclComm_t communicator_of(const lane *of) {
    return of->communicators[of->transfer.scope == SHD_SCOPE_REPLICAS];
}

static sherd_status issue(const shd_link *link, const lane *of) {
    const shd_transfer *transfer = &of->transfer;
    ncclComm_t communicator = communicator_of(of);
    ncclResult_t result = ncclSuccess;
    if (communicator && transfer->bytes > 0 &&
        are_parts_equal(transfer, shd_transfer_members(transfer, &link->comm->mesh))) {
        result = link->nccl->ncclAllGather(transfer->from, transfer->to, (size_t)transfer->part_bytes, ncclInt8,
                                           communicator, link->ops->native_stream(of->stream));
    } else {
        shd_transfer_copy_own(transfer, &link->comm->mesh, link->ops, of->stream);
        if (communicator && transfer->bytes > 0) result = issue_pairs(link, of, communicator);
    }
    return refuse(link, communicator, result, "a transfer");
}

/* Issues what is next, as far as NCCL has enqueued what came before. */
static sherd_status advance(shd_link *link) {
    while (link->queued > 0) {
        lane *first = &link->lanes[link->queue[0]];
        bool done = true;
        if (first->progress == BEGUN) {
            SHD_TRY(issue(link, first));
            first->progress = ISSUED;
        }
        if (communicator_of(first)) SHD_TRY(look(link, communicator_of(first), "a transfer", &done));
        if (!done) return SHERD_OK;
        first->progress = IDLE;
        link->queued--;
        memmove(link->queue, link->queue + 1, (size_t)link->queued * sizeof *link->queue);
    }
    return SHERD_OK;
}

static sherd_status nccl_begin(shd_link *link, shd_lane index, const shd_transfer *transfer) {
    lane *of = &link->lanes[index];
    SHD_TRY(shd_transfer_check(transfer, &link->comm->mesh));
    if (of->progress != IDLE)
        return shd_fail(SHERD_STATE, "lane %d has a transfer that is not enqueued yet", (int)index);
    of->transfer = *transfer;
    of->progress = BEGUN;
    link->queue[link->queued++] = index;
    return advance(link);
}

static sherd_status nccl_progress(shd_link *link, shd_lane index, bool *enqueued) {
    SHD_TRY(advance(link));
    *enqueued = link->lanes[index].progress == IDLE;
    return SHERD_OK;
}

static sherd_status nccl_check(shd_link *link) {
    ncclComm_t list[SHD_LANES * SCOPES + 1];
    int32_t count = list_communicators(link, list);
    bool done;
    for (int32_t i = 0; i < count; i++) SHD_TRY(look(link, list[i], "transfers between ranks", &done));
    return SHERD_OK;
}

const shd_link_ops shd_link_nccl = {
    .name = "nccl",
    .usable = nccl_usable,
    .exported_bytes = nccl_exported_bytes,
    .counter_units = 0,
    .open = nccl_open,
    .close = nccl_close,
    .begin = nccl_begin,
    .progress = nccl_progress,
    .check = nccl_check,
};
