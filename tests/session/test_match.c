/* What a checkpoint must have to be loaded, and how what does not fit is told. */
#include "session/story.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* The toy model with one thing changed. */
typedef enum change {
    CHANGE_NOTHING,
    CHANGE_NAMES,  /* two tensors have other names */
    CHANGE_SHAPES, /* the matrix is a vector, the bias shorter */
    CHANGE_FROZEN, /* the matrix is frozen */
    CHANGE_THAWED, /* the mask is trained */
    CHANGES
} change;

typedef struct variant {
    sherd_tensor tensors[TOY_TENSORS];
    sherd_model model;
} variant;

static void make_variant(change what, variant *out) {
    out->model = *toy_model();
    memcpy(out->tensors, out->model.tensors, sizeof out->tensors);
    out->model.tensors = out->tensors;
    sherd_tensor *matrix = &out->tensors[TOY_MATRIX], *bias = &out->tensors[TOY_BIAS];
    switch (what) {
    case CHANGE_NAMES: matrix->name = "matrices", bias->name = "biases"; return;
    case CHANGE_SHAPES:
        *matrix = (sherd_tensor){.name = "matrix", .dim_count = 1, .shape = {287}};
        bias->shape[0] = 18;
        return;
    case CHANGE_FROZEN: matrix->frozen = true; return;
    case CHANGE_THAWED: out->tensors[TOY_MASK].frozen = false; return;
    default: return;
    }
}

static sherd_status fill_ones(void *user, int32_t tensor, int64_t first, int64_t count, float *values) {
    (void)user, (void)tensor, (void)first;
    for (int64_t i = 0; i < count; i++) values[i] = 1;
    return SHERD_OK;
}

typedef struct trial {
    const char *dir;
    change there, here;
    sherd_load load;
    sherd_optimizer_kind kind;
    double momentum;
    const char *says; /* NULL: it fits */
} trial;

static int save_variant(void *user, const sherd_options *options) {
    const trial *t = user;
    variant made;
    sherd_session *session;
    make_variant(t->there, &made);
    EXPECT(sherd_session_create(options, &made.model, &session) == SHERD_OK);
    EXPECT(sherd_session_fill(session, fill_ones, NULL) == SHERD_OK);
    EXPECT(sherd_session_save(session, t->dir, NULL) == SHERD_OK);
    sherd_session_destroy(session);
    return 0;
}

static int load_variant(void *user, const sherd_options *options) {
    const trial *t = user;
    variant made;
    sherd_session *session;
    make_variant(t->here, &made);
    sherd_options own = *options;
    own.optimizer.kind = t->kind;
    own.optimizer.momentum = t->momentum;
    EXPECT(sherd_session_create(&own, &made.model, &session) == SHERD_OK);
    EXPECT(sherd_session_fill(session, fill_ones, NULL) == SHERD_OK);
    sherd_status status = sherd_session_load_with(session, t->dir, &t->load, NULL);
    EXPECT(status == (t->says ? SHERD_DATA : SHERD_OK));
    EXPECT(!t->says || strstr(sherd_last_error(), t->says));
    EXPECT(!t->says || strstr(sherd_last_error(), "step-00000000: "));
    EXPECT(sherd_step_begin(session, 1) == SHERD_OK); /* a refusal leaves the session as it was */
    sherd_session_destroy(session);
    return 0;
}

static void try_all(trial *trials, size_t count) {
    for (size_t i = 0; i < count; i++) {
        char dir[40];
        make_folder(dir);
        trials[i].dir = dir;
        trials[i].load.size = sizeof trials[i].load;
        sherd_options options = story_options(2, (int)i % 4, SHERD_GATHER_AUTO);
        int line = run_ranks(2, &options, save_variant, &trials[i]);
        cr_assert_eq(line, 0, "trial %zu: line %d", i, line);
        options = story_options(3, 3 - (int)i % 4, SHERD_GATHER_AUTO);
        line = run_ranks(3, &options, load_variant, &trials[i]);
        cr_assert_eq(line, 0, "trial %zu: line %d", i, line);
        remove_folder(dir);
    }
}

#define TRY(...)                                                                                                       \
    do {                                                                                                               \
        trial trials[] = {__VA_ARGS__};                                                                                \
        try_all(trials, sizeof trials / sizeof *trials);                                                               \
    } while (0)

