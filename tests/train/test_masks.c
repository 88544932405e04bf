/* Dropout in jobs: the same masks, and so the same bits, however a job is run. */
#include "tests/io/make_job.h"
#include "tests/train/run_job.h"

#include <criterion/criterion.h>
#include <math.h>
#include <sherd/log.h>
#include <stdio.h>
#include <string.h>

static void prepare(void) {
    enter_fresh_folder();
    make_tokens("tokens.u16", 2000, 1);
    make_tokens("val.u16", 700, 2);
}

TestSuite(masks, .init = prepare, .fini = leave_fresh_folder, .timeout = 120);

#define FIXED    "model.dropout=0.2", "checkpoint.resume=never", "train.steps=6"
#define SET(...) ((const char *const[]){__VA_ARGS__, NULL})

static void run_good(const char *job, const char *const *settings, job_result *out) {
    run_job(job, settings, out);
    for (int r = 0; r < MAX_RANKS; r++) cr_assert_eq(out->status[r], SHERD_OK, "%s: %s", settings[0], out->cause);
}

static void expect_same(const job_result *a, const job_result *b, const char *what) {
    cr_assert(a->step_count > 0 && a->step_count == b->step_count, "%s", what);
    for (int64_t s = 0; s < a->step_count; s++)
        cr_assert(a->steps[s].loss == b->steps[s].loss && a->steps[s].grad_norm == b->steps[s].grad_norm,
                  "%s, step %d: %.17g and %.17g", what, (int)s, a->steps[s].loss, b->steps[s].loss);
}

static const char llama_job[] = "name: small\n"
                                "model: {family: llama, vocab_size: 60, context: 8, d_model: 16, n_layer: 2, n_head: 4,"
                                " n_kv_head: 2, d_ff: 24}\n"
                                "data: {train: tokens.u16}\n"
                                "train: {steps: 12, global_batch: 12, micro_batch: 1}\n"
                                "optimizer: {lr: 1.0e-2, warmup_steps: 3}\n"
                                "checkpoint: {dir: ckpt, every: 0}\n"
                                "log: {dir: log}\n"
                                "run: {threads: 1, timeout_s: 30, start_timeout_s: 30}\n";

static void check_ranks(const char *job) {
    static const char *const ranks[] = {"run.ranks=1", "run.ranks=2", "run.ranks=4"};
    static const char *const stages[] = {"shard.stage=0", "shard.stage=1", "shard.stage=2", "shard.stage=3"};
    job_result first, other, without;
    run_good(job, SET("checkpoint.resume=never", "train.steps=6"), &without);
    for (int i = 0; i < 12; i++) {
        run_good(job, SET(FIXED, ranks[i / 4], stages[i % 4]), i ? &other : &first);
        if (i > 0) expect_same(&first, &other, ranks[i / 4]);
    }
    cr_assert_neq(first.steps[0].loss, without.steps[0].loss);
    cr_assert_float_eq(first.steps[0].loss, without.steps[0].loss, 0.1, "the first loss is %g, without dropout %g",
                       first.steps[0].loss, without.steps[0].loss);
}

Test(masks, of_gpt2_are_the_same_on_any_number_of_ranks_at_every_stage) { check_ranks(small_job); }
Test(masks, of_llama_are_the_same_on_any_number_of_ranks_at_every_stage) { check_ranks(llama_job); }

Test(masks, are_the_same_when_activations_are_recomputed) {
    static const char *const choices[] = {"train.recompute=none", "train.recompute=unit", "train.recompute=attention"};
    static const char *const ranks[] = {"run.ranks=1", "run.ranks=3"};
    const char *const jobs[] = {small_job, llama_job};
    for (int j = 0; j < 2; j++) {
        job_result first, other;
        for (int i = 0; i < 6; i++) {
            run_good(jobs[j], SET(FIXED, ranks[i / 3], choices[i % 3]), i ? &other : &first);
            if (i > 0) expect_same(&first, &other, choices[i % 3]);
        }
    }
}

Test(masks, are_the_same_in_16_bits) {
    static const char *const precisions[] = {"train.precision=bf16", "train.precision=fp16"};
    static const char *const ways[][3] = {{"run.ranks=1", "shard.stage=0", "train.recompute=none"},
                                          {"run.ranks=2", "shard.stage=1", "train.recompute=unit"},
                                          {"run.ranks=4", "shard.stage=3", "train.recompute=attention"}};
    for (int p = 0; p < 2; p++) {
        job_result first, other;
        for (int i = 0; i < 3; i++) {
            run_good(small_job, SET(FIXED, precisions[p], ways[i][0], ways[i][1], ways[i][2]), i ? &other : &first);
            if (i > 0) expect_same(&first, &other, precisions[p]);
        }
    }
}

