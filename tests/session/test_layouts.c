/* What is saved on any layout is loaded on any other, and goes on with the bits of a run that was never interrupted. */
#include "session/story.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* --- 20 layouts, each to each ------------------------------------------------------------------------------------- */

enum { LAYOUTS = 20 };
static const int rank_counts[] = {1, 2, 3, 4, 8};

static int ranks_of(int layout) { return rank_counts[layout / 4]; }

static sherd_options layout_options(int layout) {
    return story_options(ranks_of(layout), layout % 4, layout % 3 ? SHERD_GATHER_AUTO : SHERD_GATHER_COPY);
}

typedef struct round_trip {
    char dirs[LAYOUTS][40];
    story whole;            /* that of the first layout */
    int32_t loaded, failed; /* rank 0's */
} round_trip;

/* One session loads what each layout has saved, one after the other, and goes on each time. */
static int load_all(void *user, const sherd_options *options) {
    round_trip *trip = user;
    sherd_session *session;
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    for (int from = 0; from < LAYOUTS; from++) {
        story resumed = {.dir = trip->dirs[from]};
        EXPECT(sherd_session_load(session, resumed.dir, NULL) == SHERD_OK);
        EXPECT(sherd_session_step_count(session) == SAVED_AFTER);
        int line = take_steps(session, options, STEPS, &resumed);
        if (line) return line;
        if (options->rank > 0) continue;
        trip->loaded++;
        trip->failed += !is_same_story(&trip->whole, &resumed);
    }
    sherd_session_destroy(session);
    return 0;
}

static void make_all(round_trip *trip, const sherd_options *change) {
    for (int layout = 0; layout < LAYOUTS; layout++) {
        make_folder(trip->dirs[layout]);
        story told = {.dir = trip->dirs[layout]};
        sherd_options options = layout_options(layout);
        options.optimizer = change->optimizer;
        int line = run_ranks(ranks_of(layout), &options, train_and_save, &told);
        cr_assert_eq(line, 0, "layout %d: line %d", layout, line);
        if (layout == 0) trip->whole = told;
        cr_assert(is_same_story(&trip->whole, &told), "layout %d trains otherwise", layout);
        cr_assert_eq(count_entries(told.dir, "step-"), 1);
    }
}

static void remove_all(const round_trip *trip) {
    for (int layout = 0; layout < LAYOUTS; layout++) remove_folder(trip->dirs[layout]);
}

static void each_to_each(const sherd_options *change) {
    round_trip trip = {.loaded = 0};
    make_all(&trip, change);
    for (int layout = 0; layout < LAYOUTS; layout++) {
        sherd_options options = layout_options(layout);
        options.optimizer = change->optimizer;
        int line = run_ranks(ranks_of(layout), &options, load_all, &trip);
        cr_assert_eq(line, 0, "on layout %d: line %d: %s", layout, line, sherd_last_error());
        cr_assert_eq(trip.failed, 0, "on layout %d: %d went on otherwise", layout, trip.failed);
    }
    cr_assert_eq(trip.loaded, LAYOUTS * LAYOUTS);
    remove_all(&trip);
}

Test(layouts, any_ranks_and_stage_go_on_with_the_bits_of_any_others, .timeout = 300) {
    const sherd_options adamw = story_options(1, 0, SHERD_GATHER_AUTO);
    each_to_each(&adamw);
}

/* --- a path of layouts for all else ------------------------------------------------------------------------------- */

typedef struct place {
    int ranks, stage, replicas;
    sherd_gather gather;
} place;

static sherd_options place_options(const sherd_options *change, const place *at) {
    sherd_options options = *change;
    options.stage = at->stage;
    options.replicas = at->replicas;
    options.gather = at->gather;
    options.micro_steps = BATCH / at->ranks;
    return options;
}

/* Of each place to each other, with the optimizer and precision of `change`. */
static void check_path(const sherd_options *change, const place *places, int count) {
    story whole = {.dir = NULL};
    for (int from = 0; from < count; from++) {
        char dir[40];
        make_folder(dir);
        story told = {.dir = dir};
        sherd_options options = place_options(change, &places[from]);
        int line = run_ranks(places[from].ranks, &options, train_and_save, &told);
        cr_assert_eq(line, 0, "place %d: line %d", from, line);
        if (from == 0) whole = told;
        cr_assert(is_same_story(&whole, &told), "place %d trains otherwise", from);
        for (int to = 0; to < count; to++) {
            story resumed = {.dir = dir};
            options = place_options(change, &places[to]);
            line = run_ranks(places[to].ranks, &options, load_and_train, &resumed);
            cr_assert_eq(line, 0, "from place %d to %d: line %d: %s", from, to, line, sherd_last_error());
            cr_assert(is_same_story(&whole, &resumed), "from place %d to %d it goes on otherwise", from, to);
        }
        remove_folder(dir);
    }
}

static const place shards[] = {{1, 0, 1, SHERD_GATHER_AUTO},
                               {3, 2, 1, SHERD_GATHER_COPY},
                               {2, 0, 1, SHERD_GATHER_AUTO},
                               {4, 3, 1, SHERD_GATHER_AUTO},
                               {2, 3, 1, SHERD_GATHER_COPY}};
enum { SHARDS = sizeof shards / sizeof *shards };

static void check_everywhere(sherd_optimizer_kind kind, double momentum, sherd_dtype precision, sherd_dtype states) {
    sherd_options change = story_options(1, 0, SHERD_GATHER_AUTO);
    change.optimizer.kind = kind;
    change.optimizer.momentum = momentum;
    change.optimizer.state_dtype = states;
    change.precision = precision;
    change.loss_scale.initial = 1024;
    change.loss_scale.growth_interval = 3; /* grows after the checkpoint, by what it tells of the steps before */
    check_path(&change, shards, SHARDS);
}

