/* What the wrapper counts and what it refuses. */
#include "runtime/base/clock.h"
#include "runtime/base/memory.h"
#include "runtime/comm/arena.h"
#include "tests/comm/ranks.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct job {
    char name[64];
} job;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) return __LINE__ % 97 + 1;                                                                    \
    } while (0)

/* --- stats -------------------------------------------------------------------------------------------------------- */

static int stats_body(int32_t rank, int32_t world, void *argument) {
    const job *work = argument;
    shd_comm_config config = ranks_config(rank, world, work->name, 65536);
    shd_comm *comm;
    CHECK(!shd_comm_create(&config, &comm));
    static _Thread_local unsigned char full[RANKS_MAX * 640], all[RANKS_MAX * 24];
    static _Thread_local float sum[100];
    unsigned char *mine = shd_comm_exported(comm, rank);
    char post[24] = {0};
    CHECK(!shd_comm_exchange(comm, post, 24, all));
    CHECK(!shd_comm_gather(comm, SHD_COLLECTIVE_GATHER, full, mine, 640));
    CHECK(!shd_comm_gather(comm, SHD_COLLECTIVE_GATHER, mine, mine + rank * 128, 128));
    CHECK(!shd_comm_gather(comm, SHD_COLLECTIVE_GATHER_GRADIENT, full, mine, 64));
    CHECK(!shd_comm_gather_shared(comm, 1000));
    CHECK(!shd_comm_gather(comm, SHD_COLLECTIVE_GATHER, full, mine, 0));
    CHECK(!shd_comm_reduce(comm, sum, (float *)(void *)mine, SHERD_FP32, 100, true));
    CHECK(!shd_comm_reduce(comm, sum, (float *)(void *)mine, SHERD_FP32, 17, false));
    CHECK(!shd_comm_exchange(comm, post, 5, all));
    *(int32_t *)(void *)(mine + 1024) = rank;
    CHECK(!shd_comm_exchange(comm, NULL, 0, NULL));
    for (int32_t place = 0; place < world; place++) {
        const int32_t *there = shd_comm_peer(comm, place, mine + 1024, 4);
        CHECK(*there == place && (place != rank || (const void *)there == mine + 1024));
    }
    CHECK(shd_comm_gather(comm, SHD_COLLECTIVE_GATHER, full, mine, 63) == SHERD_ARGUMENT); /* not counted */
    shd_comm_stats stats;
    shd_comm_get_stats(comm, &stats);
    static const int64_t calls[SHD_COLLECTIVES] = {4, 1, 2, 0, 3};
    static const int64_t logical[SHD_COLLECTIVES] = {640 + 128 + 1000, 64, 4 * (100 + 17), 0,
                                                     24 + 5,           4}; /* from each peer */
    static const int64_t moved[SHD_COLLECTIVES] = {640 + 128, 64, 4 * (100 + 17), 0, 24 + 5, 4};
    for (int c = 0; c < SHD_COLLECTIVES; c++) {
        CHECK(stats.calls[c] == (c == SHD_COLLECTIVE_PEEK ? world - 1 : calls[c]));
        CHECK(stats.logical_bytes[c] == (world - 1) * logical[c]);
        CHECK(stats.moved_bytes[c] == (world - 1) * moved[c]);
    }
    CHECK(!shd_comm_exchange(comm, post, 1, all));
    shd_comm_destroy(comm);
    return 0;
}

Test(books, calls_and_bytes_are_those_worked_out_by_hand, .timeout = 60) {
    static const int32_t worlds[] = {1, 2, 3, 8};
    for (int w = 0; w < 4; w++) {
        job work;
        ranks_new_name(work.name, sizeof work.name);
        ranks_result result = ranks_run(AS_THREADS, worlds[w], stats_body, &work, 30);
        cr_assert(ranks_all_ok(&result, worlds[w]));
    }
}

/* --- arenas ------------------------------------------------------------------------------------------------------- */

static int arena_body(int32_t rank, int32_t world, void *argument) {
    const job *work = argument;
    shd_comm_config config = ranks_config(rank, world, work->name, 1000);
    config.host_bytes = 100001;
    shd_comm *comm;
    int64_t arena = shd_memory_held(SHD_MEMORY_ARENA), control = shd_memory_held(SHD_MEMORY_CONTROL);
    CHECK(!shd_comm_create(&config, &comm));
    int64_t noted = shd_memory_held(SHD_MEMORY_ARENA) - arena;
    CHECK((uintptr_t)shd_comm_exported(comm, rank) % 64 == 0 && (uintptr_t)shd_comm_host(comm) % 64 == 0);
    const unsigned char *mine = shd_comm_exported(comm, rank), *host = shd_comm_host(comm);
    for (int i = 0; i < 1000; i++) CHECK(mine[i] == 0);
    for (int i = 0; i < 100001; i++) CHECK(host[i] == 0);
    CHECK(!shd_comm_exchange(comm, NULL, 0, NULL));
    /* every rank writes its own byte of the one host arena, and reads the others' */
    ((unsigned char *)shd_comm_host(comm))[rank] = (unsigned char)(rank + 1);
    int64_t all[RANKS_MAX], total = 0;
    CHECK(!shd_comm_exchange(comm, &noted, sizeof noted, all));
    for (int32_t r = 0; r < world; r++) {
        CHECK(host[r] == r + 1);
        total += all[r];
    }
    CHECK(total == world * 1000 + 100001);
    CHECK(world == 1 || shd_memory_held(SHD_MEMORY_CONTROL) - control > 0);
    CHECK(!shd_comm_exchange(comm, NULL, 0, NULL));
    shd_comm_destroy(comm);
    CHECK(shd_memory_held(SHD_MEMORY_ARENA) == arena && shd_memory_held(SHD_MEMORY_CONTROL) == control);
    return 0;
}

