/* Jobs that meet numbers that are not finite, and outliers: each policy, at every stage and in every precision, through a
 * sample in a data file that overflows in the model. */
#include "io/alerts.h"
#include "tests/io/make_job.h"
#include "tests/io/npy_files.h"
#include "tests/train/checkpoint_values.h"
#include "tests/train/run_job.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(safety, .init = enter_fresh_folder, .fini = leave_fresh_folder, .timeout = 240);

#define SET(...) ((const char *const[]){__VA_ARGS__, NULL})

enum { ROWS = 150, INPUTS = 4, BATCH = 6, STEPS = 8, BAD_STEP = 4, BAD_ROW = BAD_STEP * BATCH + 4 };

static const char job[] = "name: safety\n"
                          "model: {family: mlp, inputs: 4, outputs: 2, hidden: 32, n_layer: 2, loss: mse}\n"
                          "data: {train: {inputs: x.npy, targets: y.npy}, shuffle: false}\n"
                          "train: {steps: 8, global_batch: 6, micro_batch: 1,\n"
                          "        loss_scale: {initial: 1, minimum: 1, growth_interval: 1000}}\n"
                          "optimizer: {lr: 1.0e-2, min_lr: 1.0e-3, schedule: cosine, warmup_steps: 2}\n"
                          "checkpoint: {every: 0, keep: 0}\n"
                          "run: {threads: 1, timeout_s: 60, start_timeout_s: 60}\n";

/* --- data --------------------------------------------------------------------------------------------------------- */

/* Which rows are bad, or far off, and which are left out. */
typedef struct data {
    int first_bad, bad_count, bad_every;
    float bad; /* what their inputs are */
    int spike; /* the row with a large target; 0: none */
    int first_out, out_count;
} data;

static double noise(int row, int column) {
    uint32_t state = (uint32_t)(row * 31 + column + 1) * 2654435761u;
    state ^= state >> 15;
    state *= 2246822519u;
    state ^= state >> 13;
    return (double)state / 4294967296.0 * 2 - 1;
}

static bool is_bad(const data *made, int row) {
    int at = row - made->first_bad;
    return at >= 0 && at < made->bad_count && (made->bad_every == 0 || at % made->bad_every == 0);
}

static void write_data(const data *made) {
    static float inputs[ROWS][INPUTS], targets[ROWS][2];
    char shape[2][32];
    int count = 0;
    for (int row = 0; row < ROWS; row++) {
        if (row >= made->first_out && row < made->first_out + made->out_count) continue;
        for (int i = 0; i < INPUTS; i++) inputs[count][i] = is_bad(made, row) ? made->bad : (float)noise(row, i);
        targets[count][0] = made->spike > 0 && row == made->spike ? 1e4f : (float)(noise(row, 0) - noise(row, 1));
        targets[count][1] = (float)noise(row, 2);
        count++;
    }
    snprintf(shape[0], sizeof shape[0], "(%d, %d)", count, INPUTS);
    snprintf(shape[1], sizeof shape[1], "(%d, 2)", count);
    write_npy("x.npy", "<f4", shape[0], inputs, (size_t)count * sizeof inputs[0]);
    write_npy("y.npy", "<f4", shape[1], targets, (size_t)count * sizeof targets[0]);
}

/* Inputs that overflow in the model in this precision, and are good as data. */
static float bad_value(const char *precision) { return strstr(precision, "fp16") ? 60000.0f : 3e38f; }

/* --- what a run leaves -------------------------------------------------------------------------------------------- */

static void expect_ok(const job_result *result, const char *what) {
    for (int r = 0; r < MAX_RANKS; r++)
        cr_assert_eq(result->status[r], SHERD_OK, "%s, rank %d: status %d; %s", what, r, result->status[r],
                     result->cause);
}

