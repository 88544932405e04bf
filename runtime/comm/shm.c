/* The ranks of one host over shared memory. Every rank maps every EXPORTED arena, its peers' for reading only, the HOST
 * arena and the control block; a collective reads its peers' memory in place. Nothing of it has a name in the file
 * system. */
#include "runtime/comm/backend.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/comm/arena.h"
#include "runtime/comm/control.h"
#include "runtime/comm/rendezvous.h"
#include "runtime/comm/wide.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct shm {
    shd_pool *pool;
    int32_t rank, world_size;
    shd_mesh mesh;
    int64_t exported_bytes, host_bytes, control_bytes;
    unsigned char *exported[SHD_COMM_MAX_RANKS];
    void *host, *control_block;
    shd_control control;
    shd_recorder *recorder; /* NULL: config has one */
    int own_line;           /* the end of this rank's life line that only it holds */
    struct pollfd
        life_lines[SHD_COMM_MAX_RANKS]; /* reading ends; hung up when their rank is gone; the own one unused */
} shm;

/* --- life --------------------------------------------------------------------------------------------------------- */

/* This rank's part of memory that all share; the parts of all ranks add up to the whole. */
static int64_t own_part(const shm *comm, int64_t bytes) {
    return bytes * (comm->rank + 1) / comm->world_size - bytes * comm->rank / comm->world_size;
}

static void note_memory(const shm *comm, int64_t sign) {
    shd_memory_note(SHD_MEMORY_ARENA, sign * (comm->exported_bytes + own_part(comm, comm->host_bytes)));
    shd_memory_note(SHD_MEMORY_CONTROL, sign * own_part(comm, comm->control_bytes));
}

static void unmap(void *pointer, int64_t bytes) {
    if (pointer) munmap(pointer, (size_t)bytes);
}

static void release_arenas(shm *comm) {
    for (int32_t r = 0; r < comm->world_size; r++) {
        unmap(comm->exported[r], comm->exported_bytes);
        comm->exported[r] = NULL;
    }
    unmap(comm->host, comm->host_bytes);
    comm->host = NULL;
}

static void release(shm *comm) {
    release_arenas(comm);
    for (int32_t r = 0; r < comm->world_size; r++)
        if (comm->life_lines[r].fd >= 0) close(comm->life_lines[r].fd);
    shd_recorder_close(comm->recorder);
    unmap(comm->control_block, comm->control_bytes);
    if (comm->own_line >= 0) close(comm->own_line);
    shd_free(comm);
}

static void shm_close(void *state) {
    shm *comm = state;
    note_memory(comm, -1);
    shd_control_leave(&comm->control);
    release(comm);
}

/* Makes what this rank brings to the meeting. */
static sherd_status bring(shm *comm, const shd_comm_config *config, shd_meeting *meeting) {
    int line[2];
    if (pipe2(line, O_CLOEXEC | O_NONBLOCK)) return shd_fail(SHERD_COMM, "cannot make a pipe: %s", strerror(errno));
    meeting->life_line[comm->rank] = line[0];
    comm->own_line = line[1];
    if (comm->exported_bytes > 0)
        SHD_TRY(shd_arena_create("sherd-exported", comm->exported_bytes, &meeting->exported[comm->rank]));
    if (comm->rank > 0) return SHERD_OK;
    if (comm->host_bytes > 0) SHD_TRY(shd_arena_create("sherd-host", comm->host_bytes, &meeting->host));
    if (!config->recorder) SHD_TRY(shd_recorder_file(comm->world_size, &meeting->records));
    return shd_arena_create("sherd-control", comm->control_bytes, &meeting->control);
}

/* Maps what the meeting brought; takes the life lines. The control block comes first: with it this rank can tell its
 * peers if the rest fails. */
static sherd_status take(shm *comm, const shd_comm_config *config, shd_meeting *meeting) {
    for (int32_t r = 0; r < comm->world_size; r++) {
        if (r == comm->rank) continue;
        comm->life_lines[r] = (struct pollfd){.fd = meeting->life_line[r]};
        meeting->life_line[r] = -1;
    }
    if (!shd_arena_is(meeting->control, comm->control_bytes))
        return shd_fail(SHERD_COMM, "rank 0 passed on a control block of the wrong size");
    SHD_TRY(shd_arena_map(meeting->control, comm->control_bytes, true, &comm->control_block));
    shd_control_init(&comm->control, comm->control_block, comm->rank, comm->world_size, config->unit_count);
    if (comm->host_bytes > 0) SHD_TRY(shd_arena_map(meeting->host, comm->host_bytes, true, &comm->host));
    for (int32_t r = 0; comm->exported_bytes > 0 && r < comm->world_size; r++) {
        void *pointer;
        SHD_TRY(shd_arena_map(meeting->exported[r], comm->exported_bytes, r == comm->rank, &pointer));
        comm->exported[r] = pointer;
    }
    if (config->recorder) return SHERD_OK;
    if (meeting->records < 0) return shd_fail(SHERD_COMM, "rank 0 passed on no flight recorder");
    return shd_recorder_open(meeting->records, comm->rank, &comm->recorder);
}

