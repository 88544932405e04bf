/* Saving and loading through sessions: what is continued is what would have been. */
#include "session/story.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Trains, saving on the way, and goes on from what was saved; *whole is the story without an interruption. */
static void check_resumed(int ranks, const sherd_options *options, story *whole) {
    char dir[40];
    make_folder(dir);
    *whole = (story){.dir = dir};
    story resumed = {.dir = dir};
    int line = run_ranks(ranks, options, train_and_save, whole);
    cr_assert_eq(line, 0, "%d ranks, stage %d, gather %d: line %d", ranks, options->stage, options->gather, line);
    line = run_ranks(ranks, options, load_and_train, &resumed);
    cr_assert_eq(line, 0, "%d ranks, stage %d, gather %d: line %d", ranks, options->stage, options->gather, line);
    for (int step = SAVED_AFTER; step < STEPS; step++) cr_assert(whole->norms[step] == resumed.norms[step]);
    cr_assert_eq(memcmp(whole->table, resumed.table, sizeof resumed.table), 0);
    remove_folder(dir);
}

Test(store, a_loaded_session_goes_on_with_the_same_bits, .timeout = 120) {
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int stage = 0; stage <= 3; stage++)
            for (int gather = SHERD_GATHER_AUTO; gather <= SHERD_GATHER_COPY; gather += 2) {
                sherd_options options = story_options(ranks, stage, (sherd_gather)gather);
                story whole;
                check_resumed(ranks, &options, &whole);
            }
}

/* Begun and waited for is saved; what became of it is told. */
static int begin_and_wait(void *user, const sherd_options *options) {
    story *told = user;
    sherd_session *session;
    sherd_save_result result;
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    EXPECT(sherd_session_save_begin(session, told->dir, NULL) == SHERD_STATE);
    EXPECT(sherd_session_fill(session, toy_fill, NULL) == SHERD_OK);
    sherd_session_save_result(session, &result);
    EXPECT(result.count == 0 && result.status == SHERD_OK && !*result.cause);
    EXPECT(sherd_session_save_wait(session) == SHERD_OK);
    int line = take_steps(session, options, SAVED_AFTER, told);
    if (line) return line;
    EXPECT(sherd_session_save_begin(session, told->dir, "{\"position\": 24}") == SHERD_OK);
    line = take_steps(session, options, STEPS, told);
    if (line) return line;
    EXPECT(sherd_session_save_wait(session) == SHERD_OK && !sherd_session_save_pending(session));
    sherd_session_save_result(session, &result);
    EXPECT(result.count == 1 && result.step == SAVED_AFTER && result.status == SHERD_OK && !*result.cause);
    EXPECT(result.wait_ms >= 0 && result.seconds > 0);
    sherd_session_destroy(session);
    return 0;
}

Test(store, a_save_that_was_begun_holds_the_state_of_its_begin, .timeout = 60) {
    for (int stage = 0; stage <= 3; stage++) {
        char dir[40];
        make_folder(dir);
        story whole = {.dir = dir}, resumed = {.dir = dir};
        sherd_options options = story_options(2, stage, SHERD_GATHER_AUTO);
        int line = run_ranks(2, &options, begin_and_wait, &whole);
        cr_assert_eq(line, 0, "stage %d: line %d: %s", stage, line, sherd_last_error());
        line = run_ranks(2, &options, load_and_train, &resumed);
        cr_assert_eq(line, 0, "stage %d: line %d", stage, line);
        for (int step = SAVED_AFTER; step < STEPS; step++) cr_assert(whole.norms[step] == resumed.norms[step]);
        cr_assert_eq(memcmp(whole.table, resumed.table, sizeof resumed.table), 0);
        remove_folder(dir);
    }
}

