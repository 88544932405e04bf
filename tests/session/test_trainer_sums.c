/* Sums of a trainer's own beside the loss. */
#include "tests/support/ranks.h"
#include "tests/support/toy.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { STEPS = 3, EVAL_MICRO_STEPS = 2 };

/* Terms that no sum of doubles keeps: added in any other way than exactly, the ones are lost. */
static sherd_status add_all(sherd_session *session, const sherd_options *options, int64_t at) {
    const double terms[] = {1, 0x1p60, 1, -0x1p60}, half = options->rank == 0 && at == 2 ? INFINITY : 0.5;
    if (sherd_add_metric(session, 0, terms, 4) != SHERD_OK) return SHERD_INTERNAL;
    return sherd_add_metric(session, SHERD_METRICS - 1, &half, 1);
}

static sherd_status pass(void *user, const sherd_view *view) {
    for (int32_t t = 0; view->gradients && t < TOY_TENSORS; t++)
        if (view->gradients[t]) memset(view->gradients[t], 0, (size_t)toy_count(t) * sizeof(float));
    (void)user;
    return SHERD_OK;
}

typedef struct run {
    sherd_session *session;
    const sherd_options *options;
    int64_t step;
} run;

/* Once a micro-batch, inside a bracket. */
static sherd_status forward(void *user, const sherd_view *view) {
    run *now = user;
    return view->unit == 1 ? add_all(now->session, now->options, now->step) : SHERD_OK;
}

static int evaluate(run *now, int32_t ranks) {
    sherd_view view;
    sherd_evaluation result;
    EXPECT(sherd_evaluate_begin(now->session) == SHERD_OK);
    for (int32_t k = 0; k < EVAL_MICRO_STEPS; k++) {
        for (int32_t u = 0; u < TOY_UNITS; u++) {
            EXPECT(sherd_forward_begin(now->session, u, &view) == SHERD_OK);
            EXPECT(sherd_forward_end(now->session, u) == SHERD_OK);
        }
        /* The last rank has nothing to add. */
        if (ranks == 1 || now->options->rank < ranks - 1) EXPECT(add_all(now->session, now->options, 0) == SHERD_OK);
    }
    EXPECT(sherd_evaluate_end(now->session, 1, &result) == SHERD_OK);
    int32_t adders = ranks == 1 ? 1 : ranks - 1;
    EXPECT(result.metrics[0] == 2 * EVAL_MICRO_STEPS * adders);
    EXPECT(result.metrics[SHERD_METRICS - 1] == 0.5 * EVAL_MICRO_STEPS * adders);
    return 0;
}

static int add_and_compare(void *user, const sherd_options *options) {
    (void)user;
    run now = {.options = options};
    const sherd_callbacks callbacks = {.size = sizeof callbacks, .forward = forward, .backward = pass, .user = &now};
    EXPECT(sherd_session_create(options, toy_model(), &now.session) == SHERD_OK);
    EXPECT(sherd_session_fill(now.session, toy_fill, NULL) == SHERD_OK);
    EXPECT(sherd_add_metric(now.session, 0, NULL, 0) == SHERD_STATE);
    for (now.step = 0; now.step < STEPS; now.step++) {
        sherd_step_result result;
        int32_t passes = options->world_size * options->micro_steps;
        EXPECT(sherd_run_step(now.session, 1, &callbacks, &result) == SHERD_OK);
        EXPECT(result.metrics[0] == 2 * passes);
        EXPECT(result.metrics[SHERD_METRICS - 1] == (now.step == 2 ? INFINITY : 0.5 * passes));
        int line = evaluate(&now, options->world_size);
        if (line) return line;
    }
    sherd_session_destroy(now.session);
    return 0;
}

Test(trainer_sums, are_exact_sums_over_ranks_and_micro_batches_that_start_anew_each_time, .timeout = 60) {
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int stage = 0; stage <= 3; stage++) {
            sherd_options options = SHERD_OPTIONS_INIT;
            options.world_size = ranks;
            options.stage = stage;
            options.micro_steps = 2;
            options.eval_micro_steps = EVAL_MICRO_STEPS;
            options.clip = stage % 2;
            options.optimizer.kind = SHERD_SGD;
            int line = run_ranks(ranks, &options, add_and_compare, NULL);
            cr_assert_eq(line, 0, "%d ranks, stage %d: line %d", ranks, stage, line);
        }
}

Test(trainer_sums, that_are_not_there_are_refused) {
    sherd_session *session = NULL;
    sherd_options options = SHERD_OPTIONS_INIT;
    double term = 1;
    cr_assert_eq(sherd_add_metric(NULL, 0, &term, 1), SHERD_ARGUMENT);
    cr_assert_eq(sherd_session_create(&options, toy_model(), &session), SHERD_OK);
    cr_assert_eq(sherd_session_fill(session, toy_fill, NULL), SHERD_OK);
    cr_assert_eq(sherd_step_begin(session, 1), SHERD_OK);
    cr_assert_eq(sherd_add_metric(session, -1, &term, 1), SHERD_ARGUMENT);
    cr_assert_eq(sherd_add_metric(session, SHERD_METRICS, &term, 1), SHERD_ARGUMENT);
    cr_assert(strstr(sherd_last_error(), "metric 2; there are 0 to 1"), "%s", sherd_last_error());
    cr_assert_eq(sherd_add_metric(session, 0, &term, -1), SHERD_ARGUMENT);
    cr_assert_eq(sherd_add_metric(session, 0, NULL, 1), SHERD_ARGUMENT);
    cr_assert_eq(sherd_add_metric(session, 0, NULL, 0), SHERD_OK);
    sherd_session_destroy(session);
}