Test(books, arenas_are_zeroed_aligned_shared_and_charged_once, .timeout = 60) {
    static const int32_t worlds[] = {1, 2, 3, 8};
    for (int w = 0; w < 4; w++) {
        job work;
        ranks_new_name(work.name, sizeof work.name);
        ranks_result result = ranks_run(AS_PROCESSES, worlds[w], arena_body, &work, 30);
        cr_assert(ranks_all_ok(&result, worlds[w]));
    }
}

Test(books, arenas_of_no_bytes_are_null) {
    shd_comm_config config = ranks_config(0, 1, NULL, 0);
    shd_comm *comm;
    cr_assert_eq(shd_comm_create(&config, &comm), SHERD_OK);
    cr_assert_null(shd_comm_exported(comm, 0));
    cr_assert_null(shd_comm_host(comm));
    shd_comm_destroy(comm);
    shd_comm_destroy(NULL);
}

Test(books, shared_memory_is_reserved_and_cannot_shrink) {
    int fd;
    void *memory;
    cr_assert_eq(shd_arena_create("test", 100000, &fd), SHERD_OK);
    struct stat facts;
    cr_assert_eq(fstat(fd, &facts), 0);
    cr_assert_geq(facts.st_blocks * 512, 100000, "its pages are there before they are touched");
    cr_assert_neq(ftruncate(fd, 50000), 0);
    cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    cr_assert(shd_arena_is(fd, 100000));
    cr_assert_not(shd_arena_is(fd, 100001));
    cr_assert_eq(shd_arena_map(fd, 100000, true, &memory), SHERD_OK);
    close(fd);
    memset(memory, 1, 100000);
    munmap(memory, 100000);
    int plain = memfd_create("plain", 0);
    cr_assert_eq(ftruncate(plain, 4096), 0);
    cr_assert_not(shd_arena_is(plain, 4096), "it might shrink under its readers");
    close(plain);
    /* more than any machine has: refused before a page is taken */
    cr_assert_eq(shd_arena_create("test", INT64_MAX / 4, &fd), SHERD_MEMORY);
    cr_assert(strstr(sherd_last_error(), "available"), "%s", sherd_last_error());
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

Test(books, impossible_configurations_are_refused) {
    shd_comm *comm;
#define REFUSES(field, value)                                                                                          \
    do {                                                                                                               \
        shd_comm_config config = ranks_config(0, 2, "x", 64);                                                          \
        config.field = (value);                                                                                        \
        cr_assert_eq(shd_comm_create(&config, &comm), SHERD_ARGUMENT, #field " " #value);                              \
    } while (0)
    REFUSES(world_size, 0);
    REFUSES(world_size, 65);
    REFUSES(rank, -1);
    REFUSES(rank, 2);
    REFUSES(rendezvous, NULL);
    REFUSES(rendezvous, "");
    REFUSES(exported_bytes, -1);
    REFUSES(host_bytes, -1);
    REFUSES(unit_count, -1);
    REFUSES(timeout_s, 0);
    REFUSES(timeout_s, NAN);
    REFUSES(start_timeout_s, -1);
    REFUSES(start_timeout_s, INFINITY);
}

static int refusing_body(int32_t rank, int32_t world, void *argument) {
    const job *work = argument;
    shd_comm_config config = ranks_config(rank, world, work->name, 4096);
    shd_comm *comm;
    CHECK(!shd_comm_create(&config, &comm));
    static _Thread_local unsigned char full[RANKS_MAX * 4096], all[RANKS_MAX * 8];
    static _Thread_local float sum[1024];
    unsigned char *mine = shd_comm_exported(comm, rank);
    float *floats = (float *)(void *)mine;
    const shd_collective gather = SHD_COLLECTIVE_GATHER;
    CHECK(shd_comm_gather(comm, SHD_COLLECTIVE_REDUCE, full, mine, 64) == SHERD_ARGUMENT);
    CHECK(shd_comm_gather(comm, gather, full, mine, -64) == SHERD_ARGUMENT);
    CHECK(shd_comm_gather(comm, gather, full, mine, 4) == SHERD_ARGUMENT);
    CHECK(shd_comm_gather(comm, gather, full, mine + 4096 - 64, 128) == SHERD_ARGUMENT);
    CHECK(shd_comm_gather(comm, gather, full, full + 64, 64) == SHERD_ARGUMENT);
    CHECK(shd_comm_gather(comm, gather, mine, mine + ((rank + 1) % world) * 64, 64) == SHERD_ARGUMENT);
    CHECK(shd_comm_gather(comm, gather, mine + 4096 - 64, mine + 4096 - 64 + rank * 64, 64) == SHERD_ARGUMENT);
    CHECK(shd_comm_gather(comm, gather, full, mine, INT64_MAX / 64 * 64) == SHERD_ARGUMENT);
    CHECK(shd_comm_gather_shared(comm, -1) == SHERD_ARGUMENT);
    CHECK(shd_comm_reduce(comm, sum, floats, SHERD_FP32, -1, true) == SHERD_ARGUMENT);
    CHECK(shd_comm_reduce(comm, sum, floats, SHERD_FP32, 1024 / world + 1, true) == SHERD_ARGUMENT);
    CHECK(shd_comm_reduce(comm, sum, sum, SHERD_FP32, 1, true) == SHERD_ARGUMENT);
    CHECK(shd_comm_reduce(comm, floats + 1, floats, SHERD_FP32, 1, true) == SHERD_ARGUMENT);
    CHECK(shd_comm_reduce(comm, sum, floats, SHERD_FP32, INT64_MAX / 4, true) == SHERD_ARGUMENT);
    CHECK(shd_comm_post(comm, all, SHD_COMM_EXCHANGE_BYTES + 1) == SHERD_ARGUMENT);
    CHECK(shd_comm_post(comm, all, -1) == SHERD_ARGUMENT);
    CHECK(shd_comm_collect(comm, all) == SHERD_STATE);
    CHECK(shd_comm_announce(comm, SHD_COLLECTIVES, 0, 0) == SHERD_ARGUMENT);
    CHECK(!shd_comm_post(comm, &rank, 4));
    CHECK(shd_comm_post(comm, &rank, 4) == SHERD_STATE);
    shd_patience patience = {0};
    while (!shd_comm_posted(comm)) CHECK(!shd_comm_pause(comm, &patience, "EXCHANGE"));
    CHECK(!shd_comm_collect(comm, all)); /* nothing of this has hurt the comm */
    CHECK(!shd_comm_exchange(comm, NULL, 0, NULL));
    shd_comm_destroy(comm);
    return 0;
}

Test(books, bad_arguments_are_refused_and_do_no_harm, .timeout = 60) {
    job work;
    ranks_new_name(work.name, sizeof work.name);
    ranks_result result = ranks_run(AS_PROCESSES, 2, refusing_body, &work, 30);
    cr_assert(ranks_all_ok(&result, 2));
}

/* --- a rank that cannot come -------------------------------------------------------------------------------------- */

typedef struct declining {
    char name[64];
    int32_t culprit;
} declining;

static int declining_body(int32_t rank, int32_t world, void *argument) {
    const declining *work = argument;
    shd_comm_config config = ranks_config(rank, world, work->name, 64);
    if (rank == work->culprit) {
        shd_comm_decline(&config, "its threads do not start");
        return 0;
    }
    shd_comm *comm = NULL;
    char expected[64];
    snprintf(expected, sizeof expected, "rank %d failed at the start: its threads do not start", work->culprit);
    double since_ms = shd_clock_ms();
    CHECK(shd_comm_create(&config, &comm) == SHERD_PEER && !comm);
    CHECK(strstr(sherd_last_error(), expected));
    CHECK(shd_clock_ms() - since_ms < 10000);
    return 0;
}

Test(books, a_rank_that_declines_is_named_with_its_cause_and_nobody_waits, .timeout = 60) {
    for (int32_t culprit = 0; culprit < 3; culprit++) {
        declining work = {.culprit = culprit};
        ranks_new_name(work.name, sizeof work.name);
        ranks_result result = ranks_run(AS_PROCESSES, 3, declining_body, &work, 30);
        cr_assert(ranks_all_ok(&result, 3));
    }
}

/* --- one rank ----------------------------------------------------------------------------------------------------- */

Test(books, one_rank_alone_fails_like_any_other) {
    shd_comm_config config = ranks_config(0, 1, NULL, 64);
    config.timeout_s = 0.05;
    shd_comm *comm;
    cr_assert_eq(shd_comm_create(&config, &comm), SHERD_OK);
    shd_comm_signal(comm, 2, 1);
    cr_assert(shd_comm_reached(comm, SHD_SCOPE_ALL, 2, 1, 1));
    cr_assert_not(shd_comm_reached(comm, SHD_SCOPE_ALL, 2, 1, 2));
    shd_patience patience = {0};
    sherd_status status = SHERD_OK;
    while (status == SHERD_OK && !shd_comm_reached(comm, SHD_SCOPE_ALL, 2, 1, 2))
        status = shd_comm_pause(comm, &patience, "UPDATE wte");
    cr_assert_eq(status, SHERD_TIMEOUT);
    cr_assert(strstr(sherd_last_error(), "UPDATE wte for rank 0"), "%s", sherd_last_error());
    shd_comm_fail(comm, SHERD_IO, "second");
    cr_assert_eq(shd_comm_gather_shared(comm, 64), SHERD_TIMEOUT, "the first failure stands");
    shd_comm_destroy(comm);
}
