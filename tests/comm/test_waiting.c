/* Order between ranks, and what a wait makes of ranks that fail, die, leave, are late or do something else. */
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "tests/comm/ranks.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct job {
    char name[64];
    int32_t who; /* the rank that misbehaves */
    int32_t way; /* which of several */
} job;

static shd_comm *meet(int32_t rank, int32_t world, const job *work, double timeout_s, int64_t exported_bytes) {
    shd_comm_config config = ranks_config(rank, world, work->name, exported_bytes);
    config.timeout_s = timeout_s;
    shd_comm *comm = NULL;
    (void)shd_comm_create(&config, &comm);
    return comm;
}

static sherd_status await(shd_comm *comm, int32_t kind, int32_t unit, int64_t target, const char *what) {
    shd_patience patience = {0};
    while (!shd_comm_reached(comm, SHD_SCOPE_ALL, kind, unit, target)) SHD_TRY(shd_comm_pause(comm, &patience, what));
    return SHERD_OK;
}

static ranks_result run(rank_style style, int32_t world, rank_fn body, job work) {
    ranks_new_name(work.name, sizeof work.name);
    return ranks_run(style, world, body, &work, 30);
}

/* Every rank ended with `status`, within two seconds, and its error says all of `texts` (up to a NULL). */
static void all_said(const ranks_result *result, int32_t world, sherd_status status, const char *const *texts) {
    for (int32_t r = 0; r < world; r++) {
        if (result->code[r] == 128 + SIGKILL) continue;
        cr_assert_eq(result->code[r], (int)status, "rank %d of %d: code %d: %s", r, world, result->code[r],
                     result->text[r]);
        for (int t = 0; texts[t]; t++) cr_assert(strstr(result->text[r], texts[t]), "rank %d: %s", r, result->text[r]);
        cr_assert_lt(result->ended_ms[r], 2500, "rank %d", r);
    }
}

/* --- counters ----------------------------------------------------------------------------------------------------- */

enum { ROUNDS = 3000 };

/* Barriers by two counters; what was written before a signal is read by all after it, and not overwritten too early. */
static int barrier_body(int32_t rank, int32_t world, void *argument) {
    shd_comm *comm = meet(rank, world, argument, 20, 64);
    if (!comm) return 1;
    volatile int64_t *mine = shd_comm_exported(comm, rank);
    for (int64_t round = 1; round <= ROUNDS; round++) {
        *mine = round * 10 + rank;
        shd_comm_signal(comm, 1, 3);
        if (await(comm, 1, 3, round, "ROUND")) return 2;
        for (int32_t r = 0; r < world; r++)
            if (*(volatile int64_t *)shd_comm_exported(comm, r) != round * 10 + r) return 3;
        shd_comm_signal(comm, 2, 0);
        if (await(comm, 2, 0, round, "READ")) return 4;
        if (round % 500 == rank) usleep(300); /* let the others fall asleep */
    }
    if (shd_comm_reached(comm, SHD_SCOPE_ALL, 1, 3, ROUNDS + 1) || shd_comm_reached(comm, SHD_SCOPE_ALL, 0, 3, 1))
        return 5;
    shd_comm_destroy(comm);
    return 0;
}

Test(waiting, counters_order_memory_between_more_ranks_than_cores, .timeout = 60) {
    static const int32_t worlds[] = {1, 2, 3, 8};
    for (int w = 0; w < 4; w++)
        for (int style = AS_THREADS; style <= AS_PROCESSES; style++) {
            ranks_result result = run((rank_style)style, worlds[w], barrier_body, (job){0});
            cr_assert(ranks_all_ok(&result, worlds[w]));
        }
}

enum { CALLS = 200 };

/* By turns one rank comes late, when the other has long been asleep. */
static int calling_body(int32_t rank, int32_t world, void *argument) {
    shd_comm *comm = meet(rank, world, argument, 20, 0);
    if (!comm) return 1;
    for (int64_t call = 1; call <= CALLS; call++) {
        if (call % world == rank) usleep(1500);
        shd_comm_signal(comm, 0, 0);
        if (await(comm, 0, 0, call, "CALL")) return 2;
    }
    shd_comm_destroy(comm);
    return 0;
}

