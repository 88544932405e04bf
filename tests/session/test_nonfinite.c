/* Steps that are skipped: because a number is not finite, on whatever rank it began, or because a judge says so. And
 * what a step tells of the ranks' times. */
#include "support/ranks.h"
#include "support/toy.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 12, STEPS = 6, BLOCK = 17 * 33, HEAD = 3, MIDDLE = 1 };

/* What is wrong with a step, where it is wrong. */
typedef enum harm { HARM_NONE, HARM_LOSS, HARM_GRADIENT, HARM_INFINITE_GRADIENT } harm;
static const harm script[STEPS] = {HARM_NONE, HARM_GRADIENT, HARM_NONE, HARM_LOSS, HARM_INFINITE_GRADIENT, HARM_NONE};

/* One rank's way through the script. */
typedef struct walk {
    const sherd_options *options;
    sherd_session *session;
    int64_t step;
    harm harm;
    bool judged; /* bad steps are finite, and a judge skips them */
    int32_t asked;
    int32_t culprit, bad_micro_step;
    float table[BLOCK]; /* as the last forward of the embedding saw it: whole, or this is not rank 0 */
    int nap_ms;         /* of forward_slowly */
} walk;

static sherd_status forward(void *user, const sherd_view *view) {
    walk *run = user;
    if (view->unit == 0 && run->options->precision == SHERD_FP32)
        memcpy(run->table, view->parameters[TOY_TABLE], sizeof run->table);
    return SHERD_OK;
}

/* Gradients that depend on the sample alone, so that steps can be left out. */
static sherd_status backward(void *user, const sherd_view *view) {
    walk *run = user;
    int64_t sample = run->step * BATCH + sherd_micro_batch(run->options, view->micro_step);
    bool here = run->options->rank == run->culprit && view->micro_step == run->bad_micro_step && !run->judged;
    for (int32_t t = 0; t < TOY_TENSORS; t++) {
        float *gradient = view->gradients[t];
        bool adds = t == TOY_TABLE && view->unit == 0;
        for (int64_t i = 0; gradient && i < toy_count(t); i++)
            gradient[i] = adds ? gradient[i] : (float)((i * 7 + sample * 13 + t) % 23 - 11) / 7.0f * view->loss_scale;
    }
    if (here && run->harm == HARM_GRADIENT && view->unit == MIDDLE) view->gradients[TOY_MATRIX][200] = NAN;
    if (here && run->harm == HARM_INFINITE_GRADIENT && view->unit == HEAD) view->gradients[TOY_BIAS][18] = -INFINITY;
    double loss = here && run->harm == HARM_LOSS ? NAN : 1;
    return view->unit == HEAD ? sherd_add_loss(run->session, &loss, 1) : SHERD_OK;
}

static bool judge(void *user, const sherd_step_result *found) {
    walk *run = user;
    run->asked++;
    if (found->step != run->step || !isfinite(found->grad_norm) || found->loss != 1) return false;
    return run->judged && run->harm != HARM_NONE;
}

/* What rank 0 tells. */
typedef struct tale {
    bool judged, without; /* without the bad steps */
    double norms[STEPS], parameter_norms[STEPS];
    float table[BLOCK];
} tale;

static int take_step(walk *run, sherd_step_result *result) {
    const sherd_callbacks callbacks = {.size = sizeof callbacks, .forward = forward, .backward = backward, .user = run};
    /* Every rank's and every micro-step's turn comes. */
    run->harm = script[run->step];
    run->culprit = (int32_t)(run->step % run->options->world_size);
    run->bad_micro_step = (int32_t)(run->step * 7 % run->options->micro_steps);
    EXPECT(sherd_run_step(run->session, run->options->micro_steps, &callbacks, result) == SHERD_OK);
    bool bad = run->harm != HARM_NONE;
    EXPECT(result->skipped == bad && result->nonfinite == (bad && !run->judged));
    EXPECT(run->judged || isfinite(result->grad_norm) == (run->harm < HARM_GRADIENT));
    if (!result->nonfinite) {
        EXPECT(result->nonfinite_rank == -1 && result->nonfinite_micro_step == -1);
        return 0;
    }
    EXPECT(result->nonfinite_rank == run->culprit && result->nonfinite_micro_step == run->bad_micro_step);
    static const int32_t units[] = {-1, -1, MIDDLE, HEAD};
    EXPECT(result->nonfinite_unit == units[run->harm]);
    return 0;
}