/* This rank has failed before it met the others. What it holds goes back first, which can take long: peers that know
 * of the failure end, and whoever watches the ranks then ends this one too. */
static sherd_status decline_with(const shd_comm_config *config, shd_meeting *meeting, sherd_status status) {
    char cause[SHD_COMM_CAUSE_BYTES];
    snprintf(cause, sizeof cause, "%s", sherd_last_error());
    shd_meeting_fini(meeting);
    shd_rendezvous_decline(config, meeting, cause);
    return shd_fail(status, "%s", cause);
}

/* The same, of a rank that has met them. */
static void tell_peers(shm *comm) {
    if (!comm->control_block) return;
    shd_comm_failure failure = {.status = SHERD_PEER};
    snprintf(failure.text, sizeof failure.text, "rank %d failed at the start: %s", comm->rank, sherd_last_error());
    release_arenas(comm);
    shd_control_fail(&comm->control, &failure);
}

static sherd_status shm_open_comm(const shd_comm_config *config, void **state) {
    shm *comm = shd_alloc(1, sizeof *comm);
    shd_meeting *meeting = shd_alloc(1, sizeof *meeting);
    if (!comm || !meeting) {
        shd_free(comm);
        shd_free(meeting);
        return shd_fail(SHERD_MEMORY, "no memory for a communicator");
    }
    comm->pool = config->pool;
    comm->rank = config->rank;
    comm->world_size = config->world_size;
    comm->mesh = (shd_mesh){.rank = config->rank, .world_size = config->world_size, .replicas = config->replicas};
    comm->exported_bytes = config->exported_bytes;
    comm->host_bytes = config->host_bytes;
    comm->control_bytes = shd_control_bytes(config->world_size, config->unit_count);
    comm->own_line = -1;
    for (int32_t r = 0; r < SHD_COMM_MAX_RANKS; r++) comm->life_lines[r].fd = -1;
    shd_meeting_init(meeting);
    sherd_status status = bring(comm, config, meeting);
    status = status == SHERD_OK ? shd_rendezvous_meet(config, meeting) : decline_with(config, meeting, status);
    if (status == SHERD_OK) status = take(comm, config, meeting);
    shd_meeting_fini(meeting);
    shd_free(meeting);
    if (status != SHERD_OK) {
        tell_peers(comm);
        release(comm); /* without a goodbye: peers that met this rank see it die */
        return status;
    }
    note_memory(comm, 1);
    *state = comm;
    return SHERD_OK;
}

static void shm_decline(const shd_comm_config *config, const char *cause) {
    shd_meeting nothing;
    shd_meeting_init(&nothing);
    shd_rendezvous_decline(config, &nothing, cause);
}

static void *shm_exported(void *state, int32_t rank) { return ((shm *)state)->exported[rank]; }

static void *shm_host(void *state) { return ((shm *)state)->host; }

static shd_recorder *shm_recorder(void *state) { return ((shm *)state)->recorder; }

static void shm_peers(void *state, shd_peer *out) {
    shm *comm = state;
    int gone = poll(comm->life_lines, (nfds_t)comm->world_size, 0);
    for (int32_t r = 0; r < comm->world_size; r++) {
        bool is_gone = gone > 0 && r != comm->rank && (comm->life_lines[r].revents & (POLLHUP | POLLERR));
        /* A rank says goodbye before its line hangs up. */
        out[r] = shd_control_left(&comm->control, r) ? SHD_PEER_LEFT : is_gone ? SHD_PEER_DEAD : SHD_PEER_HERE;
    }
}

/* --- collectives -------------------------------------------------------------------------------------------------- */

/* Where the i-th rank of a scope has what this rank has at `own`: in its EXPORTED arena, at the same offset. What only
 * this rank reaches may lie anywhere. */
static const unsigned char *at_member(const shm *comm, shd_scope scope, int32_t i, const void *own) {
    int32_t rank = shd_mesh_member(&comm->mesh, scope, i);
    if (rank == comm->rank) return own;
    return comm->exported[rank] + ((const unsigned char *)own - comm->exported[comm->rank]);
}

static sherd_status shm_gather(void *state, void *full, const void *shard, int64_t shard_bytes) {
    shm *comm = state;
    int32_t split = shd_mesh_split(&comm->mesh), place = shd_mesh_place(&comm->mesh);
    bool in_place = shard == (unsigned char *)full + place * shard_bytes;
    const unsigned char *sources[SHD_COMM_MAX_RANKS];
    for (int32_t g = 0; g < split; g++)
        sources[g] =
            at_member(comm, SHD_SCOPE_GROUP, g, in_place ? (const unsigned char *)full + g * shard_bytes : shard);
    shd_wide_gather(comm->pool, full, sources, split, place, shard_bytes);
    return SHERD_OK;
}