Test(masks, are_the_same_with_replicas_of_any_size_and_more_threads) {
    job_result first, other;
    run_good(small_job, SET(FIXED, "run.ranks=2", "shard.replicas=2"), &first);
    run_good(small_job, SET(FIXED, "run.ranks=4", "shard.replicas=2"), &other);
    expect_same(&first, &other, "four ranks, two replicas");
    run_good(small_job, SET(FIXED, "run.ranks=2", "shard.replicas=2", "run.threads=2"), &other);
    expect_same(&first, &other, "two threads");
}

/* The first loss comes before any update: other micro-batches round its sums otherwise, nothing more. */
Test(masks, are_the_same_in_micro_batches_of_any_size) {
    static const char *const sizes[] = {"train.micro_batch=1", "train.micro_batch=2", "train.micro_batch=6"};
    job_result first, other;
    for (int i = 0; i < 3; i++) {
        run_good(small_job, SET(FIXED, sizes[i]), i ? &other : &first);
        if (i > 0) cr_assert_float_eq(first.steps[0].loss, other.steps[0].loss, 1e-6, "%s", sizes[i]);
        if (i > 0) cr_assert_float_eq(first.steps[0].grad_norm, other.steps[0].grad_norm, 1e-5, "%s", sizes[i]);
    }
}

Test(masks, go_on_after_a_resume) {
    job_result whole, result;
    run_good(small_job, SET("model.dropout=0.2", "checkpoint.dir=whole", "run.ranks=2"), &whole);
    run_job_stopping(small_job, SET("model.dropout=0.2", "run.ranks=2", "checkpoint.every=5"), 0, 7, &result);
    run_good(small_job, SET("model.dropout=0.2", "run.ranks=2", "train.recompute=attention"), &result);
    cr_assert_eq(result.summary.first_step, 8);
    cr_assert_eq(result.step_count, 4);
    for (int s = 0; s < 4; s++) cr_assert_eq(result.steps[s].loss, whole.steps[8 + s].loss, "step %d", 8 + s);
}

/* With a learning rate of zero nothing changes from step to step but masks: a step is an epoch. */
Test(masks, differ_from_epoch_to_epoch_and_leave_validation_alone) {
    make_tokens("short.u16", 12 * 8 + 1, 1);
    job_result with, without;
    run_good(
        small_job,
        SET(FIXED, "data.train=short.u16", "optimizer.lr=0.0", "data.validation=val.u16", "train.evaluate_every=3"),
        &with);
    run_good(small_job,
             SET("checkpoint.resume=never", "train.steps=6", "data.train=short.u16", "optimizer.lr=0.0",
                 "data.validation=val.u16", "train.evaluate_every=3"),
             &without);
    for (int s = 0; s < 6; s++) {
        for (int earlier = 0; earlier < s; earlier++) {
            cr_assert_neq(with.steps[s].loss, with.steps[earlier].loss);
            cr_assert_float_eq(without.steps[s].loss, without.steps[earlier].loss, 1e-12);
        }
        if (s % 3 == 2) cr_assert_eq(with.steps[s].validation_loss, without.steps[s].validation_loss);
    }
    cr_assert(!isnan(with.steps[2].validation_loss));
}

static char logged[8192];
static void remember(void *user, sherd_log_level level, const char *message) {
    (void)user, (void)level;
    size_t length = strlen(logged);
    snprintf(logged + length, sizeof logged - length, "%s\n", message);
}

Test(masks, may_be_drawn_with_another_p_after_a_resume_which_is_told) {
    job_result result;
    run_good(small_job, SET("model.dropout=0.2", "train.steps=4"), &result);
    sherd_log_set(remember, NULL, SHERD_LOG_INFO);
    run_good(small_job, SET("model.dropout=0.1", "train.steps=6"), &result);
    cr_assert_eq(result.summary.first_step, 4);
    cr_assert_not_null(strstr(logged, "resuming: model.dropout was 0.2 and is 0.1 now\n"), "%s", logged);
}

Test(masks, of_a_p_that_is_no_chance_are_refused) {
    static const char *const bad[] = {"model.dropout=1.0", "model.dropout=-0.1", "model.dropout=x"};
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(check_job(small_job, SET(bad[i])), SHERD_CONFIG);
        cr_assert_not_null(strstr(sherd_last_error(), "model.dropout"), "%s", sherd_last_error());
    }
}
