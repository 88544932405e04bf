/* Interrupted and gone on with, a job is the one that was never interrupted: in every bit of what it computes, wherever it
 * was cut and, since sums have a fixed order, on whatever ranks and stage it goes on. */
#include "runtime/base/memory.h"
#include "tests/io/make_job.h"
#include "tests/train/checkpoint_values.h"
#include "tests/train/run_job.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 12, SETTINGS = 16 };

static void prepare(void) {
    enter_fresh_folder();
    make_tokens("tokens.u16", 2000, 1);
    make_tokens("val.u16", 700, 2);
    make_tokens("even.u16", 36 * 8 + 1, 3); /* three steps are an epoch */
    make_tokens("odd.u16", 40 * 8 + 1, 4);  /* epochs end inside steps */
    make_tokens("a.u16", 30 * 8 + 4, 5);
    make_tokens("b.u16", 7 * 8 + 1, 6);
}

TestSuite(exact_resume, .init = prepare, .fini = leave_fresh_folder, .timeout = 300);

/* A place to go on: the settings that a run is started again with. */
typedef struct place {
    const char *ranks, *stage, *other;
} place;
static const place here = {"run.ranks=2", "shard.stage=3", "log.every=1"};

static int append(const char *list[SETTINGS + 1], int count, const char *setting) {
    cr_assert_lt(count, SETTINGS);
    list[count] = setting;
    list[count + 1] = NULL;
    return count + 1;
}

static void run_at(const place *at, const char *const *settings, const char *dir, int64_t cut, job_result *out) {
    const char *list[SETTINGS + 1];
    char checkpoints[64], log[64];
    int count = 0;
    snprintf(checkpoints, sizeof checkpoints, "checkpoint.dir=%s", dir);
    snprintf(log, sizeof log, "log.dir=%s", dir);
    for (; *settings; settings++) count = append(list, count, *settings);
    count = append(list, count, at->ranks);
    count = append(list, count, at->stage);
    count = append(list, count, at->other);
    count = append(list, count, checkpoints);
    append(list, count, log);
    if (cut < 0)
        run_job(small_job, list, out);
    else
        run_job_stopping(small_job, list, 0, cut - 1, out);
    for (int r = 0; r < MAX_RANKS; r++)
        cr_assert_eq(out->status[r], SHERD_OK, "%s, rank %d: status %d; %s", dir, r, out->status[r], out->cause);
}

static void expect_same_values(const char *one, const char *other) {
    char path[2][96];
    snprintf(path[0], sizeof path[0], "%s/step-%08d", one, STEPS);
    snprintf(path[1], sizeof path[1], "%s/step-%08d", other, STEPS);
    expect_same_checkpoints(path[0], path[1]);
}

/* --- the comparison ----------------------------------------------------------------------------------------------- */