Test(waiting, a_signal_wakes_a_sleeping_rank_at_once, .timeout = 60) {
    ranks_result result = run(AS_PROCESSES, 2, calling_body, (job){0});
    cr_assert(ranks_all_ok(&result, 2));
    /* if every sleep lasted its whole slice of 50 ms, this would take 10 s */
    cr_assert_lt(result.ended_ms[0], 5000);
}

/* --- exchanges ---------------------------------------------------------------------------------------------------- */

static int64_t next_random(uint64_t *state, int64_t below) {
    *state = *state * 6364136223846793005 + 1442695040888963407;
    return (int64_t)((*state >> 33) % (uint64_t)below);
}

static int exchange_body(int32_t rank, int32_t world, void *argument) {
    shd_comm *comm = meet(rank, world, argument, 20, 0);
    if (!comm) return 1;
    unsigned char mine[SHD_COMM_EXCHANGE_BYTES], *all = malloc((size_t)world * SHD_COMM_EXCHANGE_BYTES);
    uint64_t shared = 7, own = (uint64_t)rank + 1;
    for (int n = 0; n < 2000; n++) {
        int64_t bytes = n % 50 == 0 ? SHD_COMM_EXCHANGE_BYTES : next_random(&shared, 100);
        for (int64_t i = 0; i < bytes; i++) mine[i] = (unsigned char)(n + i + 31 * rank);
        memset(all, 0xee, (size_t)(world * bytes));
        if (next_random(&own, 100) == 0) usleep(200);
        if (next_random(&own, 2)) {
            if (shd_comm_exchange(comm, mine, bytes, all)) return 2;
        } else { /* the same in halves */
            if (shd_comm_post(comm, mine, bytes)) return 3;
            if (shd_comm_announce(comm, SHD_COLLECTIVE_EXCHANGE, -1, bytes)) return 4;
            memset(mine, 0, sizeof mine); /* post has taken its copy */
            shd_patience patience = {0};
            while (!shd_comm_posted(comm))
                if (shd_comm_pause(comm, &patience, "EXCHANGE")) return 5;
            if (shd_comm_collect(comm, all)) return 6;
        }
        for (int32_t r = 0; r < world; r++)
            for (int64_t i = 0; i < bytes; i++)
                if (all[r * bytes + i] != (unsigned char)(n + i + 31 * r)) return 7;
    }
    free(all);
    shd_comm_destroy(comm);
    return 0;
}

Test(waiting, two_thousand_random_exchanges_bring_everybodys_bytes, .timeout = 60) {
    static const int32_t worlds[] = {1, 2, 3, 4, 8};
    for (int w = 0; w < 5; w++)
        for (int style = AS_THREADS; style <= AS_PROCESSES; style++) {
            ranks_result result = run((rank_style)style, worlds[w], exchange_body, (job){0});
            cr_assert(ranks_all_ok(&result, worlds[w]));
        }
}

/* --- ranks that do something else --------------------------------------------------------------------------------- */

/* All issue the same 17 collectives, then `who` another one, and wait: for each other's counters, or in an exchange. */
static int diverging_body(int32_t rank, int32_t world, void *argument) {
    const job *work = argument;
    shd_comm *comm = meet(rank, world, work, 20, 0);
    if (!comm) return 1;
    sherd_status status = SHERD_OK; /* another may have found the difference before this rank comes to it */
    for (int32_t n = 0; n < 17 && status == SHERD_OK; n++)
        status = shd_comm_announce(comm, SHD_COLLECTIVE_GATHER, n % 3, 64);
    bool other = rank == work->who;
    if (status == SHERD_OK)
        status = shd_comm_announce(comm, other ? SHD_COLLECTIVE_GATHER : SHD_COLLECTIVE_REDUCE, 2, other ? 4096 : 1024);
    char all[RANKS_MAX];
    if (status == SHERD_OK && work->way == 0) status = await(comm, 0, 0, 1, "REDUCE h.2");
    if (status == SHERD_OK && work->way == 1) status = shd_comm_exchange(comm, "", 1, all);
    shd_comm_destroy(comm);
    return (int)status;
}