/* The file's objects, one a line, parsed strictly; their number. */
static int read_lines(const char *path, json_t *lines[], int most) {
    size_t length;
    int count = 0;
    if (access(path, F_OK) != 0) return 0;
    char *text = read_file(path, &length);
    for (char *at = text, *end; (end = strchr(at, '\n')); at = end + 1) {
        json_error_t error;
        cr_assert_lt(count, most);
        lines[count] = json_loadb(at, (size_t)(end - at), JSON_REJECT_DUPLICATES, &error);
        cr_assert_not_null(lines[count], "%s: %s: %.*s", path, error.text, (int)(end - at), at);
        count++;
    }
    free(text);
    return count;
}

static int64_t number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    cr_assert(json_is_integer(value), "no %s", key);
    return json_integer_value(value);
}

static const char *word(const json_t *object, const char *key) {
    const char *value = json_string_value(json_object_get(object, key));
    cr_assert_not_null(value, "no %s", key);
    return value;
}

/* Sample i of a batch is micro-batch i, which rank i mod N runs at micro-step i ÷ N. */
static void expect_batch(const json_t *alert, int64_t first, int ranks) {
    const json_t *batch = json_object_get(alert, "batch");
    cr_assert_eq(json_array_size(batch), BATCH);
    for (int i = 0; i < BATCH; i++) {
        const json_t *example = json_array_get(batch, (size_t)i);
        const char *file = word(example, "file"), *name = strrchr(file, '/');
        cr_assert(file[0] == '/' && strcmp(name, "/x.npy") == 0, "%s", file);
        cr_assert_eq(number(example, "number"), first + i);
        cr_assert_eq(number(example, "row"), first + i);
        cr_assert_eq(number(example, "rank"), i % ranks);
        cr_assert_eq(number(example, "micro_step"), i / ranks);
    }
}

static void expect_alert(const char *dir, const char *action, int ranks) {
    char path[96];
    json_t *lines[4];
    snprintf(path, sizeof path, "%s/alerts.jsonl", dir);
    cr_assert_eq(read_lines(path, lines, 4), 1, "%s", path);
    cr_assert_eq(number(lines[0], "step"), BAD_STEP);
    cr_assert_str_eq(word(lines[0], "kind"), "nonfinite");
    cr_assert_str_eq(word(lines[0], "action"), action);
    cr_assert_eq(number(lines[0], "rank"), 4 % ranks);
    cr_assert_eq(number(lines[0], "micro_step"), 4 / ranks);
    cr_assert_eq(number(lines[0], "in_row"), 1);
    expect_batch(lines[0], BAD_STEP * BATCH, ranks);
    json_decref(lines[0]);
}

