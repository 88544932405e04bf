/* The flight recorder: what a rank writes others can read, whatever has become of it; and how ranks stand in words. */
#include "runtime/base/clock.h"
#include "runtime/base/memory.h"
#include "runtime/comm/standing.h"
#include "tests/comm/ranks.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static shd_recorder *open_as(int fd, int32_t rank) {
    shd_recorder *recorder = NULL;
    return shd_recorder_open(fd, rank, &recorder) ? NULL : recorder;
}

/* Every field of record `i` follows from i. */
static shd_record record_of(int64_t i) {
    return (shd_record){.queued_ns = 1000 * i + 1,
                        .bytes = 3 * i,
                        .step = i / 10,
                        .collective = i % 3 ? i : SHD_RECORD_NO_COLLECTIVE,
                        .unit = (int32_t)(i % 7) - 1,
                        .micro_step = (int32_t)(i % 5) - 1,
                        .kind = (uint8_t)(SHD_RECORD_INSTRUCTION + i % 9),
                        .queue = (uint8_t)(i % 4),
                        .program = (uint8_t)(i % 2)};
}

static bool is_record(const shd_record *seen, int64_t i) {
    shd_record made = record_of(i);
    return seen->sequence == i && seen->queued_ns == made.queued_ns && seen->bytes == made.bytes &&
           seen->step == made.step && seen->collective == made.collective && seen->unit == made.unit &&
           seen->micro_step == made.micro_step && seen->kind == made.kind && seen->queue == made.queue &&
           seen->program == made.program;
}

Test(recorder, the_last_records_of_every_rank_are_read_whole_and_older_ones_are_gone) {
    static const int64_t counts[] = {
        0, 1, 17, SHD_RECORDER_EVENTS, SHD_RECORDER_EVENTS + 1, 3 * SHD_RECORDER_EVENTS + 5};
    for (int32_t c = 0; c < 6; c++) {
        int fd;
        cr_assert_eq(shd_recorder_file(3, &fd), SHERD_OK);
        shd_recorder *reader = open_as(fd, -1), *writer = open_as(fd, c % 3);
        cr_assert(writer && reader && shd_recorder_world(reader) == 3);
        close(fd);
        for (int64_t i = 0; i < counts[c]; i++) {
            shd_record record = record_of(i);
            cr_assert_eq(shd_recorder_add(writer, &record), i);
            shd_recorder_start(writer, i, 7 * i + 1);
            if (i % 2) shd_recorder_end(writer, i, 9 * i + 1);
        }
        int64_t first = counts[c] > SHD_RECORDER_EVENTS ? counts[c] - SHD_RECORDER_EVENTS : 0;
        shd_recorder_head head;
        shd_record seen;
        cr_assert(shd_recorder_look(reader, c % 3, &head) && head.pid == getpid() && head.rank == c % 3);
        cr_assert(head.count == counts[c] && head.first == first);
        cr_assert_not(shd_recorder_look(reader, (c + 1) % 3, &head), "nobody is there");
        for (int64_t i = counts[c] - 1; i >= first; i--) {
            cr_assert(shd_recorder_read(reader, c % 3, i, &seen), "record %lld", (long long)i);
            cr_assert(is_record(&seen, i) && seen.started_ns == 7 * i + 1 && seen.ended_ns == (i % 2 ? 9 * i + 1 : 0));
        }
        cr_assert_not(shd_recorder_read(reader, c % 3, counts[c], &seen));
        cr_assert_not(shd_recorder_read(reader, c % 3, first - 1, &seen));
        /* What is gone is left alone. */
        shd_recorder_end(writer, first - 1, 5);
        shd_recorder_start(writer, -1, 5);
        if (counts[c] > 0)
            cr_assert(shd_recorder_read(reader, c % 3, counts[c] - 1, &seen) && is_record(&seen, counts[c] - 1));
        shd_recorder_close(writer);
        shd_recorder_close(reader);
    }
}