/* Only weights, but not the matrix and the table: training starts anew with them. */
static int load_in_part(void *user, const sherd_options *options) {
    story *told = user;
    static const char *const skipped[] = {"*matrix*", "*table*"}, *const unknown[] = {"bias", "h.*"};
    sherd_session *session;
    sherd_load load = SHERD_LOAD_INIT;
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    load.skip_patterns = skipped;
    load.skip_pattern_count = 2;
    EXPECT(sherd_session_load_with(session, told->dir, &load, NULL) == SHERD_STATE);
    EXPECT(sherd_session_fill(session, toy_fill, NULL) == SHERD_OK);
    load.skip_patterns = unknown;
    EXPECT(sherd_session_load_with(session, told->dir, &load, NULL) == SHERD_CONFIG);
    EXPECT(strstr(sherd_last_error(), "skip_patterns: \"h.*\" matches no tensor"));
    load.skip_patterns = skipped;
    int line = take_steps(session, options, 1, told);
    if (line) return line;
    EXPECT(sherd_session_fill(session, toy_fill, NULL) == SHERD_OK);
    load.weights_only = true;
    EXPECT(sherd_session_load_with(session, told->dir, &load, NULL) == SHERD_OK);
    EXPECT(sherd_session_step_count(session) == 0);
    line = take_steps(session, options, 1, told);
    sherd_session_destroy(session);
    return line;
}

Test(store, weights_are_loaded_alone_and_named_tensors_left_as_they_are, .timeout = 60) {
    for (int stage = 0; stage <= 3; stage++) {
        char dir[40];
        make_folder(dir);
        story whole = {.dir = dir}, part = {.dir = dir};
        sherd_options options = story_options(2, stage, SHERD_GATHER_AUTO);
        cr_assert_eq(run_ranks(2, &options, train_and_save, &whole), 0);
        int line = run_ranks(2, &options, load_in_part, &part);
        cr_assert_eq(line, 0, "stage %d: line %d: %s", stage, line, sherd_last_error());
        float table[17 * 33];
        cr_assert_eq(toy_fill(NULL, TOY_TABLE, 0, 17 * 33, table), SHERD_OK);
        cr_assert_eq(memcmp(part.table, table, sizeof table), 0, "stage %d", stage);
        cr_assert(part.norms[0] != whole.norms[0]); /* the bias is another */
        remove_folder(dir);
    }
}

/* What is logged, on whatever thread. */
static void keep_log(void *user, sherd_log_level level, const char *text) {
    char *kept = user;
    if (level == SHERD_LOG_INFO && strstr(text, "replica")) snprintf(kept, 200, "%s", text);
}

static bool is_there(const char *dir, const char *file) {
    char path[100];
    snprintf(path, sizeof path, "%s/step-%08d/%s", dir, SAVED_AFTER, file);
    return access(path, F_OK) == 0;
}

/* Two replicas of two ranks save; as many go on with the same bits, one or three with almost the same. */
Test(store, replica_0_saves_for_all_and_any_number_of_them_goes_on, .timeout = 120) {
    static const struct {
        int replicas;
        const char *log;
    } others[] = {
        {2, ""}, {1, "saved with 2 replicas, going on with 1:"}, {3, "saved with 2 replicas, going on with 3:"}};
    char log[200];
    sherd_log_set(keep_log, log, SHERD_LOG_INFO);
    for (int stage = 1; stage <= 3; stage++)
        for (int gather = SHERD_GATHER_AUTO; gather <= SHERD_GATHER_COPY; gather += 2) {
            char dir[40];
            make_folder(dir);
            story whole = {.dir = dir};
            sherd_options options = story_options(4, stage, (sherd_gather)gather);
            options.replicas = 2;
            int line = run_ranks(4, &options, train_and_save, &whole);
            cr_assert_eq(line, 0, "stage %d, gather %d: line %d", stage, gather, line);
            cr_assert(is_there(dir, "rank-00000.bin") && is_there(dir, "rank-00001.bin"));
            cr_assert(!is_there(dir, "rank-00002.bin"));
            for (int i = 0; i < 3; i++) {
                story resumed = {.dir = dir};
                int ranks = 2 * others[i].replicas;
                options = story_options(ranks, stage, (sherd_gather)gather);
                options.replicas = others[i].replicas;
                *log = 0;
                line = run_ranks(ranks, &options, load_and_train, &resumed);
                cr_assert_eq(line, 0, "stage %d, gather %d, %d ranks: line %d", stage, gather, ranks, line);
                cr_assert_eq(strncmp(log, others[i].log, strlen(others[i].log)), 0, "%s", log);
                cr_assert(*log || !*others[i].log);
                bool same = memcmp(whole.table, resumed.table, sizeof whole.table) == 0;
                for (int step = SAVED_AFTER; step < STEPS; step++) {
                    double norm = whole.norms[step];
                    same = same && resumed.norms[step] == norm;
                    cr_assert(fabs(resumed.norms[step] - norm) <= 1e-6 * norm);
                }
                cr_assert_eq(same, others[i].replicas == 2, "stage %d, gather %d, %d ranks", stage, gather, ranks);
            }
            remove_folder(dir);
        }
    sherd_log_set(NULL, NULL, SHERD_LOG_INFO);
}