static sherd_status shm_reduce(void *state, float *accumulator, const void *contribution, sherd_dtype dtype,
                               int64_t shard_count, bool first, uint64_t *nonfinite) {
    shm *comm = state;
    int32_t split = shd_mesh_split(&comm->mesh);
    const unsigned char *shard =
        (const unsigned char *)contribution + shd_mesh_place(&comm->mesh) * shard_count * shd_dtype_bytes(dtype);
    const void *sources[SHD_COMM_MAX_RANKS];
    for (int32_t g = 0; g < split; g++) sources[g] = at_member(comm, SHD_SCOPE_GROUP, g, shard);
    shd_wide_fold(comm->pool, accumulator, sources, dtype, split, shard_count, first, nonfinite);
    return SHERD_OK;
}

static sherd_status shm_reduce_replicas(void *state, float *values, int64_t count, int64_t part_count) {
    shm *comm = state;
    shd_part own = shd_part_of(count, part_count, shd_mesh_replica(&comm->mesh));
    const void *sources[SHD_COMM_MAX_RANKS];
    for (int32_t r = 0; r < comm->mesh.replicas; r++)
        sources[r] = at_member(comm, SHD_SCOPE_REPLICAS, r, values + own.first);
    shd_wide_sum(comm->pool, values + own.first, sources, comm->mesh.replicas, own.count);
    return SHERD_OK;
}

static sherd_status shm_gather_replicas(void *state, float *values, int64_t count, int64_t part_count) {
    shm *comm = state;
    /* The next replica first, so that not all read the same one. */
    for (int32_t i = 1; i < comm->mesh.replicas; i++) {
        int32_t r = (shd_mesh_replica(&comm->mesh) + i) % comm->mesh.replicas;
        shd_part part = shd_part_of(count, part_count, r);
        if (part.count)
            shd_wide_copy(comm->pool, (unsigned char *)(values + part.first),
                          at_member(comm, SHD_SCOPE_REPLICAS, r, values + part.first),
                          part.count * (int64_t)sizeof *values);
    }
    return SHERD_OK;
}

/* --- flags: the control block's ----------------------------------------------------------------------------------- */

static void shm_signal(void *state, int32_t kind, int32_t unit) {
    shd_control_signal(&((shm *)state)->control, kind, unit);
}
static int64_t shm_counter(const void *state, int32_t rank, int32_t kind, int32_t unit) {
    return shd_control_counter(&((const shm *)state)->control, rank, kind, unit);
}
static void shm_post(void *state, int64_t number, const void *mine, int64_t bytes) {
    shd_control_post(&((shm *)state)->control, number, mine, bytes);
}
static int64_t shm_posted(const void *state, int32_t rank) {
    return shd_control_posted(&((const shm *)state)->control, rank);
}
static const void *shm_mail(void *state, int32_t rank, int64_t number, int64_t *bytes) {
    return shd_control_mail(&((shm *)state)->control, rank, number, bytes);
}
static void shm_announce(void *state, const shd_announcement *announcement) {
    shd_control_announce(&((shm *)state)->control, announcement);
}
static int64_t shm_announced(const void *state, int32_t rank) {
    return shd_control_announced(&((const shm *)state)->control, rank);
}
static bool shm_announcement(const void *state, int32_t rank, int64_t number, shd_announcement *out) {
    return shd_control_announcement(&((const shm *)state)->control, rank, number, out);
}
static void shm_fail(void *state, const shd_comm_failure *failure) {
    shd_control_fail(&((shm *)state)->control, failure);
}
static bool shm_failed(const void *state, shd_comm_failure *out) {
    return shd_control_failed(&((const shm *)state)->control, out);
}
static void shm_arm(void *state) { shd_control_arm(&((shm *)state)->control); }
static void shm_doze(void *state, double milliseconds) { shd_control_doze(&((shm *)state)->control, milliseconds); }

const shd_backend shd_backend_shm = {
    .name = "shm",
    .open = shm_open_comm,
    .decline = shm_decline,
    .close = shm_close,
    .exported = shm_exported,
    .host = shm_host,
    .recorder = shm_recorder,
    .signal = shm_signal,
    .counter = shm_counter,
    .gather = shm_gather,
    .reduce = shm_reduce,
    .reduce_replicas = shm_reduce_replicas,
    .gather_replicas = shm_gather_replicas,
    .post = shm_post,
    .posted = shm_posted,
    .mail = shm_mail,
    .announce = shm_announce,
    .announced = shm_announced,
    .announcement = shm_announcement,
    .fail = shm_fail,
    .failed = shm_failed,
    .peers = shm_peers,
    .arm = shm_arm,
    .doze = shm_doze,
};
