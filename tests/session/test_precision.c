/* 16-bit parameters, gradients exchanged in bf16, and the loss scale, through whole sessions: against a brute-force
 * trainer bit for bit, for any number of ranks, at every stage. */
#include "runtime/base/dtype.h"
#include "support/ranks.h"
#include "support/toy.h"
#include "tests/support/scratch.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 12, STEPS = 3, LARGEST = 17 * 33 };

static sherd_options toy_options(int ranks, int stage, sherd_gather gather, sherd_dtype precision) {
    sherd_options options = SHERD_OPTIONS_INIT;
    options.stage = stage;
    options.gather = gather;
    options.precision = precision;
    options.micro_steps = BATCH / ranks;
    options.optimizer.kind = SHERD_SGD;
    options.optimizer.lr = 0.125;
    options.timeout_s = options.start_timeout_s = 30;
    return options;
}

/* Runs `body` on 1 to 4 ranks, at every stage, with both gathers; four ranks also as two replicas. */
static void run_everywhere(sherd_dtype precision, sherd_dtype reduce_dtype, rank_fn body, void *user) {
    for (int32_t i = 0; i < 5 * 4 * 2; i++) {
        int ranks = i / 8 < 4 ? i / 8 + 1 : 4, replicas = i / 8 < 4 ? 1 : 2, stage = i / 2 % 4;
        sherd_gather gather = i % 2 ? SHERD_GATHER_COPY : SHERD_GATHER_SHARED;
        if (gather == SHERD_GATHER_SHARED && (stage == 0 || ranks == 1)) continue;
        if (replicas > 1 && stage == 0) continue;
        sherd_options options = toy_options(ranks, stage, gather, precision);
        options.replicas = replicas;
        options.reduce_dtype = reduce_dtype;
        options.loss_scale = (sherd_loss_scale){.initial = 65536, .minimum = 1, .growth_interval = 2, .hysteresis = 1};
        int line = run_ranks(ranks, &options, body, user);
        cr_assert_eq(line, 0, "%d ranks, %d replicas, stage %d, gather %d, %s, reduce %s: line %d", ranks, replicas,
                     stage, gather, shd_dtype_text(precision), shd_dtype_text(reduce_dtype), line);
    }
}

/* --- against brute force ------------------------------------------------------------------------------------------ */

/* Of all that is trained, masters where there are any. */
static double norm_of(float *const values[TOY_TENSORS]) {
    double square_sum = 0;
    for (int32_t t = 0; t < TOY_TENSORS; t++)
        for (int64_t i = 0; !toy_model()->tensors[t].frozen && i < toy_count(t); i++)
            square_sum += (double)values[t][i] * values[t][i];
    return sqrt(square_sum);
}

static int train(void *user, const sherd_options *options) {
    (void)user;
    sherd_session *session;
    toy_oracle oracle;
    toy_oracle_init(&oracle);
    oracle.precision = options->precision;
    oracle.reduce_dtype = options->reduce_dtype;
    oracle.blocks = options->replicas;
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    EXPECT(sherd_session_fill(session, toy_fill, NULL) == SHERD_OK);
    float scale = options->precision == SHERD_FP16 ? 65536 : 1;
    for (int step = 0; step < STEPS; step++) {
        sherd_step_result result;
        oracle.loss_scale = step < 2 ? scale : options->precision == SHERD_FP16 ? 2 * scale : 1;
        int line = toy_step(session, &oracle, options, &result);
        if (line) return line;
        double parameter_norm = norm_of(oracle.parameters);
        toy_oracle_step(&oracle, BATCH, 0.125f);
        EXPECT(!result.skipped && !result.nonfinite && result.nonfinite_rank == -1);
        EXPECT(result.loss_scale == (double)oracle.loss_scale);
        EXPECT(fabs(result.param_norm - parameter_norm) <= 1e-12 * parameter_norm);
        double norm = norm_of(oracle.gradients) / (double)oracle.loss_scale;
        EXPECT(fabs(result.grad_norm - norm) <= 1e-12 * norm);
    }
    sherd_session_destroy(session);
    toy_oracle_fini(&oracle);
    return 0;
}

