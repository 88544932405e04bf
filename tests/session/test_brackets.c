/* Training through brackets, against a brute-force trainer, bit for bit. */
#include "runtime/base/memory.h"
#include "support/ranks.h"
#include "support/toy.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 24, STEPS = 3 };

static int train(void *user, const sherd_options *options) {
    (void)user;
    sherd_session *session;
    toy_oracle oracle;
    toy_oracle_init(&oracle);
    oracle.blocks = options->replicas;
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    EXPECT(sherd_session_fill(session, toy_fill, NULL) == SHERD_OK);
    int64_t calls = 0;
    for (int step = 0; step < STEPS; step++) {
        sherd_step_result result;
        int line = toy_step(session, &oracle, options, &result);
        if (line) return line;
        /* Steps after the first allocate nothing. */
        if (step == 1) calls = shd_memory_calls();
        if (step == 2) EXPECT(shd_memory_calls() == calls);
        toy_oracle_step(&oracle, BATCH, 0.125f);
        double square_sum = 0;
        for (int32_t t = 0; t < TOY_TENSORS; t++)
            for (int64_t i = 0; i < toy_count(t); i++)
                square_sum += (double)oracle.gradients[t][i] * oracle.gradients[t][i];
        EXPECT(fabs(result.grad_norm - sqrt(square_sum)) <= 1e-12 * sqrt(square_sum));
        EXPECT(result.loss == (step * BATCH * BATCH + BATCH * (BATCH - 1) / 2) / (double)BATCH);
        /* What one rank raises, all see, in the same step and once. */
        EXPECT(result.flags == (step == 1 ? 4u | (options->world_size > 1 ? 2u : 0u) : 0u));
        if (step == 0 && options->rank == 0) EXPECT(sherd_raise(session, 4) == SHERD_OK);
        if (step == 0 && options->rank == 1) EXPECT(sherd_raise(session, 2) == SHERD_OK);
        EXPECT(result.target_count == BATCH && result.step == step && result.lr == 0.125);
    }
    EXPECT(sherd_session_step_count(session) == STEPS);
    sherd_session_destroy(session);
    toy_oracle_fini(&oracle);
    return 0;
}

static sherd_options toy_options(int ranks, int stage, sherd_gather gather) {
    sherd_options options = SHERD_OPTIONS_INIT;
    options.stage = stage;
    options.gather = gather;
    options.micro_steps = BATCH / ranks;
    options.optimizer.kind = SHERD_SGD;
    options.optimizer.lr = 0.125;
    options.timeout_s = options.start_timeout_s = 30;
    return options;
}

static void train_everywhere(int ranks, int replicas) {
    for (int stage = replicas > 1; stage <= 3; stage++)
        for (int gather = SHERD_GATHER_SHARED; gather <= SHERD_GATHER_COPY; gather++)
            for (int prefetch = 0; prefetch <= 2; prefetch += stage == 3 ? 1 : 3) {
                if (stage == 0 && gather == SHERD_GATHER_SHARED) continue;
                sherd_options options = toy_options(ranks, stage, (sherd_gather)gather);
                options.prefetch = prefetch;
                options.replicas = replicas;
                for (int recompute = SHERD_RECOMPUTE_NONE; recompute <= SHERD_RECOMPUTE_PART; recompute++) {
                    options.recompute = (sherd_recompute)recompute;
                    int line = run_ranks(ranks, &options, train, NULL);
                    cr_assert_eq(line, 0,
                                 "%d ranks, %d replicas, stage %d, gather %d, prefetch %d, recompute %d: line %d",
                                 ranks, replicas, stage, gather, prefetch, recompute, line);
                }
            }
}

Test(brackets, one_rank_trains_as_brute_force_does, .timeout = 60) { train_everywhere(1, 1); }
Test(brackets, two_ranks_train_as_brute_force_does, .timeout = 60) { train_everywhere(2, 1); }
Test(brackets, three_ranks_train_as_brute_force_does, .timeout = 60) { train_everywhere(3, 1); }
Test(brackets, four_ranks_train_as_brute_force_does, .timeout = 120) { train_everywhere(4, 1); }
Test(brackets, eight_ranks_train_as_brute_force_does, .timeout = 240) { train_everywhere(8, 1); }

