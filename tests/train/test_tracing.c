/* Traces from a recorder that the test itself has written; that they are those of jobs tests/system/test_seeing.py sees. */
#include "runtime/base/clock.h"
#include "runtime/base/memory.h"
#include "runtime/train/tracing.h"
#include "tests/io/make_job.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 2 };

/* A recorder for two ranks, both of which this process is. */
static shd_recorder *ranks[RANKS];

static void open_recorder(void) {
    int file;
    enter_fresh_folder();
    cr_assert_eq(shd_recorder_file(RANKS, &file), SHERD_OK);
    for (int32_t r = 0; r < RANKS; r++) {
        static char units[2][8] = {"wte", "h.0"};
        char *const names[] = {units[0], units[1]};
        cr_assert_eq(shd_recorder_open(file, r, &ranks[r]), SHERD_OK, "%s", sherd_last_error());
        for (int32_t op = 0; op < SHD_OPS; op++)
            shd_recorder_name_kind(ranks[r], SHD_RECORD_INSTRUCTION + op, shd_op_text((shd_op)op));
        shd_recorder_name_units(ranks[r], names, 2);
    }
    close(file);
}

static void close_recorder(void) {
    for (int32_t r = 0; r < RANKS; r++) shd_recorder_close(ranks[r]);
    leave_fresh_folder();
}

TestSuite(tracing, .init = open_recorder, .fini = close_recorder, .timeout = 30);

static const int64_t origin_ns = 1000000;

/* An instruction that was issued, begun and ended at so many microseconds. */
static void record(int32_t rank, shd_op op, shd_queue_id queue, int64_t step, int64_t queued, int64_t started,
                   int64_t ended) {
    const shd_record record = {.queued_ns = origin_ns + 1000 * queued,
                               .started_ns = origin_ns + 1000 * started,
                               .step = step,
                               .collective = SHD_RECORD_NO_COLLECTIVE,
                               .unit = 1,
                               .micro_step = 2,
                               .kind = (uint8_t)(SHD_RECORD_INSTRUCTION + op),
                               .queue = (uint8_t)queue,
                               .program = SHD_PROGRAM_TRAIN};
    int64_t number = shd_recorder_add(ranks[rank], &record);
    if (ended >= 0) shd_recorder_end(ranks[rank], number, origin_ns + 1000 * ended);
}

static void end_step(int64_t step) {
    for (int32_t r = 0; r < RANKS; r++) shd_recorder_enter(ranks[r], SHD_ACTIVITY_BOUNDARY, step);
}

static json_t *write_trace(int64_t step, int32_t *cut) {
    char path[64];
    size_t length;
    cr_assert_eq(shd_tracing_write(ranks[0], "log", step, cut), SHERD_OK, "%s", sherd_last_error());
    snprintf(path, sizeof path, "log/trace/step-%08lld.json", (long long)step);
    char *text = read_file(path, &length);
    json_t *trace = json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL);
    cr_assert_not_null(trace, "%s", text);
    free(text);
    return trace;
}

/* The slice of this name and rank; NULL: there is none. */
static const json_t *find(const json_t *trace, int32_t rank, const char *name) {
    size_t i;
    json_t *event;
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event) {
        bool slice = !strcmp(json_string_value(json_object_get(event, "ph")), "X");
        if (slice && !strcmp(json_string_value(json_object_get(event, "name")), name) &&
            json_integer_value(json_object_get(event, "pid")) == rank + 1)
            return event;
    }
    return NULL;
}

static double number(const json_t *event, const char *key) { return json_number_value(json_object_get(event, key)); }