typedef struct tearing {
    shd_recorder *writer;
    atomic_bool over;
} tearing;

static void *write_on(void *argument) {
    tearing *with = argument;
    for (int64_t i = 0; !atomic_load(&with->over); i++) {
        shd_record record = record_of(i);
        shd_recorder_add(with->writer, &record);
    }
    return NULL;
}

/* The reader reads slots that are just being written anew, many thousands of times. */
Test(recorder, a_record_is_never_read_half_written, .timeout = 60) {
    int fd;
    cr_assert_eq(shd_recorder_file(1, &fd), SHERD_OK);
    tearing with = {.writer = open_as(fd, 0)};
    shd_recorder *reader = open_as(fd, -1);
    pthread_t thread;
    cr_assert(with.writer && reader && !pthread_create(&thread, NULL, write_on, &with));
    int64_t whole = 0, torn = 0, lost = 0;
    double until_ms = shd_clock_ms() + 300;
    while (shd_clock_ms() < until_ms) {
        shd_recorder_head head;
        shd_record seen;
        if (!shd_recorder_look(reader, 0, &head)) continue;
        for (int64_t number = head.first; number < head.first + 8 && number < head.count; number++) {
            bool got = shd_recorder_read(reader, 0, number, &seen);
            lost += !got;
            whole += got && is_record(&seen, number);
            torn += got && !is_record(&seen, number);
        }
    }
    atomic_store(&with.over, true);
    pthread_join(thread, NULL);
    cr_assert(torn == 0 && whole > 0, "%lld whole, %lld torn, %lld lost", (long long)whole, (long long)torn,
              (long long)lost);
    shd_recorder_close(with.writer);
    shd_recorder_close(reader);
    close(fd);
}

Test(recorder, no_recorder_is_no_failure) {
    shd_record record = {0};
    shd_where where;
    shd_recorder_head head;
    cr_assert_eq(shd_recorder_add(NULL, &record), -1);
    shd_recorder_start(NULL, 0, 1);
    shd_recorder_end(NULL, 0, 1);
    shd_recorder_enter(NULL, SHD_ACTIVITY_STEP, 0);
    shd_recorder_alarm(NULL, "text");
    shd_recorder_await(NULL, 0);
    cr_assert(shd_recorder_alarmed(NULL, NULL) == -1 && shd_recorder_step(NULL) == -1 && shd_recorder_world(NULL) == 0);
    cr_assert(!shd_recorder_look(NULL, 0, &head) && !shd_recorder_where(NULL, 0, &where));
    char text[64] = "x";
    shd_standing_print_where(NULL, 0, true, text, sizeof text);
    cr_assert_str_empty(text);
    shd_recorder_close(NULL);
}

Test(recorder, a_foreign_file_or_rank_is_refused) {
    shd_recorder *recorder = NULL;
    int fd;
    cr_assert_eq(shd_recorder_open(-1, 0, &recorder), SHERD_COMM);
    FILE *other = tmpfile();
    fputs("something else entirely, and longer than a head", other);
    fflush(other);
    cr_assert_eq(shd_recorder_open(fileno(other), 0, &recorder), SHERD_COMM);
    fclose(other);
    cr_assert_eq(shd_recorder_file(2, &fd), SHERD_OK);
    cr_assert_eq(shd_recorder_open(fd, 2, &recorder), SHERD_COMM);
    cr_assert_eq(shd_recorder_open(fd, -2, &recorder), SHERD_COMM);
    cr_assert_null(recorder);
    close(fd);
}