static bool same(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

static void expect_same_steps(const job_result *whole, const job_result *part, int64_t first, const char *what) {
    cr_assert_eq(part->summary.first_step, first, "%s", what);
    cr_assert_eq(part->step_count, STEPS - first, "%s", what);
    for (int64_t s = first; s < STEPS; s++) {
        const shd_train_step *a = &whole->steps[s], *b = &part->steps[s - first];
        cr_assert(same(a->loss, b->loss), "%s, step %d: loss %.17g, not %.17g", what, (int)s, b->loss, a->loss);
        cr_assert(same(a->grad_norm, b->grad_norm), "%s, step %d", what, (int)s);
        cr_assert(a->lr == b->lr && a->loss_scale == b->loss_scale && a->skipped == b->skipped, "%s, step %d", what,
                  (int)s);
        cr_assert(same(a->validation_loss, b->validation_loss), "%s, step %d", what, (int)s);
    }
    cr_assert_eq(whole->summary.tokens_seen, part->summary.tokens_seen, "%s", what);
}

/* Cuts the job at each of `cuts` (0 at the end), goes on at each of `places`, and compares with the job in one go. */
static job_result compare_cuts(const char *const *settings, const int *cuts, const place *places, int place_count) {
    static job_result whole, part;
    static int call;
    char one[32];
    snprintf(one, sizeof one, "whole%d", ++call);
    run_at(&here, settings, one, -1, &whole);
    for (int c = 0; cuts[c]; c++)
        for (int p = 0; p < place_count; p++) {
            char dir[48];
            snprintf(dir, sizeof dir, "cut%d-%d-%d", call, cuts[c], p);
            run_at(&here, settings, dir, cuts[c], &part);
            cr_assert_eq(part.summary.step, cuts[c]);
            run_at(&places[p], settings, dir, -1, &part);
            expect_same_steps(&whole, &part, cuts[c], dir);
            expect_same_values(one, dir);
        }
    return whole;
}

static const place places[] = {{"run.ranks=2", "shard.stage=3", "log.every=1"},
                               {"run.ranks=1", "shard.stage=0", "log.every=1"},
                               {"run.ranks=3", "shard.stage=1", "run.threads=2"},
                               {"run.ranks=4", "shard.stage=3", "shard.gather=copy"}};

#define SET(...)         ((const char *const[]){__VA_ARGS__, NULL})
#define CUTS(...)        ((const int[]){__VA_ARGS__, 0})
#define AT(first, count) (places + (first)), (count)
#define BY(name, ...)    compare_cuts(SET("optimizer.name=" name, ##__VA_ARGS__), CUTS(7), AT(0, 2))

/* --- learning rates ----------------------------------------------------------------------------------------------- */

Test(exact_resume, in_every_phase_of_a_cosine) { compare_cuts(SET("log.every=1"), CUTS(1, 2, 3, 11), AT(0, 1)); }

Test(exact_resume, in_every_phase_of_wsd) {
    compare_cuts(SET("optimizer.schedule=wsd", "optimizer.decay_steps=4"), CUTS(2, 8, 9), AT(1, 1));
}

Test(exact_resume, of_other_schedules) {
    compare_cuts(SET("optimizer.schedule=linear", "optimizer.warmup_steps=0", "optimizer.warmup_tokens=250"),
                 CUTS(2, 7), AT(2, 1));
    compare_cuts(SET("optimizer.schedule=inverse_sqrt", "optimizer.min_lr=1e-3"), CUTS(2, 7), AT(3, 1));
}

/* --- precision ---------------------------------------------------------------------------------------------------- */

Test(exact_resume, of_a_loss_scale_before_and_after_overflows) {
    const job_result whole =
        compare_cuts(SET("train.precision=fp16", "train.loss_scale.initial=33554432.0",
                         "train.loss_scale.growth_interval=2", "train.loss_scale.hysteresis=2", "train.steps=12"),
                     CUTS(1, 2, 3, 4, 6), AT(0, 1));
    int skipped = 0, grown = 0;
    for (int s = 1; s < STEPS; s++) {
        skipped += whole.steps[s].skipped;
        grown += whole.steps[s].loss_scale > whole.steps[s - 1].loss_scale;
    }
    cr_assert(skipped > 1 && skipped < 10 && whole.steps[0].skipped, "%d skipped", skipped);
    cr_assert_gt(grown, 0, "the scale never grew");
}

Test(exact_resume, of_an_fp16_run_elsewhere) {
    compare_cuts(
        SET("train.precision=fp16", "train.loss_scale.initial=33554432.0", "train.loss_scale.growth_interval=2"),
        CUTS(3, 6), AT(1, 3));
}

Test(exact_resume, of_a_bf16_run) {
    compare_cuts(SET("train.precision=bf16", "model.frozen=[\"wpe.*\"]"), CUTS(5), AT(0, 3));
}

/* --- data --------------------------------------------------------------------------------------------------------- */

Test(exact_resume, inside_an_epoch_and_exactly_at_its_end) {
    compare_cuts(SET("data.train=even.u16"), CUTS(2, 3, 4), AT(0, 2));
    compare_cuts(SET("data.train=odd.u16", "data.shuffle=false"), CUTS(3, 4), AT(1, 1));
}

Test(exact_resume, of_mixtures_and_packed_documents) {
    compare_cuts(SET("data.train=[{path: a.u16, weight: 3}, {path: b.u16}]"), CUTS(2, 5), AT(0, 2));
    compare_cuts(SET("data.train=[a.u16, b.u16]", "data.document_separator=0", "data.attend_across_documents=false"),
                 CUTS(2, 5), AT(0, 2));
}

Test(exact_resume, with_validations) {
    compare_cuts(SET("data.validation=val.u16", "train.evaluate_every=3"), CUTS(2, 3), AT(0, 2));
}

/* --- what a step is made of --------------------------------------------------------------------------------------- */

Test(exact_resume, of_dropout_and_recompute) {
    compare_cuts(SET("model.dropout=0.3", "train.recompute=attention"), CUTS(5), AT(0, 3));
}

Test(exact_resume, of_accumulated_gradients) {
    compare_cuts(SET("train.micro_batch=2", "train.clip=0"), CUTS(5), AT(0, 3));
}

Test(exact_resume, of_untied_and_frozen_tensors) {
    compare_cuts(SET("model.tied_embeddings=false", "model.frozen=[\"h.0.*\", \"ln_f.*\"]"), CUTS(5), AT(0, 3));
}

Test(exact_resume, of_every_optimizer) {
    BY("adam");
    BY("lion");
    BY("sgd", "optimizer.momentum=0.9", "optimizer.nesterov=true");
    BY("sgd");
    BY("adafactor");
    BY("muon");
}

Test(exact_resume, of_states_in_8_bits) { compare_cuts(SET("optimizer.state_dtype=int8"), CUTS(1, 7), AT(0, 3)); }
