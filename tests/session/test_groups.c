/* Groups, decay patterns and layer-wise learning rates, through whole sessions: against float64, and the same bits for
 * any number of ranks and at every stage. */
#include "support/ranks.h"
#include "support/textbook.h"
#include "support/toy.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 8, STEPS = 100, LARGEST = 17 * 33 };

/* The gradient of a sample: not of the parameters, so that errors do not feed on themselves. Never near zero on average
 * over a batch, where a sign would flip on rounding. */
static double wave(int32_t tensor, int64_t i, int64_t sample) {
    int64_t phase = (i * 5 + tensor * 3 + sample * 7) % 19;
    return (double)(phase - 9) / 16 + (i % 2 ? 0.75 : -0.75);
}

typedef struct trainer {
    int32_t rank, world_size;
    int64_t step;
    float (*last)[LARGEST]; /* [TOY_TENSORS], parameters as the last forward found them; NULL: not kept */
} trainer;

static sherd_status forward(void *user, const sherd_view *view) {
    const trainer *run = user;
    for (int32_t t = 0; t < TOY_TENSORS && run->last; t++)
        if (view->parameters[t]) memcpy(run->last[t], view->parameters[t], (size_t)toy_count(t) * sizeof(float));
    return SHERD_OK;
}

/* The head writes the shared table's gradient; the embedding adds nothing. */
static sherd_status backward(void *user, const sherd_view *view) {
    const trainer *run = user;
    int64_t sample = run->step * BATCH + (int64_t)view->micro_step * run->world_size + run->rank;
    for (int32_t t = 0; t < TOY_TENSORS; t++)
        for (int64_t i = 0; view->gradients[t] && view->unit > 0 && i < toy_count(t); i++)
            view->gradients[t][i] = (float)wave(t, i, sample) * view->loss_scale;
    return SHERD_OK;
}

static int train(void *user, const sherd_options *options) {
    sherd_session *session;
    trainer run = {.rank = options->rank, .world_size = options->world_size};
    if (options->rank == 0) run.last = user;
    const sherd_callbacks callbacks = {
        .size = sizeof callbacks, .forward = forward, .backward = backward, .user = &run};
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    EXPECT(sherd_session_fill(session, toy_fill, NULL) == SHERD_OK);
    for (run.step = 0; run.step <= STEPS; run.step++) {
        sherd_step_result result;
        EXPECT(sherd_run_step(session, options->micro_steps, &callbacks, &result) == SHERD_OK);
        EXPECT(result.lr == 0.01);
    }
    sherd_session_destroy(session);
    return 0;
}

/* What each tensor has, worked out by hand. Units: table 0, gain and matrix 1, bias 3, of 4: layer factors 0.5³, 0.5²,
 * 1. */
static const char *const decaying[] = {"ma*"};
static const sherd_optimizer_group groups[] = {{"matrix", 2, -1}, {"[gb]*", 0.5, 0.125}, {"*", 1, -1}};
static const struct {
    double lr_factor, weight_decay;
} rules[TOY_TENSORS] = {
    [TOY_TABLE] = {0.125, 0}, [TOY_GAIN] = {0.125, 0.125}, [TOY_MATRIX] = {0.5, 0.25}, [TOY_BIAS] = {0.5, 0.125}};

static void check_against_textbook(const sherd_optimizer *optimizer, float (*parameters)[LARGEST]) {
    for (int32_t t = 0; t < TOY_TENSORS; t++) {
        if (toy_model()->tensors[t].frozen) continue;
        for (int64_t i = 0; i < toy_count(t); i++) {
            float start;
            toy_fill(NULL, t, i, 1, &start);
            textbook element = {.p = (double)start};
            for (int64_t step = 0; step < STEPS; step++) {
                double gradient = 0;
                for (int64_t b = 0; b < BATCH; b++) gradient += wave(t, i, step * BATCH + b) / BATCH;
                textbook_step(optimizer, &element, gradient, step, optimizer->lr * rules[t].lr_factor,
                              rules[t].weight_decay);
            }
            cr_assert_not(element.ambiguous);
            cr_assert_float_eq(parameters[t][i], element.p, 1e-5 * (1 + fabs(element.p)),
                               "kind %d, tensor %d, element %d: %.9g, not %.9g", optimizer->kind, t, (int)i,
                               parameters[t][i], element.p);
        }
    }
}