static bool same(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

/* Steps [first, first + count) of one run are steps [other_first, …) of another one. */
static void expect_same_steps(const job_result *a, int64_t first, const job_result *b, int64_t other_first,
                              int64_t count, const char *what) {
    cr_assert(a->step_count >= first + count && b->step_count >= other_first + count, "%s: %d and %d rows", what,
              (int)a->step_count, (int)b->step_count);
    for (int64_t i = 0; i < count; i++) {
        const shd_train_step *x = &a->steps[first + i], *y = &b->steps[other_first + i];
        cr_assert(x->step == y->step && same(x->loss, y->loss) && same(x->grad_norm, y->grad_norm) && x->lr == y->lr &&
                      x->skipped == y->skipped,
                  "%s: step %d: loss %.17g and %.17g, lr %g and %g", what, (int)x->step, x->loss, y->loss, x->lr,
                  y->lr);
    }
}

/* --- every policy, stage, precision, number of ranks -------------------------------------------------------------- */

static const char *const precisions[] = {"train.precision=fp32", "train.precision=bf16", "train.precision=fp16"};
static const char *const rank_settings[] = {"run.ranks=1", "run.ranks=2", "run.ranks=3"};
static const char *const stages[] = {"shard.stage=0", "shard.stage=1", "shard.stage=2", "shard.stage=3"};

typedef struct place {
    const char *precision, *ranks, *stage, *clip, *states;
    int rank_count;
    char name[64];
} place;

static void everywhere(const char *precision, void (*check)(const place *at)) {
    for (int i = 0; i < 12; i++) {
        place at = {.precision = precision,
                    .ranks = rank_settings[i % 3],
                    .stage = stages[i / 3],
                    .clip = i % 2 ? "train.clip=0" : "train.clip=1.0",
                    .states = i % 4 == 3 ? "optimizer.state_dtype=int8" : "optimizer.state_dtype=fp32",
                    .rank_count = i % 3 + 1};
        snprintf(at.name, sizeof at.name, "%s-%d-%d", precision + 16, i % 3 + 1, i / 3);
        check(&at);
    }
}

/* The bad step leaves every bit of weights and moments, and the count of updates; cut right behind it, the run goes on as
 * if it had not been cut. */
static void check_skip(const place *at) {
    static job_result whole, cut, rest;
    char dir[80], log[160], checkpoints[160], one[200], other[200];
    snprintf(dir, sizeof dir, "run.dir=skip-%s", at->name);
    run_job(job, SET(at->precision, at->ranks, at->stage, at->clip, at->states, "run.on_nonfinite=skip", dir), &whole);
    expect_ok(&whole, at->name);
    for (int64_t s = 0; s < STEPS; s++) cr_assert_eq(whole.steps[s].skipped, s == BAD_STEP, "%s", at->name);
    expect_alert(dir + 8, "skip", at->rank_count);
    snprintf(checkpoints, sizeof checkpoints, "checkpoint.dir=cut-%s", at->name);
    snprintf(log, sizeof log, "log.dir=cut-%s", at->name);
    for (int part = 0; part < 2; part++) {
        const char *const *settings =
            SET(at->precision, at->ranks, at->stage, at->clip, at->states, "checkpoint.every=4", checkpoints, log);
        if (part == 0)
            run_job_stopping(job, settings, 0, BAD_STEP, &cut);
        else
            run_job(job, settings, &rest);
        expect_ok(part ? &rest : &cut, at->name);
    }
    cr_assert_eq(cut.summary.step, BAD_STEP + 1);
    snprintf(one, sizeof one, "%s/step-%08d", checkpoints + 15, BAD_STEP);
    snprintf(other, sizeof other, "%s/step-%08d", checkpoints + 15, BAD_STEP + 1);
    expect_same_checkpoints(one, other);
    expect_same_steps(&whole, BAD_STEP + 1, &rest, 0, STEPS - BAD_STEP - 1, at->name);
    snprintf(one, sizeof one, "%s/checkpoints/step-%08d", dir + 8, STEPS);
    snprintf(other, sizeof other, "%s/step-%08d", checkpoints + 15, STEPS);
    expect_same_checkpoints(one, other);
}

static void skip_everywhere(const char *precision) {
    write_data(&(data){.first_bad = BAD_ROW, .bad_count = 1, .bad = bad_value(precision)});
    everywhere(precision, check_skip);
}
Test(safety, a_skipped_step_leaves_every_bit_in_fp32) { skip_everywhere(precisions[0]); }
Test(safety, a_skipped_step_leaves_every_bit_in_bf16) { skip_everywhere(precisions[1]); }
Test(safety, a_skipped_step_leaves_every_bit_in_fp16) { skip_everywhere(precisions[2]); }

/* Back from step 4 to the checkpoint of step 3, and on with step 5's data: what a run has that never saw the data of
 * steps 3 and 4. */
static void check_rollback(const place *at) {
    static job_result clean, back;
    char dir[80], one[160];
    enum { SAVED = 3 };
    snprintf(dir, sizeof dir, "run.dir=clean-%s", at->name);
    write_data(&(data){.first_out = SAVED * BATCH, .out_count = (BAD_STEP + 1 - SAVED) * BATCH});
    run_job(job, SET(at->precision, at->ranks, at->stage, at->clip, at->states, dir, "checkpoint.every=3"), &clean);
    expect_ok(&clean, at->name);
    snprintf(one, sizeof one, "%s/checkpoints/step-%08d", dir + 8, STEPS);
    write_data(&(data){.first_bad = BAD_ROW, .bad_count = 1, .bad = bad_value(at->precision)});
    char other[160], back_dir[80];
    snprintf(back_dir, sizeof back_dir, "run.dir=back-%s", at->name);
    run_job(job,
            SET(at->precision, at->ranks, at->stage, at->clip, at->states, back_dir, "checkpoint.every=3",
                "run.on_nonfinite=rollback"),
            &back);
    expect_ok(&back, at->name);
    cr_assert_eq(back.step_count, STEPS + BAD_STEP + 1 - SAVED);
    expect_same_steps(&back, 0, &clean, 0, SAVED, at->name);
    expect_same_steps(&back, BAD_STEP + 1, &clean, SAVED, STEPS - SAVED, at->name);
    snprintf(other, sizeof other, "%s/checkpoints/step-%08d", back_dir + 8, STEPS);
    expect_same_checkpoints(one, other);
    expect_alert(back_dir + 8, "rollback", at->rank_count);
    json_t *rows[STEPS + 1], *aside[4];
    snprintf(other, sizeof other, "%s/metrics.jsonl", back_dir + 8);
    cr_assert_eq(read_lines(other, rows, STEPS + 1), STEPS);
    for (int s = 0; s < STEPS; s++) {
        cr_assert_eq(number(rows[s], "step"), s);
        cr_assert_eq(number(rows[s], "samples_seen"), (s + 1) * BATCH);
        cr_assert_eq(json_real_value(json_object_get(rows[s], "grad_norm")), clean.steps[s].grad_norm);
        json_decref(rows[s]);
    }
    snprintf(other, sizeof other, "%s/metrics.jsonl.1", back_dir + 8);
    cr_assert_eq(read_lines(other, aside, 4), 2);
    cr_assert_eq(number(aside[0], "step"), SAVED);
    cr_assert_eq(number(aside[1], "step"), BAD_STEP);
    json_decref(aside[0]);
    json_decref(aside[1]);
}

Test(safety, a_rollback_is_a_run_that_never_met_the_data_in_fp32) { everywhere(precisions[0], check_rollback); }
Test(safety, a_rollback_is_a_run_that_never_met_the_data_in_bf16) { everywhere(precisions[1], check_rollback); }
Test(safety, a_rollback_is_a_run_that_never_met_the_data_in_fp16) { everywhere(precisions[2], check_rollback); }

/* The step that ends the run has its row, like those before it. */
static void expect_last_row(const char *dir, const job_result *result) {
    char path[96];
    json_t *rows[STEPS];
    cr_assert_eq(result->step_count, BAD_STEP + 1);
    cr_assert(isnan(result->steps[BAD_STEP].loss) || isinf(result->steps[BAD_STEP].loss));
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    cr_assert_eq(read_lines(path, rows, STEPS), BAD_STEP + 1);
    const json_t *last = rows[BAD_STEP];
    cr_assert_eq(number(last, "step"), BAD_STEP);
    cr_assert(json_is_string(json_object_get(last, "loss")) || json_is_string(json_object_get(last, "grad_norm")));
    cr_assert_eq(number(last, "nonfinite_steps"), 1);
    cr_assert_eq(number(last, "samples_seen"), (BAD_STEP + 1) * BATCH);
    cr_assert_gt(json_number_value(json_object_get(last, "compute_ms")), 0);
    for (int i = 0; i <= BAD_STEP; i++) json_decref(rows[i]);
}

static void check_abort(const place *at) {
    static job_result result;
    char dir[80], where[64];
    snprintf(dir, sizeof dir, "run.dir=abort-%s", at->name);
    run_job(job, SET(at->precision, at->ranks, at->stage, at->clip, at->states, dir, "run.on_nonfinite=abort"),
            &result);
    for (int r = 0; r < at->rank_count; r++) cr_assert_eq(result.status[r], SHERD_NUMERIC, "%s, rank %d", at->name, r);
    expect_last_row(dir + 8, &result);
    for (int64_t i = 0; i < result.step_count; i++) cr_assert_eq(result.steps[i].bad, i == BAD_STEP, "%s", at->name);
    cr_assert_eq(strncmp(result.cause, "step 5/8: ", 10), 0, "%s", result.cause);
    snprintf(where, sizeof where, "first in rank %d's ", 4 % at->rank_count);
    cr_assert(strstr(result.cause, where), "%s", result.cause);
    snprintf(where, sizeof where, "in micro-step %d;", 4 / at->rank_count);
    cr_assert(strstr(result.cause, where), "%s", result.cause);
    expect_alert(dir + 8, "abort", at->rank_count);
}

Test(safety, an_abort_names_step_and_rank_in_every_precision) {
    for (int p = 0; p < 3; p++) {
        write_data(&(data){.first_bad = BAD_ROW, .bad_count = 1, .bad = bad_value(precisions[p])});
        everywhere(precisions[p], check_abort);
    }
}

/* --- how often ---------------------------------------------------------------------------------------------------- */

Test(safety, so_many_skipped_steps_in_a_row_end_the_run) {
    static job_result result;
    write_data(&(data){.first_bad = BAD_ROW, .bad_count = ROWS, .bad = 3e38f});
    run_job(job, SET("run.ranks=2", "run.max_nonfinite=3", "run.dir=out"), &result);
    for (int r = 0; r < 2; r++) cr_assert_eq(result.status[r], SHERD_NUMERIC);
    cr_assert_eq(strncmp(result.cause, "step 7/8: ", 10), 0, "%s", result.cause);
    cr_assert(strstr(result.cause, "3 in a row (run.max_nonfinite)"), "%s", result.cause);
    cr_assert_eq(result.step_count, 7);
    json_t *alerts[8];
    cr_assert_eq(read_lines("out/alerts.jsonl", alerts, 8), 3);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(number(alerts[i], "in_row"), i + 1);
        cr_assert_str_eq(word(alerts[i], "action"), i < 2 ? "skip" : "abort");
        json_decref(alerts[i]);
    }
}

