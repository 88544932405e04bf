#include "runtime/train/job_setup.h"
#include "runtime/train/journal.h"
#include "tests/io/make_job.h"
#include "tests/support/file_limit.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char job_text[] = "name: tiny\n"
                               "model: {family: gpt2, vocab_size: 256, context: 8, d_model: 8, n_layer: 1, n_head: 1}\n"
                               "data: {train: t.txt, format: text}\n"
                               "train: {steps: 100, global_batch: 4, micro_batch: 1}\n"
                               "optimizer: {lr: 1.0e-3}\n"
                               "run: {dir: run}\n";

static shd_job *job;
static shd_plan *plan;
static shd_journal *journal;

TestSuite(journal, .init = enter_fresh_folder, .fini = leave_fresh_folder, .timeout = 30);

static void open_journal(const char *setting, const char *other, int64_t first_step) {
    const char *const settings[3] = {setting, other, NULL};
    cr_assert_eq(load_job(job_text, settings, &job), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_job_plan(job, 3, 0, &plan), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_journal_open(job, plan, first_step, &journal), SHERD_OK, "%s", sherd_last_error());
}

static void close_journal(void) {
    shd_journal_close(journal);
    shd_plan_destroy(plan);
    shd_job_destroy(job);
}

static void add(int64_t step, bool skipped, bool nonfinite) {
    shd_metrics_row row = {
        .step = step, .loss = 1, .items = "tokens", .tokens = 32, .compute_ms = 10, .skipped = skipped};
    shd_journal_add(journal, &row, nonfinite);
}

/* The n-th row of metrics.jsonl, from 0; the caller's. */
static json_t *row_at(int n) {
    size_t length;
    char *text = read_file("run/metrics.jsonl", &length), *line = text;
    for (; n > 0; n--) line = strchr(line, '\n') + 1;
    json_t *row = json_loads(line, JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES, NULL);
    cr_assert_not_null(row, "%s", line);
    free(text);
    return row;
}

static double number(int row, const char *key) {
    json_t *json = row_at(row);
    const json_t *value = json_object_get(json, key);
    double number = value ? json_number_value(value) : -1;
    json_decref(json);
    return number;
}

Test(journal, counts_over_rows_and_over_resumes) {
    open_journal(NULL, NULL, 0);
    add(0, false, false);
    add(1, true, true);
    add(2, true, false);
    close_journal();
    open_journal(NULL, NULL, 2);
    add(2, true, true);
    close_journal();
    cr_assert_eq(number(1, "skipped_steps"), 1);
    cr_assert_eq(number(1, "nonfinite_steps"), 1);
    cr_assert_eq(number(2, "skipped_steps"), 2, "the row that was moved aside does not count");
    cr_assert_eq(number(2, "nonfinite_steps"), 2);
}

Test(journal, looks_at_the_machine_in_the_first_row_and_then_once_a_second_of_those_that_are_due) {
    open_journal("log.every=3", NULL, 0);
    for (int64_t step = 0; step < 6; step++) add(step, false, false);
    usleep(1050000);
    for (int64_t step = 6; step < 12; step++) add(step, false, false);
    close_journal();
    for (int row = 0; row < 12; row++) {
        bool looked = number(row, "resident_bytes") > 0;
        cr_expect_eq(looked, row == 0 || row == 8, "row %d", row);
    }
    json_t *first = row_at(0), *memory = json_object_get(first, "memory_bytes");
    cr_assert_eq(json_object_size(memory), (size_t)SHD_CATEGORIES + 2);
    cr_assert_gt(json_number_value(json_object_get(memory, "parameters")), 0);
    json_decref(first);
}

/* 4 sequences of 8 tokens; with peaks of 2 TFLOP/s on each of 2 ranks. */
Test(journal, tells_the_work_of_the_model_against_the_peak_of_all_ranks) {
    open_journal("log.peak_tflops=2", "run.ranks=2", 0);
    add(0, false, false);
    const shd_model_config config = shd_job_model_config(job);
    double flop = 32 * shd_model_flop(&config);
    cr_assert_float_eq(number(0, "model_tflop_per_s"), flop / 10e-3 / 1e12, 1e-12);
    cr_assert_float_eq(number(0, "mfu"), flop / 10e-3 / 4e12, 1e-12);
    close_journal();
}

Test(journal, goes_on_without_tensorboard_when_that_cannot_be_written) {
    write_text("file", "");
    cr_assert_eq(system("mkdir run && cp file run/tensorboard"), 0);
    open_journal("log.tensorboard=true", NULL, 0);
    add(0, false, false);
    cr_assert_eq(shd_journal_status(journal), SHERD_OK);
    close_journal();
    cr_assert_eq(number(0, "tokens"), 32);
}

Test(journal, keeps_a_row_that_has_no_room_and_writes_it_at_the_end) {
    open_journal(NULL, NULL, 0);
    add(0, false, false);
    size_t length;
    free(read_file("run/metrics.jsonl", &length));
    limit_files((int)length + 10);
    add(1, false, false);
    add(2, false, false);
    limit_files(-1);
    cr_assert_eq(shd_journal_status(journal), SHERD_IO);
    cr_assert_eq(shd_journal_settle(journal, 3), SHERD_IO);
    cr_assert_not_null(strstr(sherd_last_error(), "row of step 1"), "%s", sherd_last_error());
    cr_assert_not_null(strstr(sherd_last_error(), "the row was written then"), "%s", sherd_last_error());
    cr_assert_eq(number(1, "step"), 1);
    cr_assert_eq(number(2, "step"), 2);
    close_journal();
}

Test(journal, takes_back_a_row_that_has_no_room_without_writing_it_and_says_so) {
    open_journal(NULL, NULL, 0);
    add(0, false, false);
    size_t length;
    free(read_file("run/metrics.jsonl", &length));
    limit_files((int)length + 10);
    add(1, true, true);
    sherd_status status = shd_journal_go_back(journal, 1);
    limit_files(-1);
    cr_assert_eq(status, SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_journal_status(journal), SHERD_IO, "it still is a reason to end the run");
    cr_assert_eq(shd_journal_settle(journal, 1), SHERD_IO);
    cr_assert_not_null(strstr(sherd_last_error(), "row of step 1"), "%s", sherd_last_error());
    cr_assert_not_null(strstr(sherd_last_error(), "taken back with its step"), "%s", sherd_last_error());
    size_t now;
    free(read_file("run/metrics.jsonl", &now));
    cr_assert_eq(now, length);
    close_journal();
}