static void train_everywhere(const sherd_optimizer *kind) {
    static float first[TOY_TENSORS][LARGEST], other[TOY_TENSORS][LARGEST];
    for (int ranks = 1; ranks <= 4; ranks *= 2)
        for (int stage = 0; stage <= 3; stage++) {
            sherd_options options = SHERD_OPTIONS_INIT;
            bool is_first = ranks == 1 && stage == 0;
            options.stage = stage;
            options.micro_steps = BATCH / ranks;
            options.timeout_s = options.start_timeout_s = 30;
            options.optimizer = *kind;
            int line = run_ranks(ranks, &options, train, is_first ? first : other);
            cr_assert_eq(line, 0, "%d ranks, stage %d: line %d: %s", ranks, stage, line, sherd_last_error());
            if (is_first)
                check_against_textbook(kind, first);
            else
                cr_assert_eq(memcmp(first, other, sizeof first), 0, "%d ranks, stage %d: other bits", ranks, stage);
        }
}

static sherd_optimizer with_groups(sherd_optimizer_kind kind) {
    sherd_optimizer optimizer = SHERD_OPTIMIZER_INIT;
    optimizer.kind = kind;
    optimizer.lr = 0.01;
    optimizer.weight_decay = 0.25;
    optimizer.layer_lr_decay = 0.5;
    optimizer.decay = SHERD_DECAY_PATTERNS;
    optimizer.decay_patterns = decaying;
    optimizer.decay_pattern_count = 1;
    optimizer.groups = groups;
    optimizer.group_count = 3;
    return optimizer;
}

Test(groups, adamw_follows_them_everywhere, .timeout = 60) {
    sherd_optimizer optimizer = with_groups(SHERD_ADAMW);
    train_everywhere(&optimizer);
}

Test(groups, adam_follows_them_everywhere, .timeout = 60) {
    sherd_optimizer optimizer = with_groups(SHERD_ADAM);
    train_everywhere(&optimizer);
}

Test(groups, lion_follows_them_everywhere, .timeout = 60) {
    sherd_optimizer optimizer = with_groups(SHERD_LION);
    train_everywhere(&optimizer);
}

Test(groups, nesterov_follows_them_everywhere, .timeout = 60) {
    sherd_optimizer optimizer = with_groups(SHERD_SGD);
    optimizer.momentum = 0.9;
    optimizer.nesterov = true;
    train_everywhere(&optimizer);
}

/* They are borrowed during creation only: scribbling over them afterwards changes nothing. */
Test(groups, are_not_looked_at_after_creation, .timeout = 20) {
    char match[] = "matrix";
    sherd_optimizer_group group = {match, 0, -1}; /* the matrix stays */
    sherd_options options = SHERD_OPTIONS_INIT;
    sherd_session *session;
    options.micro_steps = 1;
    options.optimizer.groups = &group;
    options.optimizer.group_count = 1;
    static float last[TOY_TENSORS][LARGEST];
    trainer run = {.world_size = 1, .last = last};
    const sherd_callbacks callbacks = {
        .size = sizeof callbacks, .forward = forward, .backward = backward, .user = &run};
    cr_assert_eq(sherd_session_create(&options, toy_model(), &session), SHERD_OK, "%s", sherd_last_error());
    memset(match, '?', sizeof match - 1);
    group.lr_factor = 7;
    cr_assert_eq(sherd_session_fill(session, toy_fill, NULL), SHERD_OK);
    for (run.step = 0; run.step < 2; run.step++)
        cr_assert_eq(sherd_run_step(session, 1, &callbacks, NULL), SHERD_OK, "%s", sherd_last_error());
    float start[LARGEST];
    toy_fill(NULL, TOY_MATRIX, 0, toy_count(TOY_MATRIX), start);
    cr_assert_eq(memcmp(start, last[TOY_MATRIX], (size_t)toy_count(TOY_MATRIX) * sizeof(float)), 0);
    toy_fill(NULL, TOY_TABLE, 0, toy_count(TOY_TABLE), start);
    cr_assert_neq(memcmp(start, last[TOY_TABLE], (size_t)toy_count(TOY_TABLE) * sizeof(float)), 0);
    sherd_session_destroy(session);
}

Test(groups, a_pattern_that_matches_nothing_is_refused_by_name) {
    static const sherd_optimizer_group nothing = {"table.*", 1, -1};
    sherd_options options = SHERD_OPTIONS_INIT;
    sherd_session *session = NULL;
    options.optimizer.groups = &nothing;
    options.optimizer.group_count = 1;
    cr_assert_eq(sherd_session_create(&options, toy_model(), &session), SHERD_CONFIG);
    cr_assert_null(session);
    cr_assert_str_eq(sherd_last_error(), "optimizer.groups[0].match: \"table.*\" matches no tensor; there are table, "
                                         "offset, gain, nothing, matrix, mask, … bias (7 in all)");
}