/* Their sums are the oracle's of as many blocks. */
Test(brackets, two_replicas_of_one_rank_train_as_brute_force_does, .timeout = 60) { train_everywhere(2, 2); }
Test(brackets, two_replicas_of_two_ranks_train_as_brute_force_does, .timeout = 120) { train_everywhere(4, 2); }
Test(brackets, three_replicas_of_two_ranks_train_as_brute_force_does, .timeout = 120) { train_everywhere(6, 3); }
Test(brackets, two_replicas_of_four_ranks_train_as_brute_force_does, .timeout = 240) { train_everywhere(8, 2); }
Test(brackets, four_replicas_of_two_ranks_train_as_brute_force_does, .timeout = 240) { train_everywhere(8, 4); }

/* With a bound that bites, the update is the oracle's times the clip scale; here only that it bites, alike on all ranks
 * and stages. */
static int train_clipped(void *user, const sherd_options *options) {
    float *first_element = user;
    sherd_session *session;
    toy_oracle oracle;
    toy_oracle_init(&oracle);
    oracle.blocks = options->replicas;
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    EXPECT(sherd_session_fill(session, toy_fill, NULL) == SHERD_OK);
    sherd_step_result result;
    int line = toy_step(session, &oracle, options, &result);
    if (line) return line;
    toy_oracle after = oracle;
    toy_oracle_step(&after, BATCH, 0.125f);
    float scale = (float)(0.5 / (result.grad_norm + 1e-6));
    toy_oracle clipped;
    toy_oracle_init(&clipped);
    for (int32_t t = 0; t < TOY_TENSORS; t++)
        for (int64_t i = 0; i < toy_count(t); i++) clipped.parameters[t][i] -= 0.125f * (after.gradients[t][i] * scale);
    clipped.sample = after.sample;
    EXPECT(result.grad_norm > 0.5);
    line = toy_step(session, &clipped, options, &result);
    if (options->rank == 0) *first_element = clipped.parameters[0][0];
    sherd_session_destroy(session);
    toy_oracle_fini(&clipped);
    toy_oracle_fini(&oracle);
    return line;
}

Test(brackets, clipping_scales_every_gradient_by_the_bound_over_the_norm, .timeout = 60) {
    for (int ranks = 1; ranks <= 4; ranks += ranks)
        for (int stage = 0; stage <= 3; stage++) {
            for (int replicas = 1; replicas <= (stage > 0 ? ranks : 1); replicas += replicas) {
                sherd_options options = toy_options(ranks, stage, SHERD_GATHER_AUTO);
                options.clip = 0.5;
                options.replicas = replicas;
                float first_element;
                int line = run_ranks(ranks, &options, train_clipped, &first_element);
                cr_assert_eq(line, 0, "%d ranks, %d replicas, stage %d: line %d", ranks, replicas, stage, line);
            }
        }
}

/* --- evaluations -------------------------------------------------------------------------------------------------- */

enum { EVAL_MICRO_STEPS = 2 };