/* Steps 0, 2, 4 and 6 are bad. A stop and a resume in between change nothing. */
Test(safety, good_steps_in_between_start_the_count_anew) {
    static job_result result;
    write_data(&(data){.first_bad = 3, .bad_count = ROWS, .bad_every = 2 * BATCH, .bad = 3e38f});
    run_job(job, SET("run.max_nonfinite=2", "run.dir=out"), &result);
    expect_ok(&result, "every other step");
    cr_assert_eq(result.summary.skipped_count, 4);
    write_data(&(data){.first_bad = BAD_ROW, .bad_count = ROWS, .bad = 3e38f});
    run_job_stopping(job, SET("run.max_nonfinite=3", "run.dir=cut"), 0, 5, &result);
    expect_ok(&result, "cut");
    cr_assert_eq(result.summary.step, 6);
    run_job(job, SET("run.max_nonfinite=3", "run.dir=cut"), &result);
    cr_assert_eq(result.status[0], SHERD_NUMERIC);
    cr_assert_eq(strncmp(result.cause, "step 7/8: ", 10), 0, "the count went on over the resume: %s", result.cause);
}

/* Two rollbacks to the same checkpoint are in a row, whatever good steps lie between; a new checkpoint ends the row. */
Test(safety, rollbacks_without_a_new_checkpoint_are_in_a_row) {
    static job_result result;
    write_data(&(data){.first_bad = BAD_ROW, .bad_count = 2 * BATCH + 1, .bad_every = 2 * BATCH, .bad = 3e38f});
    const char *all[] = {"run.on_nonfinite=rollback", "run.ranks=2", "checkpoint.every=3"};
    run_job(job, SET(all[0], all[1], all[2], "run.max_nonfinite=2", "run.dir=ends"), &result);
    for (int r = 0; r < 2; r++) cr_assert_eq(result.status[r], SHERD_NUMERIC);
    cr_assert(strstr(result.cause, "2 in a row (run.max_nonfinite)"), "%s", result.cause);
    run_job(job, SET(all[0], all[1], all[2], "run.max_nonfinite=3", "run.dir=out"), &result);
    expect_ok(&result, "three");
    run_job(job, SET(all[0], all[1], "checkpoint.every=1", "run.max_nonfinite=2", "run.dir=often"), &result);
    expect_ok(&result, "checkpoints in between");
    cr_assert_eq(result.summary.skipped_count, 2);
}