/* --- states in 8 bits --------------------------------------------------------------------------------------------- */

/* The same bits however the state is split, also over an interruption; near those of fp32, and not equal to them. */
static void check_states_in_8_bits(const sherd_optimizer *optimizer) {
    story first, other, floats;
    sherd_options options = story_options(1, 0, SHERD_GATHER_AUTO);
    options.optimizer = *optimizer;
    check_resumed(1, &options, &floats);
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int stage = 0; stage <= 3; stage++)
            for (int gather = SHERD_GATHER_AUTO; gather <= SHERD_GATHER_COPY; gather += 2) {
                options = story_options(ranks, stage, (sherd_gather)gather);
                options.optimizer = *optimizer;
                options.optimizer.state_dtype = SHERD_INT8;
                bool is_first = ranks == 1 && stage == 0 && gather == SHERD_GATHER_AUTO;
                check_resumed(ranks, &options, is_first ? &first : &other);
                if (is_first) continue;
                cr_assert_eq(memcmp(first.table, other.table, sizeof first.table), 0, "%d ranks, stage %d, gather %d",
                             ranks, stage, gather);
                cr_assert_eq(memcmp(first.norms, other.norms, sizeof first.norms), 0);
            }
    cr_assert_neq(memcmp(first.table, floats.table, sizeof first.table), 0);
    double difference = 0;
    for (size_t i = 0; i < sizeof first.table / sizeof *first.table; i++)
        difference = fmax(difference, fabs((double)first.table[i] - floats.table[i]));
    cr_assert_leq(difference, 0.1 * STEPS * optimizer->lr, "%g", difference);
}

static sherd_optimizer optimizer_of(sherd_optimizer_kind kind, double momentum) {
    sherd_optimizer optimizer = SHERD_OPTIMIZER_INIT;
    optimizer.kind = kind;
    optimizer.momentum = momentum;
    optimizer.lr = 0.01;
    return optimizer;
}

Test(store, adamw_in_8_bits_has_the_same_bits_for_any_ranks_and_when_resumed, .timeout = 120) {
    const sherd_optimizer optimizer = optimizer_of(SHERD_ADAMW, 0);
    check_states_in_8_bits(&optimizer);
}