/* Every rank adds its own terms; the last one has no data in its last micro-step. */
static int evaluate(sherd_session *session, const toy_oracle *now, const sherd_options *options, double last_term) {
    sherd_view view;
    double sum = 0;
    int64_t targets = 0, all_targets = options->world_size * EVAL_MICRO_STEPS - 1;
    EXPECT(sherd_evaluate_begin(session) == SHERD_OK);
    EXPECT(sherd_backward_begin(session, TOY_UNITS - 1, &view) == SHERD_STATE);
    for (int32_t k = 0; k < EVAL_MICRO_STEPS; k++) {
        bool idle = k == EVAL_MICRO_STEPS - 1 && options->rank == options->world_size - 1;
        for (int32_t u = 0; u < TOY_UNITS; u++) {
            EXPECT(sherd_forward_begin(session, u, &view) == SHERD_OK);
            EXPECT(!view.training && view.micro_step == k && view.loss_scale == 0);
            for (int32_t t = 0; t < TOY_TENSORS; t++) {
                size_t bytes = (size_t)toy_count(t) * sizeof(float);
                EXPECT(!view.gradients[t]);
                if (view.parameters[t]) EXPECT(memcmp(view.parameters[t], now->parameters[t], bytes) == 0);
            }
            EXPECT((view.parameters[TOY_TABLE] != NULL) == (u == 0 || u == TOY_UNITS - 1));
            EXPECT((view.parameters[TOY_MATRIX] != NULL) == (u == 1));
            EXPECT(sherd_forward_end(session, u) == SHERD_OK);
        }
        double term = options->rank == 0 && k == 0 ? last_term : 3 * k + options->rank;
        if (!idle) EXPECT(sherd_add_loss(session, &term, 1) == SHERD_OK);
        targets += !idle;
    }
    for (int32_t k = 0; k < EVAL_MICRO_STEPS; k++)
        for (int r = 0; r < options->world_size; r++)
            if (k < EVAL_MICRO_STEPS - 1 || r < options->world_size - 1)
                sum += r == 0 && k == 0 ? last_term : 3 * k + r;
    EXPECT(sherd_forward_begin(session, 0, &view) == SHERD_STATE);
    EXPECT(strstr(sherd_last_error(), "the end of the evaluation is due"));
    sherd_evaluation result;
    EXPECT(sherd_evaluate_end(session, -1, &result) == SHERD_ARGUMENT);
    EXPECT(sherd_evaluate_end(session, INT64_MAX, &result) == SHERD_ARGUMENT);
    EXPECT(sherd_evaluate_end(session, targets, &result) == SHERD_OK);
    EXPECT(result.target_count == all_targets);
    EXPECT(isnan(last_term) ? isnan(result.loss) : result.loss == sum / (double)all_targets);
    return 0;
}

/* Evaluations see the parameters of the steps before them and change nothing, flags that were raised included. */
static int train_and_evaluate(void *user, const sherd_options *options) {
    (void)user;
    sherd_session *session;
    toy_oracle oracle;
    toy_oracle_init(&oracle);
    oracle.blocks = options->replicas;
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    EXPECT(sherd_session_fill(session, toy_fill, NULL) == SHERD_OK);
    for (int step = 0; step < STEPS; step++) {
        int line = evaluate(session, &oracle, options, step == 1 ? NAN : 0.25);
        if (!line && step == 2) line = evaluate(session, &oracle, options, 7);
        if (line) return line;
        EXPECT(sherd_raise(session, 8) == SHERD_OK);
        line = evaluate(session, &oracle, options, 0.5);
        sherd_step_result result;
        if (!line) line = toy_step(session, &oracle, options, &result);
        if (line) return line;
        EXPECT(result.flags == 8 && result.step == step);
        toy_oracle_step(&oracle, BATCH, 0.125f);
    }
    sherd_session_destroy(session);
    toy_oracle_fini(&oracle);
    return 0;
}

Test(brackets, evaluations_between_steps_see_their_parameters_and_change_nothing, .timeout = 120) {
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int stage = 0; stage <= 3; stage++)
            for (int gather = SHERD_GATHER_SHARED; gather <= SHERD_GATHER_COPY; gather++) {
                if (stage == 0 && gather == SHERD_GATHER_SHARED) continue;
                sherd_options options = toy_options(ranks, stage, (sherd_gather)gather);
                options.clip = ranks % 2 ? 1e30 : 0; /* never bites, but takes the other order of instructions */
                options.eval_micro_steps = EVAL_MICRO_STEPS;
                int line = run_ranks(ranks, &options, train_and_evaluate, NULL);
                cr_assert_eq(line, 0, "%d ranks, stage %d, gather %d: line %d", ranks, stage, gather, line);
            }
}

/* --- misuse ------------------------------------------------------------------------------------------------------- */