Test(layouts, states_in_8_bits, .timeout = 120) { check_everywhere(SHERD_ADAMW, 0, SHERD_FP32, SHERD_INT8); }
Test(layouts, one_state_in_8_bits, .timeout = 120) { check_everywhere(SHERD_SGD, 0.9, SHERD_FP32, SHERD_INT8); }
Test(layouts, no_state_at_all, .timeout = 120) { check_everywhere(SHERD_SGD, 0, SHERD_FP32, SHERD_FP32); }
Test(layouts, masters_and_frozen_values_of_bf16, .timeout = 120) {
    check_everywhere(SHERD_ADAMW, 0, SHERD_BF16, SHERD_FP32);
}
Test(layouts, masters_and_loss_scale_of_fp16, .timeout = 120) {
    check_everywhere(SHERD_LION, 0, SHERD_FP16, SHERD_FP32);
}
Test(layouts, tensors_that_muon_owns, .timeout = 120) { check_everywhere(SHERD_MUON, 0.95, SHERD_FP32, SHERD_FP32); }
Test(layouts, tensors_that_adafactor_owns, .timeout = 120) {
    check_everywhere(SHERD_ADAFACTOR, 0, SHERD_BF16, SHERD_FP32);
}

Test(layouts, replicas_of_any_shape, .timeout = 120) {
    static const place replicas[] = {{2, 1, 2, SHERD_GATHER_AUTO},
                                     {4, 3, 2, SHERD_GATHER_COPY},
                                     {6, 2, 2, SHERD_GATHER_AUTO},
                                     {8, 3, 2, SHERD_GATHER_AUTO}};
    const sherd_options change = story_options(1, 0, SHERD_GATHER_AUTO);
    check_path(&change, replicas, 4);
}

/* --- into other types --------------------------------------------------------------------------------------------- */

/* Loads from one folder and saves into another. */
static int pass_on(void *user, const sherd_options *options) {
    const char *const *dirs = user;
    sherd_session *session;
    char *note = NULL;
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    EXPECT(sherd_session_load(session, dirs[0], &note) == SHERD_OK);
    EXPECT(sherd_session_save(session, dirs[1], note) == SHERD_OK);
    sherd_note_free(note);
    sherd_session_destroy(session);
    return 0;
}

/* Codes that become numbers become the same codes again, whoever has them meanwhile. */
Test(layouts, codes_survive_a_job_that_keeps_numbers, .timeout = 60) {
    char first[40], second[40];
    make_folder(first);
    make_folder(second);
    const char *const dirs[] = {first, second};
    story whole = {.dir = first}, resumed = {.dir = second};
    sherd_options options = story_options(2, 2, SHERD_GATHER_AUTO);
    options.optimizer.state_dtype = SHERD_INT8;
    cr_assert_eq(run_ranks(2, &options, train_and_save, &whole), 0);
    sherd_options floats = story_options(3, 1, SHERD_GATHER_AUTO);
    int line = run_ranks(3, &floats, pass_on, (void *)(uintptr_t)dirs);
    cr_assert_eq(line, 0, "line %d: %s", line, sherd_last_error());
    options = story_options(4, 3, SHERD_GATHER_COPY);
    options.optimizer.state_dtype = SHERD_INT8;
    cr_assert_eq(run_ranks(4, &options, load_and_train, &resumed), 0);
    cr_assert(is_same_story(&whole, &resumed));
    remove_folder(first);
    remove_folder(second);
}

/* Near what would have been, and not the same: states were rounded. */
Test(layouts, numbers_become_codes, .timeout = 60) {
    char dir[40];
    make_folder(dir);
    story whole = {.dir = dir}, resumed = {.dir = dir};
    sherd_options options = story_options(3, 2, SHERD_GATHER_AUTO);
    cr_assert_eq(run_ranks(3, &options, train_and_save, &whole), 0);
    options = story_options(2, 3, SHERD_GATHER_AUTO);
    options.optimizer.state_dtype = SHERD_INT8;
    int line = run_ranks(2, &options, load_and_train, &resumed);
    cr_assert_eq(line, 0, "line %d: %s", line, sherd_last_error());
    cr_assert(whole.norms[SAVED_AFTER] == resumed.norms[SAVED_AFTER], "parameters are the same");
    cr_assert(!is_same_story(&whole, &resumed));
    for (int step = SAVED_AFTER; step < STEPS; step++)
        cr_assert_float_eq(resumed.norms[step], whole.norms[step], 1e-2 * whole.norms[step]);
    remove_folder(dir);
}

/* What bf16 trained on fp32 goes on with exactly; what is frozen was kept in 16 bits, and comes back as it was. */
Test(layouts, masters_are_whose_precision_they_like, .timeout = 60) {
    char first[40], second[40];
    make_folder(first);
    make_folder(second);
    const char *const dirs[] = {first, second};
    story whole = {.dir = first}, resumed = {.dir = second};
    sherd_options options = story_options(2, 3, SHERD_GATHER_COPY);
    options.precision = SHERD_BF16;
    cr_assert_eq(run_ranks(2, &options, train_and_save, &whole), 0);
    sherd_options floats = story_options(1, 0, SHERD_GATHER_AUTO);
    cr_assert_eq(run_ranks(1, &floats, pass_on, (void *)(uintptr_t)dirs), 0);
    options = story_options(4, 1, SHERD_GATHER_AUTO);
    options.precision = SHERD_BF16;
    cr_assert_eq(run_ranks(4, &options, load_and_train, &resumed), 0);
    cr_assert(is_same_story(&whole, &resumed));
    remove_folder(first);
    remove_folder(second);
}