Test(store, momentum_in_8_bits_has_the_same_bits_for_any_ranks_and_when_resumed, .timeout = 120) {
    const sherd_optimizer optimizer = optimizer_of(SHERD_SGD, 0.9);
    check_states_in_8_bits(&optimizer);
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

static int save_fails_then_trains(void *user, const sherd_options *options) {
    story *told = user;
    sherd_session *session;
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    EXPECT(sherd_session_fill(session, toy_fill, NULL) == SHERD_OK);
    int line = take_steps(session, options, 1, told);
    if (line) return line;
    EXPECT(sherd_session_save(session, told->dir, NULL) == SHERD_IO);
    EXPECT(strstr(sherd_last_error(), told->dir));
    line = take_steps(session, options, 2, told);
    sherd_session_destroy(session);
    return line;
}

Test(store, a_save_that_fails_is_an_error_on_all_ranks_and_leaves_the_session_alive, .timeout = 60) {
    char file[40];
    strcpy(file, "/tmp/sherd-session-file-XXXXXX");
    int descriptor = mkstemp(file);
    cr_assert_geq(descriptor, 0);
    close(descriptor);
    story told = {.dir = file}; /* a file where a folder is needed */
    sherd_options options = story_options(2, 3, SHERD_GATHER_AUTO);
    int line = run_ranks(2, &options, save_fails_then_trains, &told);
    cr_assert_eq(line, 0, "line %d", line);
    unlink(file);
}

/* --- what a failure leaves ---------------------------------------------------------------------------------------- */

static sherd_status fill_but_on_rank_1(void *user, int32_t tensor, int64_t first, int64_t count, float *values) {
    const sherd_options *options = user;
    return options->rank == 1 && tensor == TOY_MATRIX ? SHERD_DATA : toy_fill(NULL, tensor, first, count, values);
}

/* A refused checkpoint changes nothing; a fill that fails empties the session, and another one revives it. */
static int fail_and_go_on(void *user, const sherd_options *options) {
    story *told = user;
    sherd_session *session;
    char *note = NULL;
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    EXPECT(sherd_session_fill(session, toy_fill, NULL) == SHERD_OK);
    int line = take_steps(session, options, 1, told);
    if (line) return line;
    EXPECT(sherd_session_load(session, told->dir, &note) == SHERD_DATA);
    EXPECT(strstr(sherd_last_error(), "lion") && !note);
    line = take_steps(session, options, STEPS, told);
    if (line) return line;
    EXPECT(sherd_session_fill(session, fill_but_on_rank_1, (void *)(uintptr_t)options) == SHERD_DATA);
    EXPECT(sherd_step_begin(session, 1) == SHERD_STATE);
    EXPECT(sherd_session_save(session, told->dir, NULL) == SHERD_STATE);
    EXPECT(sherd_session_fill(session, toy_fill, NULL) == SHERD_OK);
    story again = {.dir = told->dir};
    line = take_steps(session, options, STEPS, &again);
    for (int step = 0; options->rank == 0 && step < STEPS; step++) EXPECT(again.norms[step] == told->norms[step]);
    sherd_session_destroy(session);
    return line;
}

Test(store, a_failed_load_or_fill_leaves_a_session_that_can_go_on, .timeout = 60) {
    for (int stage = 0; stage <= 3; stage++)
        for (int gather = SHERD_GATHER_AUTO; gather <= SHERD_GATHER_COPY; gather += 2) {
            char dir[40];
            make_folder(dir);
            story lion = {.dir = dir}, told = {.dir = dir};
            sherd_options options = story_options(2, stage, (sherd_gather)gather);
            options.optimizer.kind = SHERD_LION;
            cr_assert_eq(run_ranks(2, &options, train_and_save, &lion), 0);
            options.optimizer.kind = SHERD_ADAMW;
            int line = run_ranks(2, &options, fail_and_go_on, &told);
            cr_assert_eq(line, 0, "stage %d, gather %d: line %d", stage, gather, line);
            remove_folder(dir);
        }
}

/* A byte of one rank's file is lost: nobody may train on what was read. */
static int load_damaged(void *user, const sherd_options *options) {
    const story *told = user;
    sherd_session *session;
    char *note = NULL;
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    EXPECT(sherd_session_fill(session, toy_fill, NULL) == SHERD_OK);
    EXPECT(sherd_session_load(session, told->dir, &note) == SHERD_DATA);
    EXPECT(!note && sherd_session_step_count(session) == 0);
    EXPECT(sherd_step_begin(session, 1) == SHERD_STATE);
    EXPECT(sherd_session_fill(session, toy_fill, NULL) == SHERD_OK);
    EXPECT(sherd_step_begin(session, 1) == SHERD_OK);
    sherd_session_destroy(session);
    return 0;
}

Test(store, a_damaged_part_is_refused_on_every_rank_and_empties_the_session, .timeout = 60) {
    char dir[40], command[200];
    make_folder(dir);
    story told = {.dir = dir};
    sherd_options options = story_options(2, 3, SHERD_GATHER_AUTO);
    cr_assert_eq(run_ranks(2, &options, train_and_save, &told), 0);
    snprintf(command, sizeof command,
             "f=$(ls %s/step-*/*1* | head -n 1) && "
             "printf '\\377\\376' | dd of=$f bs=1 seek=$(($(stat -c %%s $f) / 2)) conv=notrunc status=none",
             dir);
    cr_assert_eq(system(command), 0);
    int line = run_ranks(2, &options, load_damaged, &told);
    cr_assert_eq(line, 0, "line %d", line);
    remove_folder(dir);
}