Test(brackets, out_of_order_is_refused_with_what_is_due_and_changes_nothing, .timeout = 20) {
    sherd_options options = toy_options(1, 3, SHERD_GATHER_AUTO);
    options.micro_steps = 1;
    sherd_session *session;
    sherd_view view;
    cr_assert_eq(sherd_session_create(&options, toy_model(), &session), SHERD_OK);
    cr_assert_eq(sherd_step_begin(session, 1), SHERD_STATE);
    cr_assert(strstr(sherd_last_error(), "not set yet"), "%s", sherd_last_error());
    cr_assert_eq(sherd_session_fill(session, toy_fill, NULL), SHERD_OK);
    cr_assert_eq(sherd_forward_begin(session, 0, &view), SHERD_STATE);
    cr_assert_eq(sherd_step_begin(session, 1), SHERD_OK);
    cr_assert_eq(sherd_step_begin(session, 1), SHERD_STATE);
    cr_assert_eq(sherd_forward_begin(session, 1, &view), SHERD_STATE);
    cr_assert(strstr(sherd_last_error(), "forward of unit 0 (embedding) is due"), "%s", sherd_last_error());
    cr_assert_eq(sherd_forward_end(session, 0), SHERD_STATE);
    cr_assert_eq(sherd_step(session, NULL), SHERD_STATE);
    cr_assert(strstr(sherd_last_error(), "forward of unit 0 (embedding) is still due"), "%s", sherd_last_error());
    for (int32_t u = 0; u < TOY_UNITS; u++) {
        cr_assert_eq(sherd_forward_begin(session, u, &view), SHERD_OK);
        cr_assert_eq(sherd_forward_begin(session, u, &view), SHERD_STATE);
        cr_assert_eq(sherd_backward_end(session, u), SHERD_STATE);
        cr_assert_eq(sherd_forward_end(session, u), SHERD_OK);
    }
    for (int32_t u = TOY_UNITS; u-- > 0;) {
        cr_assert_eq(sherd_backward_begin(session, u, &view), SHERD_OK);
        for (int32_t t = 0; t < TOY_TENSORS; t++)
            if (view.gradients[t]) memset(view.gradients[t], 0, (size_t)toy_count(t) * sizeof(float));
        cr_assert_eq(sherd_backward_end(session, u), SHERD_OK);
    }
    cr_assert_eq(sherd_backward_begin(session, 0, &view), SHERD_STATE);
    cr_assert(strstr(sherd_last_error(), "the end of the step is due"), "%s", sherd_last_error());
    cr_assert_eq(sherd_evaluate_begin(session), SHERD_STATE);
    cr_assert_eq(sherd_step(session, NULL), SHERD_OK);
    cr_assert_eq(sherd_evaluate_begin(session), SHERD_STATE);
    cr_assert(strstr(sherd_last_error(), "eval_micro_steps 0"), "%s", sherd_last_error());
    sherd_session_destroy(session);
}