Test(precision, bf16_trains_as_brute_force_does, .timeout = 60) { run_everywhere(SHERD_BF16, SHERD_FP32, train, NULL); }
Test(precision, fp16_trains_as_brute_force_does, .timeout = 60) { run_everywhere(SHERD_FP16, SHERD_FP32, train, NULL); }
Test(precision, gradients_exchanged_in_bf16_are_rounded_once_and_summed_in_fp32, .timeout = 120) {
    run_everywhere(SHERD_FP32, SHERD_BF16, train, NULL);
    run_everywhere(SHERD_BF16, SHERD_BF16, train, NULL);
}

/* --- overflow ----------------------------------------------------------------------------------------------------- */

/* Steps 1, 2 and 5 overflow, each on one rank alone. Two good steps in a row double the scale. */
static const struct {
    bool overflows;
    float scale;
} script[] = {{false, 65536}, {true, 65536}, {true, 32768}, {false, 16384},
              {false, 16384}, {true, 32768}, {false, 16384}};
enum { SCRIPT_STEPS = sizeof script / sizeof *script };

typedef struct overflower {
    int64_t step;
    const sherd_options *options;
} overflower;

static sherd_status pass(void *user, const sherd_view *view) {
    (void)user, (void)view;
    return SHERD_OK;
}

/* Gradients that do not depend on parameters; the first element of the matrix overflows on one rank, in its last
 * micro-batch. */
static void write_gradients(const overflower *run, const sherd_view *view, int64_t sample) {
    bool here =
        script[run->step % SCRIPT_STEPS].overflows && run->step % run->options->world_size == run->options->rank;
    for (int32_t t = 0; t < TOY_TENSORS; t++) {
        float *gradient = view->gradients[t];
        bool adds = t == TOY_TABLE && view->unit == 0;
        for (int64_t i = 0; gradient && i < toy_count(t); i++)
            gradient[i] = adds ? gradient[i] : (float)((i * 7 + sample * 13 + t) % 23 - 11) / 7.0f * view->loss_scale;
        if (gradient && t == TOY_MATRIX && here && view->micro_step == run->options->micro_steps - 1)
            gradient[0] = INFINITY;
    }
}

static sherd_status backward(void *user, const sherd_view *view) {
    const overflower *run = user;
    int64_t k = view->micro_step;
    write_gradients(run, view, run->step * BATCH + k * run->options->world_size + run->options->rank);
    return SHERD_OK;
}

static int overflow(void *user, const sherd_options *options) {
    const bool *clips = user;
    sherd_options changed = *options;
    if (*clips) changed.clip = 1e9; /* never reached: the same bits */
    sherd_session *session;
    toy_oracle oracle;
    toy_oracle_init(&oracle);
    oracle.precision = SHERD_FP16;
    oracle.blocks = options->replicas;
    EXPECT(sherd_session_create(&changed, toy_model(), &session) == SHERD_OK);
    EXPECT(sherd_session_fill(session, toy_fill, NULL) == SHERD_OK);
    for (int64_t step = 0; step < SCRIPT_STEPS; step++) {
        sherd_step_result result;
        oracle.loss_scale = script[step].scale;
        if (script[step].overflows) {
            overflower run = {.step = step, .options = options};
            const sherd_callbacks callbacks = {
                .size = sizeof callbacks, .forward = pass, .backward = backward, .user = &run};
            EXPECT(sherd_run_step(session, options->micro_steps, &callbacks, &result) == SHERD_OK);
            oracle.loss_scale = 0;
        } else {
            int line = toy_step(session, &oracle, options, &result); /* finds every lent bit as the oracle has it */
            if (line) return line;
        }
        toy_oracle_step(&oracle, BATCH, 0.125f);
        EXPECT(result.skipped == script[step].overflows && result.loss_scale == (double)script[step].scale);
        EXPECT(isfinite(result.grad_norm) == !result.skipped && result.step == step);
    }
    EXPECT(sherd_session_step_count(session) == SCRIPT_STEPS);
    sherd_session_destroy(session);
    toy_oracle_fini(&oracle);
    return 0;
}