Test(waiting, ranks_that_issue_different_collectives_all_fail_and_both_are_named, .timeout = 60) {
    static const int32_t worlds[] = {2, 3, 8};
    for (int w = 0; w < 3; w++)
        for (int32_t who = 0; who < 2; who++)
            for (int32_t way = 0; way < 2; way++)
                for (int style = AS_THREADS; style <= AS_PROCESSES; style++) {
                    ranks_result result =
                        run((rank_style)style, worlds[w], diverging_body, (job){.who = who, .way = way});
                    char culprit[32];
                    snprintf(culprit, sizeof culprit, "rank %d issued GATHER unit 2 (4096 bytes)", who);
                    bool turned = strstr(result.text[0], culprit) == NULL || strncmp(result.text[0], "rank", 4);
                    cr_assert_not(turned, "%s", result.text[0]);
                    all_said(&result, worlds[w], SHERD_MISMATCH,
                             (const char *[]){culprit, "issued REDUCE unit 2 (1024 bytes)", "collective 17", NULL});
                }
}

/* Rank `who` is far ahead with 600 more collectives, more than are kept; the first difference lies outside. */
static int long_gone_body(int32_t rank, int32_t world, void *argument) {
    const job *work = argument;
    shd_comm *comm = meet(rank, world, work, 20, 0);
    if (!comm) return 1;
    sherd_status status = SHERD_OK;
    for (int32_t n = 0; n < 600 && status == SHERD_OK; n++)
        status = shd_comm_announce(comm, SHD_COLLECTIVE_GATHER, n == 5 && rank == work->who, 64);
    char all[RANKS_MAX];
    if (status == SHERD_OK) status = shd_comm_exchange(comm, "", 1, all);
    shd_comm_destroy(comm);
    return (int)status;
}

Test(waiting, a_difference_long_ago_is_still_found, .timeout = 60) {
    ranks_result result = run(AS_THREADS, 3, long_gone_body, (job){.who = 1});
    all_said(&result, 3, SHERD_MISMATCH, (const char *[]){"different collectives", "1", NULL});
}

static int odd_bytes_body(int32_t rank, int32_t world, void *argument) {
    const job *work = argument;
    shd_comm *comm = meet(rank, world, work, 20, 0);
    if (!comm) return 1;
    char mine[64] = {0}, all[RANKS_MAX * 64];
    int64_t bytes = rank == work->who ? 32 : 24;
    sherd_status status = shd_comm_post(comm, mine, bytes);
    shd_patience patience = {0};
    while (status == SHERD_OK && !shd_comm_posted(comm)) status = shd_comm_pause(comm, &patience, "EXCHANGE");
    if (status == SHERD_OK) status = shd_comm_collect(comm, all);
    shd_comm_destroy(comm);
    return (int)status;
}

Test(waiting, an_exchange_of_different_sizes_fails_on_all, .timeout = 60) {
    ranks_result result = run(AS_PROCESSES, 4, odd_bytes_body, (job){.who = 3});
    all_said(&result, 4, SHERD_MISMATCH, (const char *[]){"rank 3", "32 bytes", "24", "exchange 1", NULL});
}

/* --- ranks that are late ------------------------------------------------------------------------------------------ */

static int late_body(int32_t rank, int32_t world, void *argument) {
    const job *work = argument;
    shd_comm *comm = meet(rank, world, work, 0.3, 0);
    if (!comm) return 1;
    (void)shd_comm_announce(comm, SHD_COLLECTIVE_GATHER, 3, 640);
    sherd_status status = SHERD_OK;
    if (rank == work->who) {
        usleep(700000);
    } else {
        (void)shd_comm_announce(comm, SHD_COLLECTIVE_REDUCE, 1, 640);
        shd_comm_signal(comm, 0, 1);
    }
    status = await(comm, 0, 1, 1, "REDUCE h.1");
    shd_comm_destroy(comm);
    return (int)status;
}

Test(waiting, a_time_out_names_who_is_behind_and_its_last_collective, .timeout = 60) {
    for (int32_t who = 0; who < 3; who++) {
        ranks_result result = run(AS_PROCESSES, 3, late_body, (job){.who = who});
        char culprit[96];
        snprintf(culprit, sizeof culprit, "for rank %d (last issued GATHER unit 3 (640 bytes), collective 0)", who);
        all_said(&result, 3, SHERD_TIMEOUT, (const char *[]){culprit, "REDUCE h.1", "0.3 s", NULL});
        for (int32_t r = 0; r < 3; r++) cr_assert_geq(result.ended_ms[r], 290);
    }
}