Test(brackets, options_out_of_range_are_refused_by_key) {
    static const struct {
        const char *key;
        size_t offset;
        int32_t value;
    } cases[] = {{"shard.stage", offsetof(sherd_options, stage), 4},
                 {"shard.stage", offsetof(sherd_options, stage), -1},
                 {"world_size", offsetof(sherd_options, world_size), 0},
                 {"world_size", offsetof(sherd_options, world_size), 100000},
                 {"rank", offsetof(sherd_options, rank), 1},
                 {"shard.prefetch", offsetof(sherd_options, prefetch), -1},
                 {"train.recompute", offsetof(sherd_options, recompute), 3},
                 {"micro_steps", offsetof(sherd_options, micro_steps), 0},
                 {"eval_micro_steps", offsetof(sherd_options, eval_micro_steps), -1},
                 {"run.on_nonfinite", offsetof(sherd_options, on_nonfinite), 2},
                 {"run.threads", offsetof(sherd_options, threads), 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sherd_options options = SHERD_OPTIONS_INIT;
        memcpy((char *)&options + cases[i].offset, &cases[i].value, sizeof cases[i].value);
        sherd_session *session = NULL;
        cr_assert_eq(sherd_session_create(&options, toy_model(), &session), SHERD_CONFIG);
        cr_assert(strstr(sherd_last_error(), cases[i].key), "%s", sherd_last_error());
        cr_assert_null(session);
    }
}

Test(brackets, numbers_that_are_no_bound_or_duration_are_refused_by_key) {
    static const struct {
        const char *key;
        size_t offset;
        double value;
    } cases[] = {{"train.clip", offsetof(sherd_options, clip), -1},
                 {"train.clip", offsetof(sherd_options, clip), NAN},
                 {"train.clip", offsetof(sherd_options, clip), INFINITY},
                 {"run.timeout_s", offsetof(sherd_options, timeout_s), 0},
                 {"run.timeout_s", offsetof(sherd_options, timeout_s), INFINITY},
                 {"run.start_timeout_s", offsetof(sherd_options, start_timeout_s), NAN}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sherd_options options = SHERD_OPTIONS_INIT;
        memcpy((char *)&options + cases[i].offset, &cases[i].value, sizeof cases[i].value);
        sherd_session *session = NULL;
        cr_assert_eq(sherd_session_create(&options, toy_model(), &session), SHERD_CONFIG, "case %d", (int)i);
        cr_assert(strstr(sherd_last_error(), cases[i].key), "%s", sherd_last_error());
        cr_assert_null(session);
    }
}

/* What rank 1 has of its own: one field. */
typedef struct change {
    sherd_optimizer_kind kind; /* of all ranks */
    size_t offset, bytes;
    const void *value;
} change;
#define CHANGE(kind_, field, type, value_)                                                                             \
    {                                                                                                                  \
        kind_, offsetof(sherd_options, field), sizeof(type), &(type) { value_ }                                        \
    }

static bool accept(void *user, const sherd_step_result *found) {
    (void)user;
    return found->loss < 0;
}

static int refused_for_its_options(void *user, const sherd_options *options) {
    const change *made = user;
    sherd_options mine = *options;
    if (mine.rank == 1) memcpy((char *)&mine + made->offset, made->value, made->bytes);
    sherd_session *session = NULL;
    EXPECT(sherd_session_create(&mine, toy_model(), &session) == SHERD_MISMATCH);
    EXPECT(strstr(sherd_last_error(), "rank 1") && strstr(sherd_last_error(), "rank 0") && !session);
    return 0;
}

Test(brackets, ranks_with_other_options_are_refused_on_every_rank, .timeout = 60) {
    static const sherd_optimizer_group group = {"matrix", 1, -1, SHERD_GROUP_AUTO},
                                       faster = {"matrix", 2, -1, SHERD_GROUP_AUTO};
    change changes[] = {CHANGE(SHERD_ADAMW, stage, int32_t, 1),
                        CHANGE(SHERD_ADAMW, replicas, int32_t, 2),
                        CHANGE(SHERD_ADAMW, gather, sherd_gather, SHERD_GATHER_COPY),
                        CHANGE(SHERD_ADAMW, prefetch, int32_t, 2),
                        CHANGE(SHERD_ADAMW, recompute, sherd_recompute, SHERD_RECOMPUTE_UNIT),
                        CHANGE(SHERD_ADAMW, precision, sherd_dtype, SHERD_BF16),
                        CHANGE(SHERD_ADAMW, reduce_dtype, sherd_dtype, SHERD_BF16),
                        CHANGE(SHERD_ADAMW, loss_scale.initial, double, 1024),
                        CHANGE(SHERD_ADAMW, loss_scale.minimum, double, 2),
                        CHANGE(SHERD_ADAMW, loss_scale.growth_interval, int32_t, 7),
                        CHANGE(SHERD_ADAMW, loss_scale.hysteresis, int32_t, 2),
                        CHANGE(SHERD_ADAMW, micro_steps, int32_t, 7),
                        CHANGE(SHERD_ADAMW, eval_micro_steps, int32_t, 1),
                        CHANGE(SHERD_ADAMW, clip, double, 2),
                        CHANGE(SHERD_ADAMW, on_nonfinite, sherd_nonfinite, SHERD_NONFINITE_SKIP),
                        CHANGE(SHERD_ADAMW, judge, sherd_judge_fn, accept),
                        CHANGE(SHERD_ADAMW, optimizer.kind, sherd_optimizer_kind, SHERD_ADAM),
                        CHANGE(SHERD_ADAMW, optimizer.schedule, sherd_schedule, SHERD_INVERSE_SQRT),
                        CHANGE(SHERD_ADAMW, optimizer.decay, sherd_decay, SHERD_DECAY_ALL),
                        CHANGE(SHERD_ADAMW, optimizer.warmup_steps, int32_t, 3),
                        CHANGE(SHERD_ADAMW, optimizer.total_steps, int64_t, 9),
                        CHANGE(SHERD_ADAMW, optimizer.decay_steps, int64_t, 2),
                        CHANGE(SHERD_ADAMW, optimizer.lr, double, 0.25),
                        CHANGE(SHERD_ADAMW, optimizer.min_lr, double, 0.0625),
                        CHANGE(SHERD_ADAMW, optimizer.beta1, double, 0.5),
                        CHANGE(SHERD_ADAMW, optimizer.beta2, double, 0.5),
                        CHANGE(SHERD_ADAMW, optimizer.eps, double, 1e-6),
                        CHANGE(SHERD_SGD, optimizer.momentum, double, 0.5),
                        CHANGE(SHERD_SGD, optimizer.nesterov, bool, true),
                        CHANGE(SHERD_ADAMW, optimizer.weight_decay, double, 0.25),
                        CHANGE(SHERD_ADAMW, optimizer.layer_lr_decay, double, 0.5),
                        CHANGE(SHERD_ADAMW, optimizer.groups, const sherd_optimizer_group *, &faster),
                        CHANGE(SHERD_MUON, optimizer.ns_steps, int32_t, 4),
                        CHANGE(SHERD_MUON, optimizer.adjust_lr, sherd_adjust_lr, SHERD_ADJUST_LR_ORIGINAL),
                        CHANGE(SHERD_ADAFACTOR, optimizer.beta2_decay, double, -0.5),
                        CHANGE(SHERD_ADAFACTOR, optimizer.update_clip, double, 2),
                        CHANGE(SHERD_ADAFACTOR, optimizer.scale_floor, double, 0),
                        CHANGE(SHERD_ADAMW, optimizer.state_dtype, sherd_dtype, SHERD_INT8)};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        sherd_options options = toy_options(2, 3, SHERD_GATHER_AUTO);
        options.clip = 1;
        options.precision = SHERD_FP16;
        options.optimizer.kind = changes[i].kind;
        options.optimizer.momentum = 0.9;
        options.optimizer.weight_decay = 0.125;
        options.optimizer.groups = &group;
        options.optimizer.group_count = 1;
        int line = run_ranks(2, &options, refused_for_its_options, &changes[i]);
        cr_assert_eq(line, 0, "change %d: line %d", (int)i, line);
    }
}

