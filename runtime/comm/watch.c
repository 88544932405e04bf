/* Watching the peers: failures, deaths, departures, diverging collectives, time-outs; and the turns of waiting.
 *
 * A rank looks after its peers only when it waits, at most every WATCH_MS, and compares collectives at every exchange
 * as well. Whoever finds something first records it; the first record is what every rank reports. */
#include "runtime/comm/watch.h"

#include "runtime/base/arith.h"
#include "runtime/base/clock.h"
#include "runtime/base/spin.h"
#include "runtime/base/status.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/standing.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

/* Measured: with four ranks on two cores, 200 pauses and 60 yields before sleeping make a barrier 6.5 µs, sleeping at
 * once 25 to 53, never sleeping 3900 and more. The pauses, about 5 µs, only help when the rank waited for has a core to
 * run on. */
enum { SPIN_TURNS = 200, YIELD_TURNS = 60, SLICE_MS = 50, WATCH_MS = 20 };

/* Turns come at least every SLICE_MS: a longer gap than this means that the process was stopped (Ctrl-Z, SIGSTOP), and most
 * likely its peers with it. */
enum { GAP_MS = 1000 };

void shd_watch_note(const shd_comm *comm, const shd_wait_note *note) {
    shd_wait_notes *notes = comm->notes;
    notes->notes[notes->count % SHD_WAIT_NOTES] = *note;
    notes->count = notes->count == 2 * SHD_WAIT_NOTES - 1 ? SHD_WAIT_NOTES : notes->count + 1;
}

sherd_status shd_watch_failure(const shd_comm *comm) {
    if (!comm->backend->failed(comm->state, NULL)) return SHERD_OK;
    shd_comm_failure failure;
    comm->backend->failed(comm->state, &failure);
    return shd_fail(failure.status, "%s", failure.text);
}

sherd_status shd_watch_fail(shd_comm *comm, sherd_status status, const char *format, ...) {
    shd_comm_failure failure = {.status = status};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure.text, sizeof failure.text, format, arguments);
    va_end(arguments);
    shd_recorder_alarm(comm->recorder, failure.text);
    return shd_watch_pass_on(comm, &failure);
}

sherd_status shd_watch_pass_on(shd_comm *comm, const shd_comm_failure *failure) {
    comm->backend->fail(comm->state, failure);
    return shd_watch_failure(comm);
}

/* --- what the ranks issue ----------------------------------------------------------------------------------------- */

/* "GATHER h.2 (4096 bytes)"; units below 0 are left out. */
static void print_announcement(const shd_comm *comm, const shd_announcement *announcement, char *text,
                               size_t text_bytes) {
    const char *name = shd_collective_text((shd_collective)announcement->collective);
    char unit[48];
    if (announcement->unit < 0)
        snprintf(text, text_bytes, "%s (%lld bytes)", name, (long long)announcement->bytes);
    else
        snprintf(text, text_bytes, "%s %s (%lld bytes)", name,
                 shd_recorder_unit_name(comm->recorder, comm->rank, announcement->unit, unit, sizeof unit),
                 (long long)announcement->bytes);
}

enum { TEXT_BYTES = 96 };

/* Names the first announcement below `end` in which this rank and `peer` differ. */
static sherd_status fail_mismatch(shd_comm *comm, int32_t peer, int64_t end) {
    for (int64_t number = shd_max(0, end - SHD_COMM_RING); number < end; number++) {
        shd_announcement mine, theirs;
        if (!comm->backend->announcement(comm->state, comm->rank, number, &mine) ||
            !comm->backend->announcement(comm->state, peer, number, &theirs) || mine.hash == theirs.hash)
            continue;
        bool differ = mine.collective != theirs.collective || mine.unit != theirs.unit || mine.bytes != theirs.bytes;
        char my_text[TEXT_BYTES], their_text[TEXT_BYTES];
        print_announcement(comm, &mine, my_text, sizeof my_text);
        print_announcement(comm, &theirs, their_text, sizeof their_text);
        if (!differ) break; /* they parted earlier than the rings reach back */
        return shd_watch_fail(comm, SHERD_MISMATCH, "rank %d issued %s where rank %d issued %s, collective %lld", peer,
                              their_text, comm->rank, my_text, (long long)number);
    }
    return shd_watch_fail(comm, SHERD_MISMATCH,
                          "ranks %d and %d issued different collectives, the first of them before collective %lld",
                          peer, comm->rank, (long long)shd_max(0, end - SHD_COMM_RING));
}