Test(recorder, memory_is_counted_for_the_rank_alone) {
    int fd;
    int64_t before = shd_memory_held(SHD_MEMORY_CONTROL);
    cr_assert_eq(shd_recorder_file(4, &fd), SHERD_OK);
    shd_recorder *reader = open_as(fd, -1), *writer = open_as(fd, 1);
    int64_t part = shd_memory_held(SHD_MEMORY_CONTROL) - before;
    cr_assert(part > SHD_RECORDER_EVENTS * 64 && part < 280 * 1024, "%lld", (long long)part);
    cr_assert(shd_recorder_bytes(4) >= 4 * part && shd_recorder_bytes(4) <= 4 * part + 2 * 4096);
    shd_recorder_close(writer);
    shd_recorder_close(reader);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_CONTROL), before);
    close(fd);
}

/* --- where a rank is ---------------------------------------------------------------------------------------------- */

static int64_t issue(shd_recorder *writer, int32_t op, uint8_t queue, int32_t unit, int64_t now_ns, bool starts) {
    return shd_recorder_add(writer, &(shd_record){.queued_ns = now_ns,
                                                  .started_ns = starts ? now_ns : 0,
                                                  .step = 7,
                                                  .collective = SHD_RECORD_NO_COLLECTIVE,
                                                  .unit = unit,
                                                  .micro_step = 0,
                                                  .kind = (uint8_t)(SHD_RECORD_INSTRUCTION + op),
                                                  .queue = queue});
}

static void expect_where(const shd_recorder *reader, const char *text) {
    char found[256];
    shd_standing_print_where(reader, 0, false, found, sizeof found);
    cr_assert_str_eq(found, text);
}

Test(recorder, tells_where_a_rank_is_from_what_has_begun_and_not_ended) {
    static char names[3][48] = {"wte", "h.0", "a.name.that.is.longer.than.kinds.may.be"};
    char *units[] = {names[0], names[1], names[2]};
    int fd;
    cr_assert_eq(shd_recorder_file(1, &fd), SHERD_OK);
    shd_recorder *reader = open_as(fd, -1);
    shd_where where;
    cr_assert_not(shd_recorder_where(reader, 0, &where), "nobody is there yet");
    shd_recorder *writer = open_as(fd, 0);
    expect_where(reader, "starting");
    shd_recorder_name_kind(writer, SHD_RECORD_INSTRUCTION + 0, "FORWARD");
    shd_recorder_name_kind(writer, SHD_RECORD_INSTRUCTION + 1, "GATHER");
    shd_recorder_name_kind(writer, SHD_RECORD_INSTRUCTION + 2, "VERDICT");
    shd_recorder_name_units(writer, units, 3);
    shd_recorder_enter(writer, SHD_ACTIVITY_STEP, 7);
    expect_where(reader, "in step 8");
    int64_t gather = issue(writer, 1, 1, 1, 100, false); /* issued ahead: no reason to stand still */
    expect_where(reader, "in step 8");
    int64_t forward = issue(writer, 0, 0, 0, 110, true);
    expect_where(reader, "in FORWARD wte of step 8");
    shd_recorder_end(writer, forward, 120);
    forward = issue(writer, 0, 0, 1, 130, false);
    expect_where(reader, "waiting in FORWARD h.0 of step 8");
    shd_recorder_await(writer, gather);
    expect_where(reader, "waiting in FORWARD h.0 of step 8 for GATHER h.0");
    shd_recorder_start(writer, gather, 140);
    expect_where(reader, "in GATHER h.0 of step 8");
    shd_recorder_end(writer, gather, 150);
    expect_where(reader, "waiting in FORWARD h.0 of step 8");
    shd_recorder_start(writer, forward, 160);
    shd_recorder_end(writer, forward, 170);
    issue(writer, 2, 0, -1, 180, true);
    int64_t exchange = shd_recorder_add(
        writer,
        &(shd_record){
            .queued_ns = 190, .started_ns = 190, .step = 7, .unit = -1, .micro_step = -1, .kind = SHD_RECORD_EXCHANGE});
    expect_where(reader, "waiting in EXCHANGE of step 8");
    cr_assert(shd_recorder_where(reader, 0, &where));
    cr_assert(where.kind == SHD_AT_WAIT && where.record.sequence == exchange && where.since_ns == 190);
    shd_recorder_end(writer, exchange, 200);
    expect_where(reader, "in VERDICT of step 8");
    char name[64];
    cr_assert_str_eq(shd_recorder_unit_name(reader, 0, 2, name, sizeof name), units[2]);
    cr_assert_str_eq(shd_recorder_unit_name(reader, 0, 3, name, sizeof name), "unit 3");
    cr_assert_str_eq(shd_recorder_unit_name(reader, 0, -1, name, sizeof name), "");
    cr_assert_str_eq(shd_recorder_kind_name(reader, 0, 63, name, sizeof name), "kind 63");
    shd_recorder_close(writer);
    shd_recorder_close(reader);
    close(fd);
}