Test(precision, an_overflow_on_one_rank_skips_the_step_on_all_and_halves_the_scale, .timeout = 120) {
    for (int clips = 0; clips <= 1; clips++) run_everywhere(SHERD_FP16, SHERD_FP32, overflow, &(bool){clips});
}

/* What AdamW has after good steps only, and what it has when steps that overflow lie between them. */
typedef struct adam_story {
    const char *dir; /* where to save after step `saved_after`, or to load from */
    int64_t saved_after;
    bool overflows;
    float table[LARGEST];
    double norms[SCRIPT_STEPS], scales[SCRIPT_STEPS];
} adam_story;

typedef struct adam_run {
    overflower overflower; /* first: backward reads it */
    adam_story *story;
} adam_run;

static sherd_status look_at_table(void *user, const sherd_view *view) {
    adam_run *run = user;
    if (run->overflower.options->rank == 0 && view->unit == 0)
        shd_widen(run->overflower.options->precision, LARGEST, view->parameters[TOY_TABLE], run->story->table);
    return SHERD_OK;
}

/* Data of the good steps alone: the story without overflows leaves the others out. */
static int take_adam_steps(sherd_session *session, const sherd_options *options, int64_t first, adam_story *story) {
    for (int64_t step = first; step < SCRIPT_STEPS; step++) {
        if (script[step].overflows && !story->overflows) continue;
        adam_run run = {.overflower = {.step = step, .options = options}, .story = story};
        const sherd_callbacks callbacks = {
            .size = sizeof callbacks, .forward = look_at_table, .backward = backward, .user = &run};
        sherd_step_result result;
        EXPECT(sherd_run_step(session, options->micro_steps, &callbacks, &result) == SHERD_OK);
        EXPECT(result.skipped == script[step].overflows);
        if (options->rank == 0) {
            story->norms[step] = result.grad_norm;
            story->scales[step] = result.loss_scale;
        }
        if (story->dir && step + 1 == story->saved_after)
            EXPECT(sherd_session_save(session, story->dir, NULL) == SHERD_OK);
    }
    return 0;
}

static int train_adam(void *user, const sherd_options *options) {
    sherd_session *session;
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    EXPECT(sherd_session_fill(session, toy_fill, NULL) == SHERD_OK);
    int line = take_adam_steps(session, options, 0, user);
    sherd_session_destroy(session);
    return line;
}

static int resume_adam(void *user, const sherd_options *options) {
    adam_story *story = user;
    sherd_session *session;
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    EXPECT(sherd_session_load(session, story->dir, NULL) == SHERD_OK);
    EXPECT(sherd_session_step_count(session) == story->saved_after);
    int line = take_adam_steps(session, options, sherd_session_step_count(session), story);
    sherd_session_destroy(session);
    return line;
}

static sherd_options adam_options(int ranks, int stage, sherd_gather gather, sherd_dtype precision) {
    sherd_options options = toy_options(ranks, stage, gather, precision);
    options.optimizer.kind = SHERD_ADAMW;
    options.optimizer.lr = 0.01;
    options.optimizer.weight_decay = 0.1;
    options.loss_scale = (sherd_loss_scale){.initial = 65536, .minimum = 1, .growth_interval = 2, .hysteresis = 1};
    return options;
}

/* Moments, weights and the count of updates in bias corrections: all as if the step had not been. Scales differ by powers
 * of two, which round nothing. */
static void check_skipped_steps(sherd_dtype state_dtype) {
    for (int stage = 0; stage <= 3; stage++) {
        static adam_story with, without;
        with = (adam_story){.overflows = true};
        without = (adam_story){0};
        sherd_options options = adam_options(3, stage, SHERD_GATHER_AUTO, SHERD_FP16);
        options.optimizer.state_dtype = state_dtype;
        int line = run_ranks(3, &options, train_adam, &with);
        cr_assert_eq(line, 0, "stage %d: line %d", stage, line);
        line = run_ranks(3, &options, train_adam, &without);
        cr_assert_eq(line, 0, "stage %d: line %d", stage, line);
        for (int step = 0; step < SCRIPT_STEPS; step++)
            cr_assert(script[step].overflows || with.norms[step] == without.norms[step]);
        cr_assert_eq(memcmp(with.table, without.table, sizeof with.table), 0, "stage %d", stage);
    }
}