sherd_status shd_watch_compare(shd_comm *comm) {
    if (!comm->backend->announcement) return SHERD_OK;
    for (int32_t peer = 0; peer < comm->world_size; peer++) {
        if (peer == comm->rank) continue;
        int64_t end = shd_min(comm->announced, comm->backend->announced(comm->state, peer));
        shd_announcement mine, theirs;
        /* Where one is more than a ring ahead nothing can be compared now; it cannot go on like that without the
         * other. */
        if (end == 0 || !comm->backend->announcement(comm->state, comm->rank, end - 1, &mine) ||
            !comm->backend->announcement(comm->state, peer, end - 1, &theirs))
            continue;
        if (mine.hash != theirs.hash) return fail_mismatch(comm, peer, end);
    }
    return SHERD_OK;
}

/* --- whom this rank waits for ------------------------------------------------------------------------------------- */

static bool is_behind(const shd_comm *comm, int32_t rank) {
    int32_t count = (int32_t)shd_min(comm->notes->count, SHD_WAIT_NOTES);
    for (int32_t i = 0; i < count; i++) {
        const shd_wait_note *note = &comm->notes->notes[i];
        if (!shd_mesh_has(&comm->mesh, note->scope, rank)) continue;
        int64_t value = note->kind == SHD_WAIT_EXCHANGE
                            ? comm->backend->posted(comm->state, rank)
                            : comm->backend->counter(comm->state, rank, note->kind, note->unit);
        if (value < note->target) return true;
    }
    return false;
}

/* So many of the ranks that are behind are looked at closely, each for so long. */
enum { CLOSE_LOOKS = 2, LOOK_MS = 50 };

/* Adds a rank to the list, its last announced collective, and, if it is to be looked at closely, how it stands; returns
 * the new length. */
static size_t print_rank(const shd_comm *comm, int32_t rank, bool closely, char *text, size_t used, size_t text_bytes) {
    char last[TEXT_BYTES] = "no collective yet";
    int64_t announced = comm->backend->announced ? comm->backend->announced(comm->state, rank) : 0;
    shd_announcement announcement;
    if (announced > 0 && comm->backend->announcement(comm->state, rank, announced - 1, &announcement)) {
        char name[TEXT_BYTES];
        print_announcement(comm, &announcement, name, sizeof name);
        snprintf(last, sizeof last, "last issued %s, collective %lld", name, (long long)(announced - 1));
    }
    char standing[SHD_COMM_CAUSE_BYTES / 2] = "";
    if (closely) shd_standing_print(comm->recorder, rank, LOOK_MS, standing, sizeof standing);
    used += (size_t)snprintf(text + used, text_bytes - used, "%srank %d (%s)%s%s", used ? ", " : "", rank, last,
                             *standing ? ": " : "", standing);
    return used < text_bytes ? used : text_bytes;
}

/* Whether a rank, as far as is known, is not just waiting for others itself. */
static bool stands_still(const shd_comm *comm, int32_t rank) {
    shd_recorder_head head;
    shd_standing standing;
    shd_where where;
    if (!shd_recorder_look(comm->recorder, rank, &head) || !shd_recorder_where(comm->recorder, rank, &where))
        return true;
    if (where.kind != SHD_AT_WAIT) return true;
    shd_standing_look(head.pid, head.tid, head.born, &standing);
    return standing.life == SHD_LIFE_STOPPED || standing.life == SHD_LIFE_DISK || standing.life == SHD_LIFE_GONE;
}

/* Lists the ranks of `wanted`; returns the new length. */
static size_t print_ranks(const shd_comm *comm, const bool *wanted, bool closely, char *text, size_t used,
                          size_t text_bytes) {
    int32_t count = 0;
    for (int32_t rank = 0; rank < comm->world_size && used + TEXT_BYTES < text_bytes; rank++)
        if (wanted[rank]) used = print_rank(comm, rank, closely && count++ < CLOSE_LOOKS, text, used, text_bytes);
    return used;
}

/* Lists the ranks that are behind, each with its last announced collective; "nobody" if there are none. Of several those
 * that do not wait themselves; where all do, also the ranks that these may be waiting for. Those are looked at closely, and
 * one that is behind alone: it may hang within its own wait. This rank only when no other is
 * behind: its own next instruction waits for one of the others. */