static int take_steps(void *user, const sherd_options *options) {
    tale *told = user;
    walk run = {.options = options, .judged = told->judged};
    sherd_options mine = *options;
    if (told->judged) mine.judge = judge;
    if (told->judged) mine.judge_user = &run;
    EXPECT(sherd_session_create(&mine, toy_model(), &run.session) == SHERD_OK);
    EXPECT(sherd_session_fill(run.session, toy_fill, NULL) == SHERD_OK);
    for (run.step = 0; run.step < STEPS; run.step++) {
        sherd_step_result result;
        if (told->without && script[run.step] != HARM_NONE) continue;
        int line = take_step(&run, &result);
        if (line) return line;
        if (options->rank == 0) told->norms[run.step] = result.grad_norm;
        if (options->rank == 0) told->parameter_norms[run.step] = result.param_norm;
    }
    EXPECT(run.asked == (told->judged ? told->without ? 3 : STEPS : 0));
    if (options->rank == 0) memcpy(told->table, run.table, sizeof run.table);
    sherd_session_destroy(run.session);
    return 0;
}

/* The norms of parameters, to the last bit, say that a skipped step has changed none; those of the steps after it, and
 * the table at the end, that moments and their corrections are as if it had not been. */
static void compare(const sherd_options *options, int ranks, bool judged, const char *what) {
    static tale with, without;
    with = (tale){.judged = judged};
    without = (tale){.judged = judged, .without = true};
    int line = run_ranks(ranks, options, take_steps, &with);
    cr_assert_eq(line, 0, "%s, %d ranks, stage %d: line %d; %s", what, ranks, options->stage, line, sherd_last_error());
    line = run_ranks(ranks, options, take_steps, &without);
    cr_assert_eq(line, 0, "%s, %d ranks, stage %d, without: line %d", what, ranks, options->stage, line);
    for (int s = 0; s < STEPS; s++) {
        if (script[s] != HARM_NONE)
            cr_assert_eq(with.parameter_norms[s], with.parameter_norms[s + 1], "%s, stage %d", what, options->stage);
        else
            cr_assert(with.norms[s] == without.norms[s] && with.parameter_norms[s] == without.parameter_norms[s],
                      "%s, %d ranks, stage %d, step %d", what, ranks, options->stage, s);
    }
    cr_assert_neq(with.parameter_norms[0], with.parameter_norms[1]);
    cr_assert_eq(memcmp(with.table, without.table, sizeof with.table), 0);
}

static sherd_options make_options(int ranks, int stage) {
    sherd_options options = SHERD_OPTIONS_INIT;
    options.stage = stage;
    options.gather = stage % 2 ? SHERD_GATHER_COPY : SHERD_GATHER_AUTO;
    options.micro_steps = BATCH / ranks;
    options.optimizer.lr = 0.01;
    options.optimizer.weight_decay = 0.1;
    options.on_nonfinite = SHERD_NONFINITE_SKIP;
    /* A scale that cannot fall: what is not finite is so in earnest. */
    options.loss_scale = (sherd_loss_scale){.initial = 1, .minimum = 1, .growth_interval = 1000, .hysteresis = 1};
    options.timeout_s = options.start_timeout_s = 30;
    return options;
}

static void compare_everywhere(sherd_dtype precision, bool judged, const char *what) {
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int stage = 0; stage <= 3; stage++) {
            sherd_options options = make_options(ranks, stage);
            options.precision = precision;
            options.clip = ranks % 2;
            options.replicas = ranks == 4 && stage > 0 ? 2 : 1;
            options.reduce_dtype = ranks == 3 ? SHERD_BF16 : SHERD_FP32;
            compare(&options, ranks, judged, what);
        }
}