Test(precision, a_skipped_step_leaves_moments_and_bias_corrections_as_they_were, .timeout = 60) {
    check_skipped_steps(SHERD_FP32);
}
Test(precision, a_skipped_step_leaves_moments_in_8_bits_as_they_were, .timeout = 60) {
    check_skipped_steps(SHERD_INT8);
}

static void make_folder(char *dir) { cr_assert(scratch_folder(dir)); }

static void remove_folder(const char *dir) {
    char command[200];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    cr_assert_eq(system(command), 0);
}

/* Saved between two overflows, when one good step counts already towards the next growth. */
Test(precision, what_is_resumed_across_skipped_steps_is_what_would_have_been, .timeout = 120) {
    for (int ranks = 1; ranks <= 3; ranks++)
        for (int stage = 0; stage <= 3; stage++) {
            char dir[40];
            make_folder(dir);
            static adam_story whole, resumed;
            whole = (adam_story){.dir = dir, .saved_after = 4, .overflows = true};
            resumed = whole;
            sherd_options options = adam_options(ranks, stage, SHERD_GATHER_COPY, SHERD_FP16);
            int line = run_ranks(ranks, &options, train_adam, &whole);
            cr_assert_eq(line, 0, "%d ranks, stage %d: line %d", ranks, stage, line);
            line = run_ranks(ranks, &options, resume_adam, &resumed);
            cr_assert_eq(line, 0, "%d ranks, stage %d: line %d", ranks, stage, line);
            for (int step = 4; step < SCRIPT_STEPS; step++) {
                cr_assert(resumed.scales[step] == (double)script[step].scale);
                cr_assert(script[step].overflows || whole.norms[step] == resumed.norms[step]);
            }
            cr_assert_eq(memcmp(whole.table, resumed.table, sizeof whole.table), 0);
            remove_folder(dir);
        }
}

/* Takes good steps and one that ends the run, which leaves the session for its end alone. */
static int overflow_after(int good_steps, const sherd_options *options, sherd_session **session) {
    overflower run = {.step = 1, .options = options};
    const sherd_callbacks callbacks = {.size = sizeof callbacks, .forward = pass, .backward = backward, .user = &run};
    EXPECT(sherd_session_create(options, toy_model(), session) == SHERD_OK);
    EXPECT(sherd_session_fill(*session, toy_fill, NULL) == SHERD_OK);
    for (int step = 0; step < good_steps; step++)
        EXPECT(sherd_run_step(*session, options->micro_steps, &callbacks, NULL) == SHERD_OK);
    EXPECT(sherd_run_step(*session, options->micro_steps, &callbacks, NULL) == SHERD_NUMERIC);
    return 0;
}

static int overflow_at_the_minimum(void *user, const sherd_options *options) {
    (void)user;
    sherd_session *session;
    int line = overflow_after(1, options, &session);
    if (line) return line;
    EXPECT(strcmp(sherd_last_error(), "step 1: loss or gradients overflow fp16 at a loss scale of 1, the least that "
                                      "train.loss_scale.minimum allows; first in rank 1's gradient of middle, in "
                                      "micro-step 5") == 0);
    EXPECT(sherd_step_begin(session, 1) == SHERD_STATE);
    sherd_session_destroy(session);
    return 0;
}

Test(precision, an_overflow_at_the_least_scale_ends_the_run_on_every_rank, .timeout = 30) {
    sherd_options options = toy_options(2, 2, SHERD_GATHER_AUTO, SHERD_FP16);
    options.loss_scale.initial = 2;
    int line = run_ranks(2, &options, overflow_at_the_minimum, NULL);
    cr_assert_eq(line, 0, "line %d", line);
}