Test(recorder, units_that_do_not_fit_go_by_their_numbers) {
    enum { UNITS = 1000 };
    static char room[UNITS][24], *names[UNITS];
    for (int i = 0; i < UNITS; i++) {
        snprintf(room[i], sizeof room[i], "layer-number-%d", i);
        names[i] = room[i];
    }
    int fd;
    cr_assert_eq(shd_recorder_file(1, &fd), SHERD_OK);
    shd_recorder *writer = open_as(fd, 0);
    shd_recorder_name_units(writer, names, UNITS);
    char name[64];
    cr_assert_str_eq(shd_recorder_unit_name(writer, 0, 400, name, sizeof name), "layer-number-400");
    cr_assert_str_eq(shd_recorder_unit_name(writer, 0, 999, name, sizeof name), "unit 999");
    shd_recorder_close(writer);
    close(fd);
}

/* --- others' eyes ------------------------------------------------------------------------------------------------- */

/* A child that is at FORWARD h.0 of step 3, and sleeps, spins, is stopped or is dead. */
static pid_t start_rank(int fd, bool spins) {
    int ready[2];
    if (pipe(ready)) return -1;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
        shd_recorder *writer = open_as(fd, 0);
        char name[] = "h.0", *units[] = {name};
        shd_recorder_name_kind(writer, SHD_RECORD_INSTRUCTION, "FORWARD");
        shd_recorder_name_units(writer, units, 1);
        shd_recorder_enter(writer, SHD_ACTIVITY_STEP, 2);
        issue(writer, 0, 0, 0, shd_clock_ns(), true);
        if (write(ready[1], "", 1) != 1) _exit(1);
        for (volatile int i = 0;; i++)
            if (!spins) pause();
    }
    char byte;
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1) pid = -1;
    close(ready[0]);
    return pid;
}

static void expect_standing(const shd_recorder *reader, pid_t pid, const char *how) {
    char text[512], start[64];
    shd_standing_print(reader, 0, 60, text, sizeof text);
    snprintf(start, sizeof start, "pid %d %s", (int)pid, how);
    cr_assert(!strncmp(text, start, strlen(start)), "%s, not %s", text, start);
    cr_assert(strstr(text, ", in FORWARD h.0 of step 3, since "), "%s", text);
}

Test(recorder, a_rank_that_is_stopped_or_dead_still_tells_what_it_was_doing, .timeout = 60) {
    int fd;
    cr_assert_eq(shd_recorder_file(1, &fd), SHERD_OK);
    shd_recorder *reader = open_as(fd, -1);
    for (int spins = 0; spins < 2; spins++) {
        pid_t pid = start_rank(fd, spins);
        cr_assert_gt(pid, 0);
        char text[512];
        /* A crowded machine may not let it run at once. */
        for (int look = 0; look == 0 || (spins && look < 50 && !strstr(text, "using the processor")); look++)
            shd_standing_print(reader, 0, 60, text, sizeof text);
        cr_assert_eq(strstr(text, "using the processor") != NULL, spins, "%s", text);
        expect_standing(reader, pid, spins ? "runs" : "sleeps in a system call");
        kill(pid, SIGSTOP);
        waitpid(pid, NULL, WUNTRACED);
        expect_standing(reader, pid, "is stopped");
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        expect_standing(reader, pid, "is dead");
    }
    shd_recorder_close(reader);
    close(fd);
}