/* Nobody but rank 0 signals; it awaits its shard group, or the replicas of its place, on two replicas of two ranks. */
static int late_scope_body(int32_t rank, int32_t world, void *argument) {
    const job *work = argument;
    shd_comm_config config = ranks_config(rank, world, work->name, 0);
    config.replicas = 2;
    config.timeout_s = rank == 0 ? 0.3 : 20;
    shd_comm *comm;
    if (shd_comm_create(&config, &comm)) return 1;
    shd_patience patience = {0};
    sherd_status status = SHERD_OK;
    if (rank == 0) shd_comm_signal(comm, 0, 1);
    while (status == SHERD_OK && !shd_comm_reached(comm, (shd_scope)work->way, 0, 1, 1))
        status = shd_comm_pause(comm, &patience, "GATHER h.1");
    shd_comm_destroy(comm);
    return (int)status;
}

Test(waiting, a_time_out_names_only_those_who_were_awaited, .timeout = 60) {
    static const struct {
        shd_scope scope;
        const char *behind;
    } cases[] = {{SHD_SCOPE_GROUP, "for rank 1 (no collective yet)"},
                 {SHD_SCOPE_REPLICAS, "for rank 2 (no collective yet)"}};
    for (int i = 0; i < 2; i++) {
        ranks_result result = run(AS_PROCESSES, 4, late_scope_body, (job){.way = (int32_t)cases[i].scope});
        all_said(&result, 4, SHERD_TIMEOUT,
                 (const char *[]){"rank 0 waited 0.3 s in GATHER h.1", cases[i].behind, NULL});
        for (int32_t r = 0; r < 4; r++) cr_assert_null(strstr(strstr(result.text[r], "for rank"), ", rank"));
    }
}

/* --- ranks that fail, die or leave -------------------------------------------------------------------------------- */

/* In memory of all ranks: the wait of a rank that was not busy has ended. */
static atomic_bool *wait_is_over;

/* Busy, without a look at the others, until one of them has ended its wait. */
static bool stay_busy(void) {
    for (int naps = 0; naps < 1000 && !atomic_load(wait_is_over); naps++) usleep(10000);
    return atomic_load(wait_is_over);
}

/* way 0: killed while the others wait; way 1: the same while rank 0 (or 1) is busy and does not look; 2: ends without a
 * goodbye. */
static int dying_body(int32_t rank, int32_t world, void *argument) {
    const job *work = argument;
    shd_comm *comm = meet(rank, world, work, 20, 0);
    if (!comm) return 1;
    if (rank == work->who) {
        usleep(150000);
        if (work->way == 2) _exit(0);
        raise(SIGKILL);
    }
    bool busy = work->way == 1 && rank == (work->who == 0);
    if (busy && !stay_busy()) return 1;
    shd_comm_signal(comm, 0, 0);
    sherd_status status = await(comm, 0, 0, 1, "GATHER wte");
    shd_comm_destroy(comm);
    if (work->way == 1) atomic_store(wait_is_over, true);
    return (int)status;
}