Test(nonfinite, a_skipped_step_leaves_every_bit_in_fp32, .timeout = 60) {
    compare_everywhere(SHERD_FP32, false, "fp32");
}
Test(nonfinite, a_skipped_step_leaves_every_bit_in_bf16, .timeout = 60) {
    compare_everywhere(SHERD_BF16, false, "bf16");
}
Test(nonfinite, in_fp16_what_no_scale_mends_is_told_from_an_overflow, .timeout = 60) {
    compare_everywhere(SHERD_FP16, false, "fp16");
}
Test(nonfinite, a_judge_skips_finite_steps_and_is_asked_about_no_others, .timeout = 60) {
    compare_everywhere(SHERD_FP32, true, "judged");
}

Test(nonfinite, a_skipped_step_leaves_the_states_of_every_optimizer, .timeout = 60) {
    static const struct {
        sherd_optimizer_kind kind;
        sherd_dtype state_dtype;
        double momentum;
    } kinds[] = {{SHERD_ADAMW, SHERD_INT8, 0}, {SHERD_LION, SHERD_INT8, 0},   {SHERD_SGD, SHERD_INT8, 0.9},
                 {SHERD_ADAM, SHERD_FP32, 0},  {SHERD_MUON, SHERD_FP32, 0.9}, {SHERD_ADAFACTOR, SHERD_FP32, 0}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int stage = 0; stage <= 3; stage++) {
            sherd_options options = make_options(3, stage);
            options.optimizer.kind = kinds[i].kind;
            options.optimizer.state_dtype = kinds[i].state_dtype;
            options.optimizer.momentum = kinds[i].momentum;
            compare(&options, 3, stage % 2, "optimizers");
        }
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

static int fail_step(void *user, const sherd_options *options) {
    (void)user;
    walk run = {.options = options, .step = 1, .harm = HARM_GRADIENT, .culprit = 2, .bad_micro_step = 1};
    const sherd_callbacks callbacks = {
        .size = sizeof callbacks, .forward = forward, .backward = backward, .user = &run};
    EXPECT(sherd_session_create(options, toy_model(), &run.session) == SHERD_OK);
    EXPECT(sherd_session_fill(run.session, toy_fill, NULL) == SHERD_OK);
    EXPECT(sherd_run_step(run.session, options->micro_steps, &callbacks, NULL) == SHERD_NUMERIC);
    EXPECT(strstr(sherd_last_error(),
                  "step 0: loss is 1 and gradient norm is nan; first in rank 2's gradient of middle, "
                  "in micro-step 1"));
    sherd_session_destroy(run.session);
    return 0;
}

Test(nonfinite, that_ends_the_run_is_an_error_on_every_rank_that_names_the_step_and_the_culprit, .timeout = 30) {
    for (int stage = 0; stage <= 3; stage++)
        for (int clip = 0; clip <= 1; clip++) {
            sherd_options options = make_options(3, stage);
            options.on_nonfinite = SHERD_NONFINITE_ABORT;
            options.clip = clip;
            int line = run_ranks(3, &options, fail_step, NULL);
            cr_assert_eq(line, 0, "stage %d, clip %d: line %d", stage, clip, line);
        }
}

/* Finite numbers whose sum is not: nobody's fault. */
static sherd_status write_large(void *user, const sherd_view *view) {
    (void)user;
    for (int32_t t = 0; t < TOY_TENSORS; t++)
        for (int64_t i = 0; view->gradients[t] && i < toy_count(t); i++) view->gradients[t][i] = 3e38f;
    return SHERD_OK;
}

static int overflow_a_sum(void *user, const sherd_options *options) {
    (void)user;
    walk run = {.options = options};
    const sherd_callbacks callbacks = {
        .size = sizeof callbacks, .forward = forward, .backward = write_large, .user = &run};
    sherd_step_result result;
    EXPECT(sherd_session_create(options, toy_model(), &run.session) == SHERD_OK);
    EXPECT(sherd_session_fill(run.session, toy_fill, NULL) == SHERD_OK);
    EXPECT(sherd_run_step(run.session, options->micro_steps, &callbacks, &result) == SHERD_OK);
    EXPECT(result.skipped && result.nonfinite && result.nonfinite_rank == -1 && isinf(result.grad_norm));
    sherd_session_destroy(run.session);
    return 0;
}

Test(nonfinite, sums_of_finite_numbers_that_overflow_have_no_culprit, .timeout = 30) {
    for (int ranks = 1; ranks <= 3; ranks++) {
        sherd_options options = make_options(ranks, 2);
        int line = run_ranks(ranks, &options, overflow_a_sum, NULL);
        cr_assert_eq(line, 0, "%d ranks: line %d", ranks, line);
    }
}

/* --- times -------------------------------------------------------------------------------------------------------- */

enum { NAP_MS = 40, SLOW_RANK = 1, MOST_NAP_MS = 640, EVALUATION_MS = 600, MOST_TRIES = 40 };

static void nap(int milliseconds) { nanosleep(&(struct timespec){.tv_nsec = milliseconds * 1000000L}, NULL); }

static sherd_status forward_slowly(void *user, const sherd_view *view) {
    const walk *run = user;
    if (view->unit == 0 && view->micro_step == 0 && run->options->rank == SLOW_RANK) nap(run->nap_ms);
    return SHERD_OK;
}

static int evaluate_slowly(sherd_session *session) {
    sherd_evaluation evaluation;
    EXPECT(sherd_evaluate_begin(session) == SHERD_OK);
    for (int32_t u = 0; u < TOY_UNITS; u++) {
        sherd_view view;
        EXPECT(sherd_forward_begin(session, u, &view) == SHERD_OK);
        if (u == 0) nap(EVALUATION_MS);
        EXPECT(sherd_forward_end(session, u) == SHERD_OK);
    }
    EXPECT(sherd_evaluate_end(session, 1, &evaluation) == SHERD_OK);
    return 0;
}

/* Rank 1 takes 40 ms longer than all others, or more, and they wait for it; then every rank takes a rest, in an
 * evaluation and between steps, of which only the latter is work. */
static int measure(void *user, const sherd_options *options) {
    (void)user;
    walk run = {.options = options, .harm = HARM_NONE, .nap_ms = NAP_MS};
    const sherd_callbacks callbacks = {
        .size = sizeof callbacks, .forward = forward_slowly, .backward = backward, .user = &run};
    EXPECT(sherd_session_create(options, toy_model(), &run.session) == SHERD_OK);
    EXPECT(sherd_session_fill(run.session, toy_fill, NULL) == SHERD_OK);
    sherd_step_result result;
    /* What a busy machine does to a step it does to few, and less than a nap that gets longer with each of them: some
     * of the tries must go as they should, and all make sense. */
    int good = 0, tries = 0;
    for (; good < 3 && tries < MOST_TRIES; tries++) {
        EXPECT(sherd_run_step(run.session, options->micro_steps, &callbacks, &result) == SHERD_OK);
        const sherd_rank_times *work = &result.rank_step, *wait = &result.rank_wait;
        EXPECT(work->min_ms >= 0 && work->min_ms <= work->median_ms && work->median_ms <= work->max_ms);
        EXPECT(wait->min_ms <= wait->median_ms && wait->median_ms <= wait->max_ms && work->max_ms >= run.nap_ms);
        bool as_it_should = work->max_rank == SLOW_RANK && work->median_ms < work->max_ms &&
                            wait->max_rank != SLOW_RANK && wait->max_ms >= NAP_MS / 2;
        good += as_it_should;
        if (!as_it_should && run.nap_ms < MOST_NAP_MS) run.nap_ms *= 2;
    }
    EXPECT(good == 3);
    run.nap_ms = NAP_MS;
    bool excluded = false;
    for (tries = 0; !excluded && tries < MOST_TRIES / 4; tries++) {
        int line = evaluate_slowly(run.session);
        if (line) return line;
        nap(2 * NAP_MS);
        EXPECT(sherd_run_step(run.session, options->micro_steps, &callbacks, &result) == SHERD_OK);
        EXPECT(result.rank_step.min_ms >= 2 * NAP_MS);
        excluded = result.rank_step.max_ms < EVALUATION_MS;
    }
    EXPECT(excluded);
    sherd_session_destroy(run.session);
    return 0;
}

Test(nonfinite, a_step_tells_which_rank_took_longest_and_how_long_the_others_waited, .timeout = 120) {
    for (int ranks = 2; ranks <= 4; ranks++) {
        sherd_options options = make_options(ranks, 3);
        options.eval_micro_steps = 1;
        int line = run_ranks(ranks, &options, measure, NULL);
        cr_assert_eq(line, 0, "%d ranks: line %d", ranks, line);
    }
}