/* Nothing is saved when step 4 is bad: on from the initial weights with the data of step 5. */
Test(safety, a_rollback_without_a_checkpoint_starts_anew_behind_the_data) {
    static job_result clean, back;
    write_data(&(data){.first_out = 0, .out_count = (BAD_STEP + 1) * BATCH});
    run_job(job, SET("run.dir=clean", "run.ranks=3"), &clean);
    expect_ok(&clean, "clean");
    write_data(&(data){.first_bad = BAD_ROW, .bad_count = 1, .bad = 3e38f});
    run_job(job, SET("run.dir=out", "run.ranks=3", "run.on_nonfinite=rollback"), &back);
    expect_ok(&back, "back");
    expect_same_steps(&back, BAD_STEP + 1, &clean, 0, STEPS, "from the start");
}

Test(safety, a_rollback_may_lower_the_learning_rate_for_good) {
    static job_result plain, back, rest;
    write_data(&(data){.first_bad = BAD_ROW, .bad_count = 1, .bad = 3e38f});
    const char *all[] = {"run.on_nonfinite=rollback", "run.ranks=2", "checkpoint.every=3"};
    run_job(job, SET(all[0], all[1], all[2], "run.dir=plain"), &plain);
    run_job(job, SET(all[0], all[1], all[2], "run.rollback_lr_factor=0.25", "run.dir=out"), &back);
    expect_ok(&plain, "plain");
    expect_ok(&back, "back");
    for (int64_t s = 0; s < plain.step_count; s++)
        cr_assert_eq(back.steps[s].lr, (s <= BAD_STEP ? 1 : 0.25) * plain.steps[s].lr, "row %d", (int)s);
    /* The first rates differ, so what follows does too. */
    cr_assert_neq(back.steps[BAD_STEP + 2].loss, plain.steps[BAD_STEP + 2].loss);
    run_job_stopping(job, SET(all[0], all[1], all[2], "run.rollback_lr_factor=0.25", "run.dir=cut"), 0, BAD_STEP + 1,
                     &rest);
    expect_ok(&rest, "cut");
    run_job(job, SET(all[0], all[1], all[2], "run.rollback_lr_factor=0.25", "run.dir=cut"), &rest);
    expect_ok(&rest, "rest");
    expect_same_steps(&rest, 0, &back, back.step_count - rest.step_count, rest.step_count, "after a resume");
}