Test(waiting, a_killed_rank_ends_the_wait_of_all_others_and_is_named, .timeout = 100) {
    wait_is_over = mmap(NULL, sizeof *wait_is_over, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(wait_is_over, MAP_FAILED);
    static const int32_t worlds[] = {2, 3, 8};
    for (int w = 0; w < 3; w++)
        for (int32_t who = 0; who < worlds[w]; who += worlds[w] / 2)
            for (int32_t way = 0; way < (worlds[w] == 3 ? 2 : 1); way++) {
                atomic_store(wait_is_over, false);
                ranks_result result = run(AS_PROCESSES, worlds[w], dying_body, (job){.who = who, .way = way});
                cr_assert_eq(result.code[who], 128 + SIGKILL);
                char named[32];
                snprintf(named, sizeof named, "rank %d died", who);
                all_said(&result, worlds[w], SHERD_PEER, (const char *[]){named, NULL});
                for (int32_t r = 0; r < worlds[w]; r++)
                    cr_assert_lt(result.ended_ms[r], 10000, "long before the time-out of 20 s");
            }
}

Test(waiting, a_rank_that_exits_without_goodbye_counts_as_dead, .timeout = 60) {
    ranks_result result = run(AS_PROCESSES, 2, dying_body, (job){.who = 1, .way = 2});
    cr_assert_eq(result.code[0], SHERD_PEER);
    cr_assert(strstr(result.text[0], "rank 1 died"), "%s", result.text[0]);
}

static int failing_body(int32_t rank, int32_t world, void *argument) {
    const job *work = argument;
    shd_comm *comm = meet(rank, world, work, 20, 64);
    if (!comm) return 1;
    if (rank == work->who) {
        usleep(100000);
        shd_comm_fail(comm, SHERD_NUMERIC, "loss is nan in h.7");
    }
    sherd_status status = await(comm, 0, 0, 1, "VERDICT");
    char all[RANKS_MAX], full[RANKS_MAX * 64];
    bool dead = shd_comm_gather(comm, SHD_COLLECTIVE_GATHER, full, shd_comm_exported(comm, rank), 64) == SHERD_PEER &&
                shd_comm_gather_shared(comm, 64) == SHERD_PEER && shd_comm_post(comm, "", 1) == SHERD_PEER &&
                shd_comm_announce(comm, SHD_COLLECTIVE_GATHER, 0, 1) == SHERD_PEER &&
                shd_comm_exchange(comm, "", 1, all) == SHERD_PEER;
    shd_comm_destroy(comm);
    return dead ? (int)status : 2;
}

Test(waiting, a_failure_reaches_all_ranks_with_its_cause, .timeout = 60) {
    for (int style = AS_THREADS; style <= AS_PROCESSES; style++)
        for (int32_t who = 0; who < 4; who += 3) {
            ranks_result result = run((rank_style)style, 4, failing_body, (job){.who = who});
            char named[32];
            snprintf(named, sizeof named, "rank %d failed", who);
            all_said(&result, 4, SHERD_PEER,
                     (const char *[]){named, "a number is not finite", "loss is nan in h.7", NULL});
        }
}

/* way 0: `who` has done its part when it leaves; the others still do a last round among themselves, slowly. way 1: it
 * leaves too early. */
static int leaving_body(int32_t rank, int32_t world, void *argument) {
    const job *work = argument;
    shd_comm *comm = meet(rank, world, work, 20, 0);
    if (!comm) return 1;
    sherd_status status = SHERD_OK;
    shd_comm_signal(comm, 0, 0);
    if (rank == work->who) {
        if (work->way == 0) shd_comm_signal(comm, 0, 0);
    } else {
        usleep((useconds_t)rank * 150000);
        shd_comm_signal(comm, 0, 0);
        status = await(comm, 0, 0, 2, "NORM");
    }
    shd_comm_destroy(comm);
    return (int)status;
}

Test(waiting, a_rank_that_has_finished_may_leave_before_the_others, .timeout = 60) {
    for (int style = AS_THREADS; style <= AS_PROCESSES; style++)
        for (int32_t who = 0; who < 4; who += 3) {
            ranks_result result = run((rank_style)style, 4, leaving_body, (job){.who = who});
            cr_assert(ranks_all_ok(&result, 4));
        }
}

Test(waiting, a_rank_that_leaves_too_early_fails_those_who_wait_for_it, .timeout = 60) {
    for (int style = AS_THREADS; style <= AS_PROCESSES; style++)
        for (int32_t who = 0; who < 4; who += 3) {
            ranks_result result = run((rank_style)style, 4, leaving_body, (job){.who = who, .way = 1});
            char named[64];
            snprintf(named, sizeof named, "rank %d ended its session", who);
            for (int32_t r = 0; r < 4; r++) {
                cr_assert_eq(result.code[r], r == who ? 0 : SHERD_PEER, "rank %d: %s", r, result.text[r]);
                if (r != who) cr_assert(strstr(result.text[r], named), "%s", result.text[r]);
            }
        }
}
