/* Rollbacks that meet more than the step they take back: a damaged checkpoint, and rows that cannot be written. */
#include "runtime/train/safety.h"
#include "tests/io/make_job.h"
#include "tests/io/npy_files.h"
#include "tests/train/checkpoint_values.h"
#include "tests/train/run_job.h"

#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

TestSuite(rollback, .init = enter_fresh_folder, .fini = leave_fresh_folder, .timeout = 120);

#define SET(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Step 4 is bad; checkpoints are of 2 and of 4 steps. */
enum { ROWS = 120, INPUTS = 4, BATCH = 6, STEPS = 8, BAD_STEP = 4, SAVED = 2, DAMAGED = 4 };

static const char job[] = "name: rollback\n"
                          "model: {family: mlp, inputs: 4, outputs: 2, hidden: 16, n_layer: 2, loss: mse}\n"
                          "data: {train: {inputs: x.npy, targets: y.npy}, shuffle: false}\n"
                          "train: {steps: 8, global_batch: 6, micro_batch: 1}\n"
                          "optimizer: {lr: 1.0e-2}\n"
                          "checkpoint: {every: 2, keep: 0}\n"
                          "run: {threads: 1, ranks: 2, on_nonfinite: rollback, timeout_s: 60, start_timeout_s: 60}\n";

/* All batches but `left_out` of them from SAVED on. With none left out, that of BAD_STEP and batch `second_bad`, if
 * that is not 0, overflow in the model. */
static void write_data(int left_out, int second_bad) {
    static float inputs[ROWS][INPUTS], targets[ROWS][2];
    char shape[2][32];
    int count = 0;
    for (int row = 0; row < ROWS; row++) {
        int batch = row / BATCH;
        if (batch >= SAVED && batch < SAVED + left_out) continue;
        bool bad = left_out == 0 && (batch == BAD_STEP || (second_bad > 0 && batch == second_bad));
        for (int i = 0; i < INPUTS; i++) inputs[count][i] = bad ? 3e38f : sinf((float)(row * 7 + i * 3));
        targets[count][0] = cosf((float)row);
        targets[count][1] = sinf((float)(row * 5));
        count++;
    }
    snprintf(shape[0], sizeof shape[0], "(%d, %d)", count, INPUTS);
    snprintf(shape[1], sizeof shape[1], "(%d, 2)", count);
    write_npy("x.npy", "<f4", shape[0], inputs, (size_t)count * sizeof inputs[0]);
    write_npy("y.npy", "<f4", shape[1], targets, (size_t)count * sizeof targets[0]);
}

static void expect_ok(const job_result *result) {
    for (int r = 0; r < 2; r++) cr_assert_eq(result->status[r], SHERD_OK, "rank %d: %s", r, result->cause);
}

static bool file_has(const char *path, const char *words) {
    size_t length;
    char *text = read_file(path, &length);
    bool found = strstr(text, words) != NULL;
    free(text);
    return found;
}

/* --- a damaged checkpoint ----------------------------------------------------------------------------------------- */

static int damages_left;
static bool shortens;

/* A bit of a value, which only loading finds; or a byte less, which a first look does. */
static void damage(int64_t step) {
    const char *path = "out/checkpoints/step-00000004/rank-00000.bin";
    if (step != DAMAGED || damages_left-- <= 0) return;
    FILE *file = fopen(path, "r+");
    fseek(file, 4096 + 10, SEEK_SET);
    int byte = fgetc(file);
    fseek(file, 4096 + 10, SEEK_SET);
    fputc(byte ^ 4, file);
    fseek(file, 0, SEEK_END);
    long length = ftell(file);
    fclose(file);
    if (shortens) cr_assert_eq(truncate(path, length - 1), 0);
}

static void run_damaged(int times, int64_t stop_rows, const char *const *settings, job_result *out) {
    damages_left = times;
    const job_events events = {.saved = damage, .stop_rows = stop_rows};
    run_job_watched(job, settings, &events, out);
}

/* Back from step 4 to the checkpoint of step 2: a run that never saw the data of steps 2, 3 and 4. */
static void check_damaged(void) {
    static job_result clean, back;
    write_data(BAD_STEP + 1 - SAVED, 0);
    run_job(job, SET("run.dir=clean"), &clean);
    expect_ok(&clean);
    write_data(0, 0);
    run_damaged(1, 0, SET("run.dir=out"), &back);
    expect_ok(&back);
    cr_assert_eq(back.step_count, BAD_STEP + 1 + STEPS - SAVED);
    for (int s = SAVED; s < STEPS; s++)
        cr_assert_eq(back.steps[BAD_STEP + 1 + s - SAVED].loss, clean.steps[s].loss, "step %d", s);
    expect_same_checkpoints("clean/checkpoints/step-00000004", "out/checkpoints/step-00000004");
    expect_same_checkpoints("clean/checkpoints/step-00000008", "out/checkpoints/step-00000008");
    cr_assert(file_has("out/events.jsonl", "back to the checkpoint of step 2, "));
    cr_assert_not(file_has("out/events.jsonl", "back to the checkpoint of step 4, "));
    cr_assert(file_has("out/alerts.jsonl", "\"action\":\"rollback\""));
}

Test(rollback, to_a_damaged_checkpoint_goes_to_the_one_before_and_says_so) { check_damaged(); }

Test(rollback, to_a_checkpoint_that_cannot_even_be_opened_does_so_too) {
    shortens = true;
    check_damaged();
}

/* A run that stopped after step 2, saved each, and another that goes on from there, in a folder of its own in which
 * there is a checkpoint of step 1. */