/* The scale falls from 2^40 until gradients fit: that is fp16's affair. */
Test(safety, overflows_that_a_smaller_scale_mends_are_no_alerts) {
    static job_result result;
    write_data(&(data){0});
    run_job(job,
            SET("train.precision=fp16", "train.loss_scale.initial=1099511627776", "run.on_nonfinite=abort",
                "train.steps=40", "run.max_nonfinite=1", "run.dir=out", "run.ranks=2"),
            &result);
    expect_ok(&result, "fp16");
    cr_assert(result.steps[0].skipped && !result.steps[39].skipped);
    cr_assert_gt(result.summary.skipped_count, 2);
    cr_assert_neq(access("out/alerts.jsonl", F_OK), 0);
}

/* --- outliers ----------------------------------------------------------------------------------------------------- */

enum { OUTLIER_STEP = 12, OUTLIER_STEPS = 16, OUTLIER_SAVED = 10 };

static void run_outlier(const char *policy, const char *dir, int64_t cut, job_result *out) {
    const char *const *settings =
        SET("run.outlier_zscore=50", "run.outlier_window=8", policy, "train.steps=16", "checkpoint.every=5",
            "run.ranks=2", "shard.stage=2", "optimizer.schedule=constant", "optimizer.min_lr=0", dir);
    if (cut > 0)
        run_job_stopping(job, settings, 0, cut - 1, out);
    else
        run_job(job, settings, out);
}