/* The last rank's second thread gets a stack that no machine has. */
static int last_rank_cannot_start(void *user, const sherd_options *options) {
    (void)user;
    sherd_options mine = *options;
    sherd_session *session = NULL;
    bool last = mine.rank == mine.world_size - 1;
    if (last) {
        pthread_attr_t attributes;
        mine.threads = 2;
        EXPECT(!pthread_attr_init(&attributes) && !pthread_attr_setstacksize(&attributes, (size_t)1 << 50));
        EXPECT(!pthread_setattr_default_np(&attributes));
    }
    EXPECT(sherd_session_create(&mine, toy_model(), &session) == (last ? SHERD_MEMORY : SHERD_PEER));
    EXPECT(strstr(sherd_last_error(), "cannot start compute thread 2 of 2") && !session);
    return 0;
}

Test(brackets, a_rank_that_cannot_start_its_threads_keeps_nobody_waiting, .timeout = 20) {
    sherd_options options = toy_options(3, 3, SHERD_GATHER_AUTO);
    int line = run_ranks(3, &options, last_rank_cannot_start, NULL);
    cr_assert_eq(line, 0, "line %d", line);
}

/* --- a rank that fails -------------------------------------------------------------------------------------------- */

static sherd_status pass(void *user, const sherd_view *view) {
    (void)user;
    for (int32_t t = 0; t < TOY_TENSORS; t++)
        if (view->gradients[t]) memset(view->gradients[t], 0, (size_t)toy_count(t) * sizeof(float));
    return SHERD_OK;
}