static int overflow_in_bf16(void *user, const sherd_options *options) {
    (void)user;
    sherd_session *session;
    int line = overflow_after(0, options, &session);
    if (line) return line;
    EXPECT(strstr(sherd_last_error(), "step 0: loss is "));
    EXPECT(sherd_step_begin(session, 1) == SHERD_STATE);
    sherd_session_destroy(session);
    return 0;
}

Test(precision, an_overflow_in_bf16_ends_the_run_on_every_rank, .timeout = 30) {
    sherd_options options = toy_options(2, 2, SHERD_GATHER_AUTO, SHERD_BF16);
    int line = run_ranks(2, &options, overflow_in_bf16, NULL);
    cr_assert_eq(line, 0, "line %d", line);
}

/* --- checkpoints -------------------------------------------------------------------------------------------------- */

static float value_at(int32_t tensor, int64_t i) { return (float)(i + 1) / (float)(3 + tensor); }

static sherd_status fill_thirds(void *user, int32_t tensor, int64_t first, int64_t count, float *values) {
    (void)user;
    for (int64_t i = 0; i < count; i++) values[i] = value_at(tensor, first + i);
    return SHERD_OK;
}

static int save_thirds(void *user, const sherd_options *options) {
    sherd_session *session;
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    EXPECT(sherd_session_fill(session, fill_thirds, NULL) == SHERD_OK);
    EXPECT(sherd_session_save(session, user, NULL) == SHERD_OK);
    sherd_session_destroy(session);
    return 0;
}

/* Loaded into an fp32 session: masters have kept their bits, frozen values have been rounded to bf16. */
static sherd_status check_thirds(void *user, const sherd_view *view) {
    const sherd_options *options = user;
    for (int32_t t = 0; t < TOY_TENSORS; t++) {
        const void *values = view->parameters[t];
        for (int64_t i = 0; values && i < toy_count(t); i++) {
            float saved = value_at(t, i), lent;
            uint16_t half = shd_bf16_round(saved);
            if (toy_model()->tensors[t].frozen) saved = shd_bf16_widen(half);
            if (options->precision == SHERD_BF16) saved = shd_bf16_widen(shd_bf16_round(saved));
            shd_widen(options->precision, 1, (const char *)values + i * shd_dtype_bytes(options->precision), &lent);
            if (lent != saved) return SHERD_DATA;
        }
    }
    return SHERD_OK;
}

static sherd_status no_gradient(void *user, const sherd_view *view) {
    (void)user;
    for (int32_t t = 0; t < TOY_TENSORS; t++)
        if (view->gradients[t]) memset(view->gradients[t], 0, (size_t)toy_count(t) * sizeof(float));
    return SHERD_OK;
}

static int load_thirds(void *user, const sherd_options *options) {
    sherd_session *session;
    sherd_options copy = *options;
    const sherd_callbacks callbacks = {
        .size = sizeof callbacks, .forward = check_thirds, .backward = no_gradient, .user = &copy};
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    EXPECT(sherd_session_load(session, user, NULL) == SHERD_OK);
    EXPECT(sherd_run_step(session, 1, &callbacks, NULL) == SHERD_OK);
    sherd_session_destroy(session);
    return 0;
}

Test(precision, a_checkpoint_holds_masters_and_widened_frozen_values, .timeout = 60) {
    for (int ranks = 1; ranks <= 3; ranks++)
        for (int stage = 0; stage <= 3; stage++) {
            char dir[40];
            make_folder(dir);
            sherd_options options = toy_options(ranks, stage, SHERD_GATHER_COPY, SHERD_BF16);
            int line = run_ranks(ranks, &options, save_thirds, dir);
            cr_assert_eq(line, 0, "%d ranks, stage %d: line %d", ranks, stage, line);
            for (int again = 0; again <= 1; again++) {
                options.precision = again ? SHERD_BF16 : SHERD_FP32;
                line = run_ranks(ranks, &options, load_thirds, dir);
                cr_assert_eq(line, 0, "%d ranks, stage %d, %s: line %d", ranks, stage,
                             shd_dtype_text(options.precision), line);
            }
            remove_folder(dir);
        }
}