static json_t *only_alert(const char *path, const char *action) {
    json_t *lines[4];
    cr_assert_eq(read_lines(path, lines, 4), 1, "%s", path);
    cr_assert_eq(number(lines[0], "step"), OUTLIER_STEP);
    cr_assert_str_eq(word(lines[0], "kind"), "outlier");
    cr_assert_str_eq(word(lines[0], "action"), action);
    cr_assert_gt(json_real_value(json_object_get(lines[0], "loss_zscore")), 50);
    expect_batch(lines[0], OUTLIER_STEP * BATCH, 2);
    return lines[0];
}

Test(safety, an_outlier_is_let_pass_left_out_or_the_end_as_the_job_says) {
    static job_result warned, left_out, ended, rest;
    write_data(&(data){.spike = OUTLIER_STEP * BATCH + 1});
    run_outlier("run.on_outlier=warn", "run.dir=warn", 0, &warned);
    run_outlier("run.on_outlier=skip", "run.dir=skip", 0, &left_out);
    run_outlier("run.on_outlier=abort", "run.dir=abort", 0, &ended);
    expect_ok(&warned, "warn");
    expect_ok(&left_out, "skip");
    json_decref(only_alert("warn/alerts.jsonl", "warn"));
    json_decref(only_alert("skip/alerts.jsonl", "skip"));
    json_decref(only_alert("abort/alerts.jsonl", "abort"));
    for (int s = 0; s < OUTLIER_STEPS; s++) {
        cr_assert_not(warned.steps[s].skipped);
        cr_assert_eq(left_out.steps[s].skipped, s == OUTLIER_STEP);
    }
    expect_same_steps(&warned, 0, &left_out, 0, OUTLIER_STEP, "until then");
    cr_assert_neq(warned.steps[OUTLIER_STEP + 1].loss, left_out.steps[OUTLIER_STEP + 1].loss);
    for (int r = 0; r < 2; r++) cr_assert_eq(ended.status[r], SHERD_NUMERIC);
    cr_assert_eq(strncmp(ended.cause, "step 13/16: loss ", 17), 0, "%s", ended.cause);
    cr_assert(strstr(ended.cause, "stand out from the last 8 steps"), "%s", ended.cause);
    /* The window goes on over a resume right before it. */
    run_outlier("run.on_outlier=skip", "run.dir=cut", OUTLIER_STEP, &rest);
    expect_ok(&rest, "cut");
    cr_assert_eq(rest.summary.step, OUTLIER_STEP);
    run_outlier("run.on_outlier=skip", "run.dir=cut", 0, &rest);
    expect_ok(&rest, "rest");
    expect_same_steps(&left_out, OUTLIER_STEP, &rest, 0, OUTLIER_STEPS - OUTLIER_STEP, "after a resume");
}