static void run_named(const char *every, job_result *back) {
    static job_result begun;
    write_data(0, 0);
    run_job_stopping(job, SET("run.dir=begun", "checkpoint.every=1"), 0, SAVED, &begun);
    expect_ok(&begun);
    cr_assert_eq(system("mkdir -p out/checkpoints && cp -r begun/checkpoints/step-00000001 out/checkpoints"), 0);
    run_damaged(1, 0, SET("run.dir=out", "checkpoint.resume=begun/checkpoints/step-00000002", every), back);
    expect_ok(back);
}

Test(rollback, of_a_run_that_was_told_where_to_go_on_from_ends_there) {
    static job_result clean, back;
    write_data(BAD_STEP + 1 - SAVED, 0);
    run_job(job, SET("run.dir=clean"), &clean);
    for (int i = 0; i < 2; i++) {
        shortens = i == 1;
        cr_assert_eq(system("rm -rf begun out"), 0);
        run_named("checkpoint.every=2", &back);
        cr_assert_eq(back.step_count, BAD_STEP + 1 - SAVED + STEPS - SAVED);
        for (int s = SAVED; s < STEPS; s++)
            cr_assert_eq(back.steps[BAD_STEP + 1 - SAVED + s - SAVED].loss, clean.steps[s].loss, "step %d", s);
        expect_same_checkpoints("clean/checkpoints/step-00000008", "out/checkpoints/step-00000008");
        cr_assert(file_has("out/events.jsonl", "back to the checkpoint of step 2, "));
    }
}

Test(rollback, of_a_run_that_was_told_where_to_go_on_from_prefers_checkpoints_of_its_own) {
    static job_result back;
    run_named("checkpoint.every=1", &back);
    cr_assert_eq(back.step_count, BAD_STEP + 1 - SAVED + STEPS - 3);
    cr_assert(file_has("out/events.jsonl", "back to the checkpoint of step 3, "));
}

/* Step 4 again is the last one of this run: its checkpoint of before is no reason not to save it. */
Test(rollback, from_a_damaged_checkpoint_saves_its_step_when_the_run_ends_there) {
    static job_result cut, rest, clean;
    write_data(BAD_STEP + 1 - SAVED, 0);
    run_job(job, SET("run.dir=clean"), &clean);
    write_data(0, 0);
    run_damaged(1, BAD_STEP + 2, SET("run.dir=out"), &cut);
    expect_ok(&cut);
    cr_assert_eq(cut.summary.step, DAMAGED);
    expect_same_checkpoints("clean/checkpoints/step-00000004", "out/checkpoints/step-00000004");
    run_job(job, SET("run.dir=out"), &rest);
    expect_ok(&rest);
    cr_assert_eq(rest.step_count, STEPS - DAMAGED);
    expect_same_checkpoints("clean/checkpoints/step-00000008", "out/checkpoints/step-00000008");
}

/* The checkpoint of step 4 is damaged each time: there is no new one between the two rollbacks. */
Test(rollback, to_the_same_checkpoint_is_in_a_row_whatever_damaged_one_was_saved_between) {
    static job_result result;
    write_data(0, BAD_STEP + 3);
    run_damaged(2, 0, SET("run.dir=out", "run.max_nonfinite=2"), &result);
    for (int r = 0; r < 2; r++) cr_assert_eq(result.status[r], SHERD_NUMERIC, "%s", result.cause);
    cr_assert(strstr(result.cause, "step 5/8: ") && strstr(result.cause, "2 in a row (run.max_nonfinite)"), "%s",
              result.cause);
    cr_assert(file_has("out/alerts.jsonl", "\"action\":\"abort\""));
    run_damaged(0, 0, SET("run.dir=other", "run.max_nonfinite=2"), &result);
    expect_ok(&result);
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

/* Rows of step 0, longer and longer, until none fits behind them. */
static void fill_rows(const char *path, int64_t bytes) {
    FILE *file = fopen(path, "a");
    cr_assert_not_null(file);
    for (int64_t left = bytes - ftell(file); left >= 100; left = bytes - ftell(file)) {
        fprintf(file, "{\"step\":0,%*s}\n", (left < 4000 ? (int)left : 4000) - 20, "\"x\":0");
        fflush(file);
    }
    fclose(file);
}

/* The row of step 3 does not fit; step 4 ends the run for it, and is taken back. */
Test(rollback, in_a_run_that_rows_end_does_not_forget_them) {
    static job_result result;
    write_data(0, 0);
    run_job_stopping(job, SET("run.dir=out"), 0, 2, &result);
    expect_ok(&result);
    cr_assert_eq(result.summary.step, 3);
    fill_rows("out/metrics.jsonl", 1 << 20);
    struct rlimit limit = {.rlim_cur = 1 << 20, .rlim_max = RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    run_job(job, SET("run.dir=out", "checkpoint.every=0"), &result);
    limit.rlim_cur = RLIM_INFINITY;
    setrlimit(RLIMIT_FSIZE, &limit);
    cr_assert_eq(result.step_count, 2);
    cr_assert(file_has("out/events.jsonl", "\"rollback\""));
    cr_assert_eq(result.status[0], SHERD_IO, "status %d: %s", result.status[0], result.cause);
    cr_assert_eq(result.status[1], SHERD_PEER);
    cr_assert_not_null(strstr(result.cause, "cannot append the row of step 3"), "%s", result.cause);
    run_job(job, SET("run.dir=out"), &result);
    expect_ok(&result);
    cr_assert_eq(result.summary.step, STEPS);
}
