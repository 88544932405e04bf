/* Ranks of one job that do not do the same: an error on all of them, in which the ranks and what each did are named. */
#include "runtime/session/setup.h"
#include "support/ranks.h"
#include "support/toy.h"
#include "tests/support/scratch.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 3, BATCH = 12 };

typedef enum divergence { EVALUATES, SAVES, LEAVES } divergence;

struct plot {
    divergence divergence;
    int32_t who;
    bool late; /* only after a step that all took together */
    const char *dir;
};

static sherd_status pass(void *user, const sherd_view *view) {
    (void)user;
    for (int32_t t = 0; t < TOY_TENSORS; t++)
        if (view->gradients[t]) memset(view->gradients[t], 0, (size_t)toy_count(t) * sizeof(float));
    return SHERD_OK;
}

static sherd_status take_step(sherd_session *session, const sherd_options *options) {
    const sherd_callbacks callbacks = {.size = sizeof callbacks, .forward = pass, .backward = pass};
    return sherd_run_step(session, options->micro_steps, &callbacks, NULL);
}

static sherd_status evaluate(sherd_session *session, const sherd_options *options) {
    sherd_status status = sherd_evaluate_begin(session);
    sherd_view view;
    for (int32_t k = 0; k < options->eval_micro_steps && status == SHERD_OK; k++)
        for (int32_t u = 0; u < TOY_UNITS && status == SHERD_OK; u++) {
            status = sherd_forward_begin(session, u, &view);
            if (status == SHERD_OK) status = sherd_forward_end(session, u);
        }
    sherd_evaluation result;
    return status == SHERD_OK ? sherd_evaluate_end(session, 1, &result) : status;
}

/* All step but one. A slow rank may hear of it before it comes to the step. */
static int diverge(void *user, const sherd_options *options) {
    const struct plot *plot = user;
    sherd_session *session;
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    sherd_status status = sherd_session_fill(session, toy_fill, NULL);
    if (status == SHERD_OK && plot->late) status = take_step(session, options);
    bool other = options->rank == plot->who;
    EXPECT(status == SHERD_OK || !other);
    if (other && plot->divergence == LEAVES) {
        sherd_session_destroy(session);
        return 0;
    }
    if (status == SHERD_OK)
        status = !other                          ? take_step(session, options)
                 : plot->divergence == EVALUATES ? evaluate(session, options)
                                                 : sherd_session_save(session, plot->dir, NULL);
    const char *said = sherd_last_error();
    char name[16];
    snprintf(name, sizeof name, "rank %d", plot->who);
    EXPECT(strstr(said, name));
    if (plot->divergence == LEAVES) {
        EXPECT(status == SHERD_PEER && strstr(said, "ended its session while rank"));
    } else {
        EXPECT(status == SHERD_MISMATCH);
        const char *first = strstr(said, "rank "), *second = strstr(first + 1, "rank ");
        EXPECT(second && first[5] != second[5]);
    }
    EXPECT(take_step(session, options) != SHERD_OK);
    sherd_session_destroy(session);
    return 0;
}

static void diverge_everywhere(divergence how) {
    char dir[SCRATCH_BYTES], command[64];
    cr_assert(scratch_folder(dir));
    for (int stage = 0; stage <= 3; stage++)
        for (int gather = SHERD_GATHER_SHARED; gather <= SHERD_GATHER_COPY; gather++)
            for (int late = 0; late <= 1; late++) {
                if (stage == 0 && gather == SHERD_GATHER_SHARED) continue;
                sherd_options options = SHERD_OPTIONS_INIT;
                options.stage = stage;
                options.gather = (sherd_gather)gather;
                options.micro_steps = BATCH / RANKS;
                options.eval_micro_steps = 1;
                options.optimizer.kind = SHERD_SGD;
                options.timeout_s = options.start_timeout_s = 30;
                struct plot plot = {.divergence = how, .who = (stage + late) % RANKS, .late = late, .dir = dir};
                int line = run_ranks(RANKS, &options, diverge, &plot);
                cr_assert_eq(line, 0, "stage %d, gather %d, late %d: line %d", stage, gather, late, line);
            }
    snprintf(command, sizeof command, "rm -rf %s", dir);
    cr_assert_eq(system(command), 0);
}

Test(divergence, a_rank_that_evaluates_while_the_others_step_is_named_on_all, .timeout = 60) {
    diverge_everywhere(EVALUATES);
}
Test(divergence, a_rank_that_saves_while_the_others_step_is_named_on_all, .timeout = 60) { diverge_everywhere(SAVES); }
Test(divergence, a_rank_that_leaves_while_the_others_step_is_named_on_all, .timeout = 60) {
    diverge_everywhere(LEAVES);
}

/* Rank 2 holds something else than the others. */
static int compare(void *user, const sherd_options *options) {
    (void)user;
    sherd_session *session;
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    EXPECT(shd_session_compare(session, "data", 0x1234) == SHERD_OK);
    EXPECT(shd_session_compare(session, "data", options->rank == 2 ? 0x99 : 0x1234) == SHERD_DATA);
    EXPECT(strcmp(sherd_last_error(), "rank 2 has other data than rank 0 (fingerprints 0000000000000099 and "
                                      "0000000000001234)") == 0);
    /* The session lives on. */
    EXPECT(sherd_session_fill(session, toy_fill, NULL) == SHERD_OK);
    sherd_session_destroy(session);
    return 0;
}

Test(divergence, of_what_ranks_must_share_is_named_on_all_of_them, .timeout = 30) {
    sherd_options options = SHERD_OPTIONS_INIT;
    options.micro_steps = BATCH / RANKS;
    options.timeout_s = options.start_timeout_s = 20;
    cr_assert_eq(run_ranks(RANKS, &options, compare, NULL), 0);
}
