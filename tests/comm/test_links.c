/* Links between ranks: what arrives where, when many transfers are under way on both lanes, and how they end when a rank
 * dies, hangs or begins something else. Ranks are processes or threads, each with a device of its own that runs late. */
#include "runtime/comm/link.h"
#include "tests/comm/link_rig.h"
#include "tests/comm/ranks.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_TRANSFERS = 24, GUARD_BYTES = 64 };

typedef struct job {
    char name[64];
    const shd_link_ops *link;
    int32_t replicas;
    uint64_t seed;
    int32_t transfers;
    int64_t largest_part; /* of any transfer, in bytes */
    int64_t link_bytes;   /* what the link is told that the largest transfers are */
    double timeout_s;
} job;

/* --- what ranks do ------------------------------------------------------------------------------------------------ */

/* A transfer of the job, the same on all ranks, and where this rank has its memory. */
typedef struct drawn {
    shd_lane lane;
    shd_transfer transfer;
    bool in_place;
    int64_t to_bytes;
} drawn;

static uint64_t draw(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static int32_t members_of(const shd_mesh *mesh, const shd_transfer *transfer) {
    return shd_mesh_count(mesh, transfer->scope);
}

static int32_t own_index(const shd_mesh *mesh, const shd_transfer *transfer) {
    return transfer->scope == SHD_SCOPE_GROUP ? shd_mesh_place(mesh) : shd_mesh_replica(mesh);
}

static drawn draw_transfer(const job *work, const shd_mesh *mesh, uint64_t *state) {
    static const int64_t parts[] = {0, 4, 1000, 4096, 65536 + 12};
    drawn out = {.lane = (shd_lane)(draw(state) % SHD_LANES)};
    shd_transfer *transfer = &out.transfer;
    transfer->kind = draw(state) % 2 ? SHD_TRANSFER_GATHER : SHD_TRANSFER_SPREAD;
    transfer->scope = draw(state) % 3 ? SHD_SCOPE_GROUP : SHD_SCOPE_REPLICAS;
    uint64_t pick = draw(state) % 6;
    transfer->part_bytes = pick < 5 && parts[pick] < work->largest_part ? parts[pick] : work->largest_part;
    transfer->bytes = transfer->part_bytes * members_of(mesh, transfer);
    if (draw(state) % 2) /* the last parts are short, or empty */
        transfer->bytes = (int64_t)(draw(state) % (uint64_t)(transfer->bytes / 4 + 1)) * 4;
    out.in_place = draw(state) % 2;
    bool is_gather = transfer->kind == SHD_TRANSFER_GATHER;
    out.to_bytes = is_gather ? transfer->bytes : transfer->part_bytes * members_of(mesh, transfer);
    return out;
}

/* Byte `at` of what `rank` gives in transfer `number`: of its part in a GATHER, of all in a SPREAD. */
static unsigned char byte_of(int32_t rank, int32_t number, int64_t at) {
    uint64_t x = (uint64_t)at * 0x9e3779b97f4a7c15u + (uint64_t)rank * 77 + (uint64_t)number * 1009;
    return (unsigned char)((x ^ x >> 29) >> 7);
}

enum { UNTOUCHED = 0xA5 };

/* What must be in `to` afterwards, at `at`. */
static unsigned char expected_at(const shd_mesh *mesh, const drawn *of, int32_t number, int64_t at) {
    const shd_transfer *transfer = &of->transfer;
    if (at >= of->to_bytes) return UNTOUCHED;
    int64_t i = at / transfer->part_bytes, within = at % transfer->part_bytes;
    int32_t rank = shd_mesh_member(mesh, transfer->scope, (int32_t)i);
    if (transfer->kind == SHD_TRANSFER_GATHER) return byte_of(rank, number, within);
    shd_part own = shd_part_of(transfer->bytes, transfer->part_bytes, own_index(mesh, transfer));
    return within < own.count ? byte_of(rank, number, own.first + within) : UNTOUCHED;
}

/* Uploads what the rank gives in transfer `number`, and rubbish where it will receive. */
static int prepare(link_rig *rig, drawn *of, int32_t number) {
    shd_transfer *transfer = &of->transfer;
    int32_t own = own_index(&rig->mesh, transfer);
    shd_part part = shd_part_of(transfer->bytes, transfer->part_bytes, own);
    bool is_gather = transfer->kind == SHD_TRANSFER_GATHER;
    int64_t give_bytes = is_gather ? part.count : transfer->bytes;
    unsigned char *to = link_rig_device(rig, of->to_bytes + GUARD_BYTES), *from = NULL;
    unsigned char *rubbish = link_rig_pinned(rig, of->to_bytes + GUARD_BYTES);
    unsigned char *given = link_rig_pinned(rig, give_bytes + 1);
    if (!to || !rubbish || !given) return 1;
    if (is_gather && of->in_place)
        from = to + part.first;
    else if (!(from = link_rig_device(rig, give_bytes + 1)))
        return 1;
    memset(rubbish, UNTOUCHED, (size_t)(of->to_bytes + GUARD_BYTES));
    for (int64_t at = 0; at < give_bytes; at++) given[at] = byte_of(rig->mesh.rank, number, at);
    link_rig_copy(rig, to, rubbish, of->to_bytes + GUARD_BYTES);
    link_rig_copy(rig, from, given, give_bytes);
    transfer->to = to;
    transfer->from = from;
    return 0;
}

/* Begins all transfers in order, each as soon as its lane has enqueued the one before, and waits for both lanes. */
static sherd_status run_all(link_rig *rig, drawn *all, int32_t count) {
    SHD_TRY(link_rig_join(rig));
    for (int32_t i = 0; i < count; i++) {
        SHD_TRY(link_rig_enqueued(rig, all[i].lane));
        SHD_TRY(rig->link->begin(rig->open, all[i].lane, &all[i].transfer));
    }
    for (int lane = 0; lane < SHD_LANES; lane++) SHD_TRY(link_rig_enqueued(rig, (shd_lane)lane));
    return link_rig_finish(rig);
}

static int compare(link_rig *rig, const drawn *of, int32_t number) {
    int64_t bytes = of->to_bytes + GUARD_BYTES;
    unsigned char *got = link_rig_pinned(rig, bytes);
    if (!got) return 1;
    link_rig_copy(rig, got, of->transfer.to, bytes);
    if (link_rig_finish(rig)) return 2;
    for (int64_t at = 0; at < bytes; at++)
        if (got[at] != expected_at(&rig->mesh, of, number, at)) return 3;
    return 0;
}

static sherd_status open_rig(link_rig *rig, int32_t rank, int32_t world, const job *work) {
    return link_rig_open(rig, &(link_rig_config){.rank = rank,
                                                 .world_size = world,
                                                 .replicas = work->replicas,
                                                 .name = work->name,
                                                 .link = work->link,
                                                 .link_bytes = work->link_bytes,
                                                 .timeout_s = work->timeout_s > 0 ? work->timeout_s : 20});
}

static int transfer_body(int32_t rank, int32_t world, void *argument) {
    const job *work = argument;
    link_rig rig;
    drawn all[MOST_TRANSFERS];
    uint64_t state = work->seed;
    char everyone[RANKS_MAX];
    if (open_rig(&rig, rank, world, work)) return 1;
    for (int32_t i = 0; i < work->transfers; i++) {
        all[i] = draw_transfer(work, &rig.mesh, &state);
        if (prepare(&rig, &all[i], i)) return 2;
    }
    if (run_all(&rig, all, work->transfers)) return 3;
    for (int32_t i = 0; i < work->transfers; i++) {
        int wrong = compare(&rig, &all[i], i);
        if (wrong) return 10 + wrong;
    }
    if (shd_comm_exchange(rig.comm, "", 1, everyone)) return 4;
    link_rig_close(&rig, false);
    return link_rig_reports() ? 5 : 0;
}

/* --- what arrives ------------------------------------------------------------------------------------------------- */

static const shd_link_ops *link_of(int index) { return index == 0 ? &shd_link_staged : shd_link_library(); }

/* For every link that this program has, as threads and as processes. */
static void run_everywhere(int32_t world, rank_fn body, job *work) {
    for (int i = 0; i < 2; i++) {
        work->link = link_of(i);
        if (!work->link || !link_rig_can(work->link, world)) continue;
        /* A process that has used a GPU cannot fork others that do. */
        for (int style = shd_device_backend() && !link_rig_is_soft() ? AS_PROCESSES : AS_THREADS; style <= AS_PROCESSES;
             style++) {
            ranks_new_name(work->name, sizeof work->name);
            link_rig_restart(work->seed, work->seed % 2);
            ranks_result result = ranks_run((rank_style)style, world, body, work, 60);
            cr_assert(ranks_all_ok(&result, world), "%s, %d ranks, %d replicas, style %d, seed %llu", work->link->name,
                      world, work->replicas, style, (unsigned long long)work->seed);
        }
    }
}

Test(links, bring_all_parts_to_their_places_whatever_else_is_under_way, .timeout = 120) {
    static const int32_t meshes[][2] = {{1, 1}, {2, 1}, {3, 1}, {2, 2}, {4, 2}, {6, 3}}; /* ranks, replicas */
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
        for (uint64_t seed = 1; seed <= 2; seed++)
            run_everywhere(meshes[m][0], transfer_body,
                           &(job){.replicas = meshes[m][1],
                                  .seed = seed + 100 * m,
                                  .transfers = MOST_TRANSFERS,
                                  .largest_part = 300000,
                                  .link_bytes = 70000});
}

Test(links, move_more_than_they_were_told_of, .timeout = 120) {
    run_everywhere(2, transfer_body,
                   &(job){.replicas = 1, .seed = 7, .transfers = 6, .largest_part = 20 << 20, .link_bytes = 20 << 20});
    run_everywhere(3, transfer_body,
                   &(job){.replicas = 1, .seed = 8, .transfers = 12, .largest_part = 1 << 20, .link_bytes = 4});
}

/* --- what goes wrong ---------------------------------------------------------------------------------------------- */

typedef enum fault { DIES, HANGS, BEGINS_ANOTHER, SWAPS_LANES } fault;

typedef struct bad_job {
    job job;
    fault fault;
    sherd_status expected;
} bad_job;

/* Rank 1 does not do as the others, after some transfers that went well. */
static int fault_body(int32_t rank, int32_t world, void *argument) {
    const bad_job *bad = argument;
    link_rig rig;
    drawn good = {
        .transfer = {.kind = SHD_TRANSFER_GATHER, .scope = SHD_SCOPE_GROUP, .bytes = 4000 * world, .part_bytes = 4000},
        .to_bytes = 4000 * world};
    if (open_rig(&rig, rank, world, &bad->job)) return 1;
    drawn pair[] = {good, good}; /* a transfer on each lane, the last that is begun */
    pair[1].lane = SHD_LANE_REDUCE;
    if (prepare(&rig, &good, 0) || prepare(&rig, &pair[0], 1) || prepare(&rig, &pair[1], 2)) return 2;
    for (int i = 0; i < 3; i++)
        if (run_all(&rig, &good, 1)) return 3;
    if (rank == 1 && bad->fault == DIES) _exit(9);
    if (rank == 1 && bad->fault == HANGS) {
        usleep(1500000);
        _exit(9);
    }
    if (rank == 1 && bad->fault == BEGINS_ANOTHER) pair[0].transfer.bytes -= 4;
    if (rank == 1 && bad->fault == SWAPS_LANES) {
        drawn first = pair[0];
        pair[0] = pair[1];
        pair[1] = first;
    }
    sherd_status status = run_all(&rig, pair, 2);
    if (status == SHERD_OK) return 4;
    char cause[RANKS_TEXT];
    snprintf(cause, sizeof cause, "%s", sherd_last_error());
    shd_comm_fail(rig.comm, status, cause);
    link_rig_close(&rig, true);
    shd_fail(status, "%s", cause);
    return 50 + (int)status % 50;
}

static void play_fault(const shd_link_ops *link, fault what, sherd_status expected, const char *word) {
    bad_job bad = {.job = {.link = link, .replicas = 1, .link_bytes = 4000, .timeout_s = what == HANGS ? 0.5 : 20},
                   .fault = what};
    if (!link || !link_rig_can(link, 3)) return;
    ranks_new_name(bad.job.name, sizeof bad.job.name);
    ranks_result result = ranks_run(AS_PROCESSES, 3, fault_body, &bad, 20);
    cr_assert_eq(result.code[0], 50 + (int)expected % 50, "%s: code %d: %s", link->name, result.code[0],
                 result.text[0]);
    cr_assert(strstr(result.text[0], word), "%s: '%s'", link->name, result.text[0]);
    cr_assert_lt(result.ended_ms[0], 10000);
}

Test(links, end_when_a_rank_dies, .timeout = 60) {
    for (int i = 0; i < 2; i++) play_fault(link_of(i), DIES, SHERD_PEER, "rank 1 died");
}

Test(links, end_when_a_rank_does_not_come, .timeout = 60) {
    for (int i = 0; i < 2; i++) play_fault(link_of(i), HANGS, SHERD_TIMEOUT, "rank 1");
}

Test(links, tell_when_a_rank_begins_another_transfer, .timeout = 60) {
    play_fault(&shd_link_staged, BEGINS_ANOTHER, SHERD_MISMATCH, "12000 bytes in parts of 4000");
}

/* What a call of the library does to the rank that makes it. */
typedef struct library_job {
    job job;
    const char *function;
    uint64_t nth;
} library_job;

static int library_body(int32_t rank, int32_t world, void *argument) {
    const library_job *work = argument;
    link_rig rig;
    drawn all[MOST_TRANSFERS];
    uint64_t state = work->job.seed;
    char everyone[RANKS_MAX];
    if (rank == 0) link_rig_fail_at(work->function, work->nth, 2);
    sherd_status status = open_rig(&rig, rank, world, &work->job);
    if (status != SHERD_OK) return 50 + (int)status % 50;
    for (int32_t i = 0; i < work->job.transfers; i++) {
        all[i] = draw_transfer(&work->job, &rig.mesh, &state);
        if (prepare(&rig, &all[i], i)) return 2;
    }
    status = run_all(&rig, all, work->job.transfers);
    if (status == SHERD_OK) status = shd_comm_exchange(rig.comm, "", 1, everyone);
    if (status != SHERD_OK) shd_comm_fail(rig.comm, status, sherd_last_error());
    char cause[RANKS_TEXT];
    snprintf(cause, sizeof cause, "%s", sherd_last_error());
    link_rig_close(&rig, status != SHERD_OK);
    if (status == SHERD_OK) return 0;
    shd_fail(status, "%s", cause);
    return 50 + (int)status % 50;
}

/* Fails the function's first call, its second, and so on, until one is not made any more. Returns how many there were. */
static int fail_each_call(const char *function) {
    enum { MOST_CALLS = 200, COMM_CODE = 50 + SHERD_COMM % 50 };
    for (int nth = 1; nth < MOST_CALLS; nth++) {
        library_job work = {
            .job = {.link = shd_link_library(), .replicas = 1, .seed = 3, .transfers = 4, .largest_part = 5000},
            .function = function,
            .nth = (uint64_t)nth};
        ranks_new_name(work.job.name, sizeof work.job.name);
        ranks_result result = ranks_run(AS_PROCESSES, 2, library_body, &work, 20);
        if (result.code[0] == 0 && result.code[1] == 0) return nth - 1;
        cr_assert_eq(result.code[0], COMM_CODE, "%s %d: code %d: %s", function, nth, result.code[0], result.text[0]);
        cr_assert(strstr(result.text[0], "NCCL says 'unhandled system error'"), "%s", result.text[0]);
        cr_assert(result.code[1] >= COMM_CODE, "%s %d: code %d: %s", function, nth, result.code[1], result.text[1]);
    }
    return MOST_CALLS;
}

Test(links, tell_what_the_library_says_and_end_on_all_ranks, .timeout = 60) {
    static const char *const functions[] = {"ncclGetUniqueId", "ncclCommInitRankConfig", "ncclCommSplit",
                                            "ncclAllGather",   "ncclGroupStart",         "ncclSend",
                                            "ncclRecv",        "ncclGroupEnd",           "ncclAsyncError"};
    if (!shd_link_library() || !link_rig_is_soft()) return;
    for (size_t f = 0; f < sizeof functions / sizeof *functions; f++)
        cr_assert_gt(fail_each_call(functions[f]), 0, "%s is not called", functions[f]);
}

/* A GPU would hang or compute nonsense; comms compare what ranks announce before it comes to that. */
static void play_disagreement(fault what) {
    bad_job bad = {.job = {.link = shd_link_library(), .replicas = 1}, .fault = what};
    if (!bad.job.link || !link_rig_is_soft()) return;
    ranks_new_name(bad.job.name, sizeof bad.job.name);
    ranks_result result = ranks_run(AS_PROCESSES, 3, fault_body, &bad, 20);
    bool was_told = false;
    for (int32_t rank = 0; rank < 3; rank++) {
        cr_assert_geq(result.code[rank], 50, "rank %d: code %d: %s", rank, result.code[rank], result.text[rank]);
        was_told |= strstr(result.text[rank], "NCCL says 'internal error'") != NULL;
    }
    cr_assert(was_told);
}

Test(links, the_software_device_tells_when_ranks_give_nccl_different_calls, .timeout = 60) {
    play_disagreement(BEGINS_ANOTHER);
}

Test(links, the_software_device_tells_when_ranks_call_nccl_in_different_orders, .timeout = 60) {
    play_disagreement(SWAPS_LANES);
}

Test(links, refuse_what_they_cannot_move, .timeout = 60) {
    for (int i = 0; i < 2; i++) {
        link_rig rig;
        job work = {.link = link_of(i), .replicas = 1};
        static const int64_t sizes[][2] = {{6, 8}, {8, 6}, {-4, 4}, {12, 8}}; /* bytes, part_bytes */
        if (!work.link || !link_rig_can(work.link, 1)) continue;
        cr_assert_eq(open_rig(&rig, 0, 1, &work), SHERD_OK);
        for (int s = 0; s < 4; s++)
            cr_assert_eq(work.link->begin(rig.open, SHD_LANE_GATHER,
                                          &(shd_transfer){.kind = SHD_TRANSFER_GATHER,
                                                          .scope = SHD_SCOPE_GROUP,
                                                          .bytes = sizes[s][0],
                                                          .part_bytes = sizes[s][1]}),
                         SHERD_ARGUMENT);
        link_rig_close(&rig, false);
    }
}