static void print_behind(const shd_comm *comm, char *text, size_t text_bytes) {
    bool behind[SHD_COMM_MAX_RANKS] = {0}, still[SHD_COMM_MAX_RANKS] = {0}, both[SHD_COMM_MAX_RANKS] = {0};
    bool any_both = false;
    int32_t behind_count = 0;
    for (int32_t rank = 0; rank < comm->world_size; rank++) {
        if (rank == comm->rank) continue;
        behind[rank] = is_behind(comm, rank);
        still[rank] = stands_still(comm, rank);
        both[rank] = behind[rank] && still[rank];
        behind_count += behind[rank];
        any_both |= both[rank];
    }
    behind[comm->rank] = behind_count == 0 && is_behind(comm, comm->rank);
    bool closely = any_both || behind_count == 1;
    size_t used = print_ranks(comm, any_both ? both : behind, closely, text, 0, text_bytes);
    if (!any_both) used = print_ranks(comm, still, true, text, used, text_bytes);
    if (!used) snprintf(text, text_bytes, "nobody in particular");
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

static sherd_status fail_dead(shd_comm *comm, int32_t rank) {
    char where[SHD_COMM_CAUSE_BYTES / 2];
    shd_standing_print_where(comm->recorder, rank, false, where, sizeof where);
    return shd_watch_fail(comm, SHERD_PEER, "rank %d died%s%s", rank, *where ? ", " : "", where);
}

static sherd_status check_peers(shd_comm *comm, const char *what) {
    if (!comm->backend->peers) return SHERD_OK;
    shd_peer peers[SHD_COMM_MAX_RANKS];
    /* Before the counters are looked at: all that a rank signalled before it left is visible once it is seen to have
     * left. */
    comm->backend->peers(comm->state, peers);
    for (int32_t rank = 0; rank < comm->world_size; rank++) {
        if (rank == comm->rank) continue;
        switch (peers[rank]) {
        case SHD_PEER_HERE: break;
        case SHD_PEER_LEFT:
            if (is_behind(comm, rank))
                return shd_watch_fail(comm, SHERD_PEER, "rank %d ended its session while rank %d waits for it in %s",
                                      rank, comm->rank, what);
            break;
        case SHD_PEER_DEAD: return fail_dead(comm, rank);
        }
    }
    return SHERD_OK;
}

static sherd_status watch(shd_comm *comm, const shd_patience *patience, const char *what, double now_ms) {
    if (now_ms - comm->watched_ms >= WATCH_MS) {
        comm->watched_ms = now_ms;
        SHD_TRY(shd_watch_compare(comm));
        SHD_TRY(check_peers(comm, what));
    }
    if (now_ms - patience->since_ms < comm->timeout_ms) return SHERD_OK;
    SHD_TRY(shd_watch_compare(comm));
    char behind[SHD_COMM_CAUSE_BYTES * 3 / 4], step[40] = "";
    print_behind(comm, behind, sizeof behind);
    int64_t number = shd_recorder_step(comm->recorder);
    if (number >= 0) snprintf(step, sizeof step, " of step %lld", (long long)number + 1);
    return shd_watch_fail(comm, SHERD_TIMEOUT, "rank %d waited %.3g s in %s%s for %s", comm->rank,
                          comm->timeout_ms / 1e3, what, step, behind);
}

static void doze(shd_comm *comm, double milliseconds) {
    if (comm->backend->doze) {
        comm->backend->doze(comm->state, milliseconds);
        return;
    }
    struct timespec nap = {.tv_nsec = milliseconds < 1 ? (long)(milliseconds * 1e6) : 1000000};
    nanosleep(&nap, NULL);
}

/* One turn beyond spinning and yielding. The rank was armed when its condition was last checked, so a signal since then
 * ends the doze at once; it is armed again before the condition is checked again. */
static sherd_status sleep_turn(shd_comm *comm, const shd_patience *patience, const char *what, double now_ms) {
    SHD_TRY(watch(comm, patience, what, now_ms));
    double left_ms = patience->since_ms + comm->timeout_ms - now_ms;
    double slice_ms = patience->nap_ms > 0 && patience->nap_ms < SLICE_MS ? patience->nap_ms : SLICE_MS;
    doze(comm, left_ms < slice_ms ? left_ms : slice_ms);
    if (comm->backend->arm) comm->backend->arm(comm->state);
    return SHERD_OK;
}

/* Beyond spinning: yields, then sleeps. */
static sherd_status slow_turn(shd_comm *comm, shd_patience *patience, const char *what) {
    double now_ms = shd_clock_ms();
    if (patience->turns == comm->spin_turns)
        patience->since_ms = now_ms;
    else if (now_ms - patience->seen_ms > GAP_MS)
        patience->since_ms += now_ms - patience->seen_ms;
    patience->seen_ms = now_ms;
    if (patience->turns == comm->spin_turns + YIELD_TURNS) return sleep_turn(comm, patience, what, now_ms);
    sched_yield();
    patience->turns++;
    if (patience->turns == comm->spin_turns + YIELD_TURNS && comm->backend->arm) comm->backend->arm(comm->state);
    return SHERD_OK;
}

int32_t shd_watch_spin_turns(int32_t world_size) {
    cpu_set_t mine;
    bool crowded = !sched_getaffinity(0, sizeof mine, &mine) && CPU_COUNT(&mine) < world_size;
    return crowded ? 0 : SPIN_TURNS;
}

sherd_status shd_comm_pause(shd_comm *comm, shd_patience *patience, const char *what) {
    sherd_status status = shd_watch_failure(comm);
    if (status == SHERD_OK) {
        if (patience->turns < comm->spin_turns) {
            shd_spin_pause();
            patience->turns++;
        } else {
            status = slow_turn(comm, patience, what);
        }
    }
    comm->notes->count = 0;
    return status;
}