Test(safety, an_outlier_may_be_gone_back_for) {
    static job_result clean, back;
    write_data(&(data){.first_out = OUTLIER_SAVED * BATCH, .out_count = (OUTLIER_STEP + 1 - OUTLIER_SAVED) * BATCH});
    run_outlier("run.on_outlier=rollback", "run.dir=clean", 0, &clean);
    expect_ok(&clean, "clean");
    cr_assert_neq(access("clean/alerts.jsonl", F_OK), 0);
    write_data(&(data){.spike = OUTLIER_STEP * BATCH + 1});
    run_outlier("run.on_outlier=rollback", "run.dir=back", 0, &back);
    expect_ok(&back, "back");
    json_decref(only_alert("back/alerts.jsonl", "rollback"));
    expect_same_steps(&back, OUTLIER_STEP + 1, &clean, OUTLIER_SAVED, OUTLIER_STEPS - OUTLIER_SAVED, "back");
    expect_same_checkpoints("clean/checkpoints/step-00000016", "back/checkpoints/step-00000016");
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

static shd_alert_example odd_example(void *user, int64_t i) {
    return (shd_alert_example){.number = i, .file = user, .index = 7, .token = 56};
}

/* Names that no JSON text may hold as they are, and numbers that it has none for. */
Test(safety, alerts_are_strict_json_whatever_they_hold) {
    char file[] = "a\"b\\c\n\x01\xff\xc3\xa9.bin";
    const shd_alert alert = {.step = 3,
                             .action = "skip",
                             .loss = -INFINITY,
                             .grad_norm = NAN,
                             .param_norm = 0.1,
                             .rank = 2,
                             .micro_step = 1,
                             .unit = "h.0\"",
                             .in_row = 1,
                             .example_count = 2000,
                             .example = odd_example,
                             .user = file};
    json_t *lines[3];
    write_text("alerts.jsonl", "{\"torn\": ");
    cr_assert_eq(shd_alert_add(".", &alert), SHERD_OK, "%s", sherd_last_error());
    write_text("rest", "");
    size_t length;
    char *text = read_file("alerts.jsonl", &length);
    cr_assert_eq(strncmp(text, "{\"torn\": \n{", 11), 0);
    write_text("alerts.jsonl", text + 10);
    free(text);
    cr_assert_eq(shd_alert_add(".", &alert), SHERD_OK);
    cr_assert_eq(read_lines("alerts.jsonl", lines, 3), 2);
    cr_assert_str_eq(word(lines[0], "loss"), "-inf");
    cr_assert_str_eq(word(lines[0], "grad_norm"), "nan");
    cr_assert_str_eq(word(lines[0], "unit"), "h.0\"");
    const json_t *batch = json_object_get(lines[1], "batch");
    cr_assert_eq(json_array_size(batch), 2000);
    cr_assert_eq(number(json_array_get(batch, 1999), "number"), 1999);
    cr_assert_eq(number(json_array_get(batch, 1999), "sequence"), 7);
    cr_assert_eq(number(json_array_get(batch, 1999), "token"), 56);
    json_decref(lines[0]);
    json_decref(lines[1]);
}

/* --- slow ranks --------------------------------------------------------------------------------------------------- */

Test(safety, a_slow_rank_is_named_once_in_the_events) {
    static job_result result;
    json_t *lines[64];
    write_data(&(data){0});
    run_job_slowly(job, SET("run.ranks=3", "run.straggler_steps=4", "train.steps=14", "run.dir=out"), 1, 20, &result);
    expect_ok(&result, "slow");
    int count = read_lines("out/events.jsonl", lines, 64), named = 0;
    for (int i = 0; i < count; i++) {
        if (strcmp(word(lines[i], "event"), "straggler") == 0) {
            named++;
            cr_assert_eq(number(lines[i], "rank"), 1);
            cr_assert(strstr(word(lines[i], "text"), "rank 1 takes "), "%s", word(lines[i], "text"));
        }
        json_decref(lines[i]);
    }
    cr_assert_eq(named, 1);
}