Test(recorder, a_process_number_that_somebody_else_has_now_is_a_dead_rank) {
    shd_standing standing;
    int64_t born = shd_standing_born(getpid());
    cr_assert_gt(born, 0);
    shd_standing_look(getpid(), getpid(), born, &standing);
    cr_assert(standing.life == SHD_LIFE_RUNS || standing.life == SHD_LIFE_SLEEPS);
    shd_standing_look(getpid(), getpid(), born - 1, &standing);
    cr_assert_eq(standing.life, SHD_LIFE_GONE);
}

/* --- in a comm ---------------------------------------------------------------------------------------------------- */

typedef struct meeting {
    char name[64];
    int fd; /* of a recorder that ranks have from the start; -1: they have none */
} meeting;

/* Rank 0 reads, after an exchange, what all ranks have recorded; then all raise the alarm, one of whom is the first. */
static int exchanging_body(int32_t rank, int32_t world, void *argument) {
    const meeting *with = argument;
    shd_comm_config config = ranks_config(rank, world, with->name, 0);
    if (with->fd >= 0 && !(config.recorder = open_as(with->fd, rank))) return 1;
    shd_comm *comm = NULL;
    if (shd_comm_create(&config, &comm)) return 2;
    shd_recorder *recorder = shd_comm_recorder(comm);
    if (with->fd >= 0 && recorder != config.recorder) return 3;
    char all[RANKS_MAX];
    for (int n = 0; n < 5; n++)
        if (shd_comm_exchange(comm, "x", 1, all)) return 4;
    for (int32_t r = 0; r < world; r++) {
        shd_recorder_head head;
        if (!shd_recorder_look(recorder, r, &head) || head.count < 5) return 5;
        for (int64_t number = 0; number < 5; number++) {
            shd_record seen;
            if (!shd_recorder_read(recorder, r, number, &seen)) return 6;
            if (seen.kind != SHD_RECORD_EXCHANGE || seen.collective != number || seen.bytes != 1) return 7;
            if (number < 4 && seen.ended_ns < seen.started_ns) return 8;
        }
    }
    if (shd_recorder_alarmed(recorder, NULL) != -1) return 9;
    if (shd_comm_exchange(comm, "x", 1, all)) return 10;
    char mine[32], stands[SHD_RECORDER_TEXT_BYTES], expected[32];
    snprintf(mine, sizeof mine, "found by %d", rank);
    shd_recorder_alarm(recorder, mine);
    int32_t first = shd_recorder_alarmed(recorder, stands);
    snprintf(expected, sizeof expected, "found by %d", first);
    if (first < 0 || strcmp(stands, expected)) return 11;
    if (shd_comm_exchange(comm, "x", 1, all)) return 12;
    shd_comm_destroy(comm);
    shd_recorder_close(config.recorder);
    return 0;
}

Test(recorder, ranks_of_a_comm_can_read_each_other, .timeout = 60) {
    static const int32_t worlds[] = {1, 2, 3, 8};
    for (int w = 0; w < 4; w++)
        for (int style = AS_THREADS; style <= AS_PROCESSES; style++)
            for (int given = 0; given < 2; given++) {
                meeting with = {.fd = -1};
                ranks_new_name(with.name, sizeof with.name);
                if (given) cr_assert_eq(shd_recorder_file(worlds[w], &with.fd), SHERD_OK);
                ranks_result result = ranks_run((rank_style)style, worlds[w], exchanging_body, &with, 30);
                for (int32_t r = 0; r < worlds[w]; r++)
                    cr_assert_eq(result.code[r], 0, "world %d, rank %d: %d", worlds[w], r, result.code[r]);
                if (given) close(with.fd);
            }
}