Test(tracing, takes_the_chosen_steps_instructions_alone) {
    int32_t cut;
    record(0, SHD_OP_UPDATE, SHD_QUEUE_COMPUTE, 2, 0, 0, 10);
    record(0, SHD_OP_FORWARD, SHD_QUEUE_COMPUTE, 3, 20, 25, 40);
    record(0, SHD_OP_BACKWARD, SHD_QUEUE_COMPUTE, 3, 40, 40, -1); /* never ended */
    record(0, SHD_OP_NORM, SHD_QUEUE_COMPUTE, 4, 50, 50, 60);
    record(1, SHD_OP_REDUCE, SHD_QUEUE_REDUCE, 3, 15, 30, 33);
    end_step(4);
    json_t *trace = write_trace(4, &cut);
    cr_assert_eq(cut, 0);
    cr_assert_null(find(trace, 0, "UPDATE h.0"));
    cr_assert_null(find(trace, 0, "BACKWARD h.0"));
    cr_assert_null(find(trace, 0, "NORM h.0"));
    const json_t *forward = find(trace, 0, "FORWARD h.0"), *reduce = find(trace, 1, "REDUCE h.0");
    /* Time 0 is where the first of all was issued. */
    cr_assert_eq(number(forward, "ts"), 10);
    cr_assert_eq(number(forward, "dur"), 15);
    cr_assert_eq(number(json_object_get(forward, "args"), "micro_step"), 2);
    cr_assert_eq(number(reduce, "ts"), 15);
    cr_assert_eq(number(json_object_get(reduce, "args"), "waited_us"), 15);
    const json_t *wait = find(trace, 0, "wait before FORWARD h.0");
    cr_assert_eq(number(wait, "ts"), 5);
    cr_assert_eq(number(wait, "dur"), 4.999);
    cr_assert_null(find(trace, 1, "wait before REDUCE h.0"), "others wait side by side");
    json_decref(trace);
}

/* They are written one after the other by other threads, and a record only sees their ends. */
Test(tracing, shows_saves_from_when_they_could_begin) {
    int32_t cut;
    record(0, SHD_OP_SAVE, SHD_QUEUE_COPY, 0, 0, 100, 100);
    record(0, SHD_OP_SAVE, SHD_QUEUE_COPY, 0, 0, 150, 150);
    record(0, SHD_OP_SAVE, SHD_QUEUE_COPY, 0, 200, 230, 230);
    end_step(0);
    json_t *trace = write_trace(1, &cut), *event;
    const double expected[3][2] = {{0, 100}, {100.001, 49.999}, {200, 30}};
    size_t i, seen = 0;
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event) {
        if (strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0) continue;
        cr_expect_eq(number(event, "ts"), expected[seen][0]);
        cr_expect_eq(number(event, "dur"), expected[seen][1]);
        seen++;
    }
    cr_assert_eq(seen, 3u);
    json_decref(trace);
}

Test(tracing, says_of_which_ranks_the_beginning_is_gone) {
    int32_t cut;
    record(1, SHD_OP_FORWARD, SHD_QUEUE_COMPUTE, 0, 0, 0, 1);
    for (int64_t i = 0; i < SHD_RECORDER_EVENTS + 10; i++)
        record(0, SHD_OP_FORWARD, SHD_QUEUE_COMPUTE, 0, 2 * i, 2 * i, 2 * i + 1);
    end_step(0);
    json_t *trace = write_trace(1, &cut);
    cr_assert_eq(cut, 1);
    cr_assert_eq(number(json_object_get(trace, "otherData"), "cut_ranks"), 1);
    json_decref(trace);
    /* A full ring that still has the end of the step before has all of this one. */
    for (int64_t i = 0; i < SHD_RECORDER_EVENTS - 1; i++)
        record(0, SHD_OP_FORWARD, SHD_QUEUE_COMPUTE, 1, 20000 + 2 * i, 20000 + 2 * i, 20001 + 2 * i);
    end_step(1);
    json_decref(write_trace(2, &cut));
    cr_assert_eq(cut, 0);
}

Test(tracing, waits_for_a_rank_within_the_step_but_not_for_ever) {
    int32_t cut;
    record(0, SHD_OP_FORWARD, SHD_QUEUE_COMPUTE, 0, 0, 0, 1);
    end_step(0);
    shd_recorder_enter(ranks[1], SHD_ACTIVITY_STEP, 0);
    double begun_ms = shd_clock_ms();
    json_decref(write_trace(1, &cut));
    double spent_ms = shd_clock_ms() - begun_ms;
    cr_assert(spent_ms >= 1000 && spent_ms < 15000, "%g ms", spent_ms);
}