static sherd_status fail_at_middle(void *user, const sherd_view *view) {
    const int *failing = user;
    return *failing && view->unit == 1 ? SHERD_DATA : pass(user, view);
}

static int one_rank_fails(void *user, const sherd_options *options) {
    const int *culprit = user;
    sherd_session *session;
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    EXPECT(sherd_session_fill(session, toy_fill, NULL) == SHERD_OK);
    int failing = options->rank == *culprit;
    sherd_callbacks callbacks = {
        .size = sizeof callbacks, .forward = pass, .backward = fail_at_middle, .user = &failing};
    sherd_status status = sherd_run_step(session, 1, &callbacks, NULL);
    EXPECT(status == (failing ? SHERD_DATA : SHERD_PEER));
    char name[32];
    snprintf(name, sizeof name, "rank %d", *culprit);
    EXPECT(failing || strstr(sherd_last_error(), name));
    EXPECT(sherd_step_begin(session, 1) == SHERD_STATE);
    sherd_session_destroy(session);
    return 0;
}

Test(brackets, a_callback_that_fails_on_one_rank_ends_the_step_on_all, .timeout = 60) {
    for (int culprit = 0; culprit < 3; culprit++)
        for (int stage = 0; stage <= 3; stage++) {
            sherd_options options = toy_options(3, stage, SHERD_GATHER_AUTO);
            options.clip = 1;
            int line = run_ranks(3, &options, one_rank_fails, &culprit);
            cr_assert_eq(line, 0, "culprit %d, stage %d: line %d", culprit, stage, line);
        }
}

static int nan_on_one_rank(void *user, const sherd_options *options) {
    (void)user;
    sherd_session *session;
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    EXPECT(sherd_session_fill(session, toy_fill, NULL) == SHERD_OK);
    sherd_callbacks callbacks = {.size = sizeof callbacks, .forward = pass, .backward = pass};
    EXPECT(sherd_run_step(session, 1, &callbacks, NULL) == SHERD_OK);
    double loss = options->rank == 1 ? NAN : 1;
    EXPECT(sherd_step_begin(session, 1) == SHERD_OK);
    EXPECT(sherd_add_loss(session, &loss, 1) == SHERD_OK);
    sherd_view view;
    for (int32_t k = 0; k < options->micro_steps; k++) {
        for (int32_t u = 0; u < TOY_UNITS; u++) {
            EXPECT(sherd_forward_begin(session, u, &view) == SHERD_OK);
            EXPECT(sherd_forward_end(session, u) == SHERD_OK);
        }
        for (int32_t u = TOY_UNITS; u-- > 0;) {
            EXPECT(sherd_backward_begin(session, u, &view) == SHERD_OK);
            pass(NULL, &view);
            EXPECT(sherd_backward_end(session, u) == SHERD_OK);
        }
    }
    EXPECT(sherd_step(session, NULL) == SHERD_NUMERIC);
    EXPECT(strstr(sherd_last_error(), "step 1"));
    sherd_session_destroy(session);
    return 0;
}

Test(brackets, a_loss_that_is_not_finite_is_an_error_on_every_rank, .timeout = 30) {
    sherd_options options = toy_options(2, 3, SHERD_GATHER_AUTO);
    options.micro_steps = 2;
    int line = run_ranks(2, &options, nan_on_one_rank, NULL);
    cr_assert_eq(line, 0, "line %d", line);
}