Test(match, tensors_that_are_missing_unknown_or_of_another_shape_are_listed, .timeout = 60) {
    TRY({.here = CHANGE_NAMES,
         .says =
             "saved by another model: it lacks matrices, biases; it has matrix, bias, which this job does not know"},
        {.there = CHANGE_SHAPES,
         .says = "saved by another model: it has matrix [287] instead of [7, 41], bias [18] instead of [19]"},
        {.here = CHANGE_NAMES,
         .load = {.weights_only = true},
         .says = "it lacks matrices, biases; it has matrix, bias"});
}

Test(match, what_is_skipped_need_not_fit, .timeout = 60) {
    static const char *const both[] = {"matri*", "bias*"}, *const one[] = {"matri*"};
    TRY({.here = CHANGE_NAMES, .load = {.skip_patterns = both, .skip_pattern_count = 2}},
        {.here = CHANGE_SHAPES, .load = {.skip_patterns = both, .skip_pattern_count = 2}},
        {.here = CHANGE_SHAPES,
         .load = {.skip_patterns = one, .skip_pattern_count = 1},
         .says = "saved by another model: it has bias [19] instead of [18]"});
}

Test(match, a_tensor_that_is_frozen_now_needs_no_state_and_one_that_is_trained_now_does, .timeout = 60) {
    TRY({.here = CHANGE_FROZEN},
        {.there = CHANGE_FROZEN,
         .says = "it has no optimizer state of this job's kind for matrix, which was frozen "
                 "then; load its weights only, or set that as it was"},
        {.there = CHANGE_FROZEN, .load = {.weights_only = true}},
        {.here = CHANGE_THAWED, .says = "for mask, which was frozen then"},
        {.here = CHANGE_THAWED, .there = CHANGE_THAWED}, {.there = CHANGE_THAWED});
}

Test(match, the_optimizer_must_be_the_same_or_weights_alone_are_wanted, .timeout = 60) {
    TRY({.kind = SHERD_LION, .says = "saved with optimizer.name: adamw, but this job has lion"},
        {.kind = SHERD_LION, .load = {.weights_only = true}}, {.kind = SHERD_MUON, .load = {.weights_only = true}},
        {.kind = SHERD_ADAFACTOR, .load = {.weights_only = true}}, {.kind = SHERD_SGD, .load = {.weights_only = true}});
}

/* --- the values of what is loaded in part ------------------------------------------------------------------------- */

static int look(void *user, const sherd_options *options) {
    const trial *t = user;
    sherd_session *session;
    sherd_view view;
    static const char *const skipped[] = {"table"};
    const sherd_load load = {.size = sizeof load, .skip_patterns = skipped, .skip_pattern_count = 1};
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    EXPECT(sherd_session_fill(session, toy_fill, NULL) == SHERD_OK);
    EXPECT(sherd_session_load_with(session, t->dir, &load, NULL) == SHERD_OK);
    EXPECT(sherd_step_begin(session, 1) == SHERD_OK);
    for (int32_t u = 0; u < TOY_UNITS; u++) {
        EXPECT(sherd_forward_begin(session, u, &view) == SHERD_OK);
        for (int32_t tensor = 0; tensor < TOY_TENSORS; tensor++) {
            const float *values = view.parameters[tensor];
            for (int64_t i = 0; values && i < toy_count(tensor); i++) {
                float filled;
                toy_fill(NULL, tensor, i, 1, &filled);
                EXPECT(values[i] == (tensor == TOY_TABLE ? filled : 1));
            }
        }
        EXPECT(sherd_forward_end(session, u) == SHERD_OK);
    }
    sherd_session_destroy(session);
    return 0;
}

Test(match, skipped_tensors_keep_their_values_and_all_others_have_the_checkpoints, .timeout = 60) {
    char dir[40];
    make_folder(dir);
    trial ones = {.dir = dir};
    sherd_options options = story_options(2, 3, SHERD_GATHER_AUTO);
    cr_assert_eq(run_ranks(2, &options, save_variant, &ones), 0);
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int stage = 0; stage <= 3; stage++) {
            options = story_options(ranks, stage, ranks % 2 ? SHERD_GATHER_AUTO : SHERD_GATHER_COPY);
            int line = run_ranks(ranks, &options, look, &ones);
            cr_assert_eq(line, 0, "%d ranks, stage %d: line %d: %s", ranks, stage, line, sherd_last_error());
        }
    remove_folder(dir);
}
