/* Saves that are written while training goes on: what they hold, what waits for them, and what may happen meanwhile. */
#include "runtime/base/clock.h"
#include "runtime/base/dtype.h"
#include "runtime/base/memory.h"
#include "runtime/session/internal.h"
#include "runtime/session/setup.h"
#include "session/story.h"
#include "support/scratch.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int start(const sherd_options *options, sherd_session **session) {
    EXPECT(sherd_session_create(options, toy_model(), session) == SHERD_OK);
    EXPECT(sherd_session_fill(*session, toy_fill, NULL) == SHERD_OK);
    return 0;
}

/* --- updates wait ------------------------------------------------------------------------------------------------- */

/* A storage that is slow: each unit of a rank is given back some time after it was taken, and nothing of it may have
 * changed by then. On a busy machine steps may be slower still, and have nothing to wait for: then it is tried again with a
 * slower one. */
enum { SLOW_MS = 4, SLOW_MS_MAX = 5000, NOTHING_WAITED = -2 };
static double slow_ms;
typedef struct slow_storage {
    shd_storage real;
    const shd_save *save;
    char *copies; /* of all slices, one after the other */
    double since_ms;
    bool checked[TOY_UNITS];
    int32_t changed;
} slow_storage;

static size_t slice_bytes(const shd_checkpoint_slice *slice) {
    return (size_t)shd_span_bytes(slice->dtype, slice->count);
}

/* Compares the slices of a unit with their copies (copies: makes these). */
static bool is_unchanged(const slow_storage *slow, int32_t unit, bool copy) {
    const shd_slice_list *stored = &slow->save->stored;
    char *at = slow->copies;
    bool same = true;
    for (int64_t i = 0; i < stored->count; at += slice_bytes(&stored->slices[i++])) {
        if (copy) memcpy(at, stored->slices[i].values, slice_bytes(&stored->slices[i]));
        bool of_unit = i < slow->save->unit_ends[unit] && (unit == 0 || i >= slow->save->unit_ends[unit - 1]);
        if (of_unit) same = same && memcmp(at, stored->slices[i].values, slice_bytes(&stored->slices[i])) == 0;
    }
    return same;
}

static void slow_save(void *user, int32_t unit) {
    slow_storage *slow = user;
    slow->since_ms = shd_clock_ms();
    slow->real.save(slow->real.user, unit);
}

static bool slow_saved(void *user, int32_t unit) {
    slow_storage *slow = user;
    if (slow->save->pending && shd_clock_ms() - slow->since_ms < slow_ms * (unit + 1)) return false;
    if (!slow->real.saved(slow->real.user, unit)) return false;
    if (slow->save->pending && !slow->checked[unit]) {
        slow->checked[unit] = true;
        slow->changed += !is_unchanged(slow, unit, false);
    }
    return true;
}

static shd_save_state slow_state(void *user) {
    slow_storage *slow = user;
    return slow->real.state(slow->real.user);
}

static sherd_status slow_commit(void *user) {
    slow_storage *slow = user;
    return slow->real.commit(slow->real.user);
}

static int train_with_slow_storage(void *user, const sherd_options *options) {
    story *told = user;
    sherd_session *session;
    int line = start(options, &session);
    if (!line) line = take_steps(session, options, SAVED_AFTER, told);
    if (line) return line;
    slow_storage slow = {.real = session->save.storage, .save = &session->save, .copies = calloc(1, 1 << 20)};
    session->save.storage = (shd_storage){
        .user = &slow, .save = slow_save, .saved = slow_saved, .state = slow_state, .commit = slow_commit};
    EXPECT(sherd_session_save_begin(session, told->dir, "{\"position\": 24}") == SHERD_OK);
    is_unchanged(&slow, 0, true);
    line = take_steps(session, options, STEPS, told);
    if (line) return line;
    EXPECT(sherd_session_save_wait(session) == SHERD_OK);
    for (int32_t u = 0; u < TOY_UNITS; u++) EXPECT(slow.checked[u]);
    EXPECT(slow.changed == 0);
    sherd_save_result result;
    sherd_session_save_result(session, &result);
    EXPECT(result.raw_bytes > 0 && result.stored_bytes > result.raw_bytes); /* padding of blocks that are tiny */
    free(slow.copies);
    sherd_session_destroy(session);
    return result.wait_ms > slow_ms / 2 ? 0 : NOTHING_WAITED;
}

static void check_slow(int ranks, const sherd_options *options) {
    char dir[40], plain[40];
    make_folder(dir);
    make_folder(plain);
    story whole = {.dir = plain}, told = {.dir = dir, .looped = options->stage % 2}, resumed = {.dir = dir};
    int line = run_ranks(ranks, options, train_and_save, &whole);
    cr_assert_eq(line, 0, "line %d", line);
    line = NOTHING_WAITED;
    for (slow_ms = SLOW_MS; line == NOTHING_WAITED && slow_ms < SLOW_MS_MAX; slow_ms *= 3)
        line = run_ranks(ranks, options, train_with_slow_storage, &told);
    cr_assert_eq(line, 0, "%d ranks, stage %d: line %d: %s", ranks, options->stage, line, sherd_last_error());
    cr_assert(is_same_story(&whole, &told), "%d ranks, stage %d", ranks, options->stage);
    line = run_ranks(ranks, options, load_and_train, &resumed);
    cr_assert_eq(line, 0, "line %d", line);
    cr_assert(is_same_story(&whole, &resumed), "%d ranks, stage %d", ranks, options->stage);
    remove_folder(dir);
    remove_folder(plain);
}

Test(async_saves, updates_wait_for_the_state_they_change, .timeout = 120) {
    for (int ranks = 1; ranks <= 3; ranks++)
        for (int stage = 0; stage <= 3; stage++)
            for (int late = 0; late <= 1; late++) {
                sherd_options options = story_options(ranks, stage, late ? SHERD_GATHER_AUTO : SHERD_GATHER_COPY);
                options.clip = late;
                check_slow(ranks, &options);
            }
}

Test(async_saves, owners_wait_and_so_does_what_has_masters, .timeout = 120) {
    sherd_options options = story_options(3, 2, SHERD_GATHER_AUTO);
    options.optimizer.kind = SHERD_MUON;
    options.optimizer.momentum = 0.9;
    check_slow(3, &options);
    options = story_options(2, 3, SHERD_GATHER_COPY);
    options.precision = SHERD_BF16;
    options.optimizer.state_dtype = SHERD_INT8;
    check_slow(2, &options);
}

/* --- life --------------------------------------------------------------------------------------------------------- */

static int evaluate(sherd_session *session) {
    sherd_view view;
    sherd_evaluation result;
    EXPECT(sherd_evaluate_begin(session) == SHERD_OK);
    for (int32_t u = 0; u < TOY_UNITS; u++) {
        EXPECT(sherd_forward_begin(session, u, &view) == SHERD_OK);
        EXPECT(sherd_forward_end(session, u) == SHERD_OK);
    }
    EXPECT(sherd_evaluate_end(session, 1, &result) == SHERD_OK);
    return 0;
}

static int do_things_meanwhile(void *user, const sherd_options *options) {
    story *told = user;
    sherd_session *session;
    sherd_save_result result;
    int line = start(options, &session);
    if (line) return line;
    sherd_session_save_result(session, &result);
    EXPECT(result.count == 0 && result.status == SHERD_OK && !*result.cause);
    EXPECT(sherd_session_save_wait(session) == SHERD_OK && !sherd_session_save_pending(session));
    if ((line = take_steps(session, options, SAVED_AFTER, told))) return line;
    EXPECT(sherd_session_save_begin(session, told->dir, "{\"position\": 24}") == SHERD_OK);
    EXPECT(sherd_session_save_pending(session));
    EXPECT(sherd_session_save_begin(session, told->dir, NULL) == SHERD_STATE);
    EXPECT(strstr(sherd_last_error(), "the save of step 2 has not ended"));
    EXPECT(sherd_session_save(session, told->dir, NULL) == SHERD_STATE);
    EXPECT(sherd_session_fill(session, toy_fill, NULL) == SHERD_STATE);
    EXPECT(sherd_session_load(session, told->dir, NULL) == SHERD_STATE);
    if ((line = evaluate(session))) return line;
    EXPECT(sherd_session_save_pending(session) && count_entries(told->dir, "manifest") == 0);
    EXPECT(sherd_step_begin(session, 1) == SHERD_OK);
    EXPECT(sherd_session_save_wait(session) == SHERD_STATE &&
           sherd_session_save_begin(session, told->dir, NULL) == SHERD_STATE);
    sherd_session_destroy(session); /* in the middle of a step */
    return 0;
}

Test(async_saves, an_evaluation_may_come_between_and_nothing_that_changes_the_state, .timeout = 60) {
    char dir[40];
    make_folder(dir);
    story told = {.dir = dir};
    sherd_options options = story_options(1, 3, SHERD_GATHER_AUTO);
    options.eval_micro_steps = 1;
    int line = run_ranks(1, &options, do_things_meanwhile, &told);
    cr_assert_eq(line, 0, "line %d: %s", line, sherd_last_error());
    cr_assert_eq(count_entries(dir, "step-"), 0, "what was given up is there");
    remove_folder(dir);
}

/* Two saves: one is committed, the other given up. */
static int give_up(void *user, const sherd_options *options) {
    story *told = user;
    sherd_session *session;
    int line = start(options, &session);
    if (!line) line = take_steps(session, options, 1, told);
    if (line) return line;
    EXPECT(sherd_session_save(session, told->dir, NULL) == SHERD_OK);
    if ((line = take_steps(session, options, SAVED_AFTER, told))) return line;
    EXPECT(sherd_session_save_begin(session, told->dir, NULL) == SHERD_OK);
    sherd_session_destroy(session);
    return 0;
}

Test(async_saves, a_session_that_ends_gives_up_what_it_has_not_committed, .timeout = 60) {
    for (int ranks = 1; ranks <= 4; ranks++) {
        char dir[40];
        make_folder(dir);
        story told = {.dir = dir};
        const sherd_options options = story_options(ranks, ranks - 1, SHERD_GATHER_AUTO);
        int line = run_ranks(ranks, &options, give_up, &told);
        cr_assert_eq(line, 0, "line %d: %s", line, sherd_last_error());
        cr_assert_eq(count_entries(dir, "step-"), 1, "%d ranks: %d", ranks, count_entries(dir, "step-"));
        cr_assert_eq(count_entries(dir, "step-00000001"), 1);
        remove_folder(dir);
    }
}

/* Into two folders by turns, one of them under two names. */
static int save_by_turns(void *user, const sherd_options *options) {
    story *told = user;
    sherd_session *session;
    int line = start(options, &session);
    for (int64_t step = 1; !line && step <= STEPS; step++) {
        static const char *const folders[] = {"a", "b", "./a/", "a"};
        char dir[100];
        snprintf(dir, sizeof dir, "%s/%s", told->dir, folders[step - 1]);
        line = take_steps(session, options, step, told);
        EXPECT(line || sherd_session_save(session, dir, NULL) == SHERD_OK);
    }
    sherd_session_destroy(session);
    return line;
}

Test(async_saves, into_several_folders_stay_where_they_are, .timeout = 60) {
    char dir[40], a[60];
    make_folder(dir);
    story told = {.dir = dir};
    const sherd_options options = story_options(2, 2, SHERD_GATHER_AUTO);
    int line = run_ranks(2, &options, save_by_turns, &told);
    cr_assert_eq(line, 0, "line %d: %s", line, sherd_last_error());
    snprintf(a, sizeof a, "%s/a", dir);
    cr_assert(count_entries(a, "step-") == 3 && count_entries(a, "aside") == 0, "%d", count_entries(a, "aside"));
    remove_folder(dir);
}

/* The step after a save begins has no finite loss. */
static int save_and_diverge(void *user, const sherd_options *options) {
    story *told = user;
    sherd_session *session;
    const double wrong = NAN;
    int line = start(options, &session);
    if (!line) line = take_steps(session, options, SAVED_AFTER, told);
    if (line) return line;
    EXPECT(sherd_session_save_begin(session, told->dir, "{\"position\": 24}") == SHERD_OK);
    sherd_view view;
    EXPECT(sherd_step_begin(session, options->micro_steps) == SHERD_OK);
    for (int32_t k = 0; k < options->micro_steps; k++) {
        for (int32_t u = 0; u < TOY_UNITS; u++) {
            EXPECT(sherd_forward_begin(session, u, &view) == SHERD_OK);
            EXPECT(sherd_add_loss(session, &wrong, 1) == SHERD_OK && sherd_forward_end(session, u) == SHERD_OK);
        }
        for (int32_t u = TOY_UNITS; u-- > 0;) {
            EXPECT(sherd_backward_begin(session, u, &view) == SHERD_OK);
            for (int32_t t = 0; t < TOY_TENSORS; t++)
                if (view.gradients[t]) memset(view.gradients[t], 0, (size_t)toy_count(t) * sizeof(float));
            EXPECT(sherd_backward_end(session, u) == SHERD_OK);
        }
    }
    EXPECT(sherd_step(session, NULL) == SHERD_NUMERIC && strstr(sherd_last_error(), "loss is"));
    sherd_save_result result;
    sherd_session_save_result(session, &result);
    EXPECT(result.count == 1 && result.status == SHERD_OK && !sherd_session_save_pending(session));
    EXPECT(sherd_step_begin(session, 1) == SHERD_STATE);
    sherd_session_destroy(session);
    return 0;
}

Test(async_saves, under_way_are_finished_when_the_next_step_diverges, .timeout = 60) {
    for (int ranks = 1; ranks <= 3; ranks++) {
        char dir[40];
        make_folder(dir);
        story whole = {.dir = dir}, told = {.dir = dir}, resumed = {.dir = dir};
        const sherd_options options = story_options(ranks, ranks, SHERD_GATHER_AUTO);
        int line = run_ranks(ranks, &options, train_and_save, &whole);
        remove_folder(dir);
        make_folder(dir);
        if (!line) line = run_ranks(ranks, &options, save_and_diverge, &told);
        cr_assert_eq(line, 0, "line %d: %s", line, sherd_last_error());
        resumed.dir = dir;
        line = run_ranks(ranks, &options, load_and_train, &resumed);
        cr_assert_eq(line, 0, "line %d: %s", line, sherd_last_error());
        cr_assert(is_same_story(&whole, &resumed), "%d ranks", ranks);
        remove_folder(dir);
    }
}

/* --- ranks that disagree ------------------------------------------------------------------------------------------ */

static int begin_on_some(void *user, const sherd_options *options) {
    story *told = user;
    sherd_session *session;
    int line = start(options, &session);
    if (line) return line;
    if (options->rank == 1) EXPECT(sherd_session_save_begin(session, told->dir, NULL) == SHERD_OK);
    EXPECT(take_steps(session, options, 1, told) != 0);
    EXPECT(strstr(sherd_last_error(), "rank 1 saves a checkpoint and rank 0 does not"));
    EXPECT(sherd_step_begin(session, 1) == SHERD_STATE);
    sherd_session_destroy(session);
    return 0;
}

Test(async_saves, a_rank_that_saves_alone_ends_the_job, .timeout = 60) {
    char dir[40];
    make_folder(dir);
    story told = {.dir = dir};
    const sherd_options options = story_options(3, 2, SHERD_GATHER_AUTO);
    int line = run_ranks(3, &options, begin_on_some, &told);
    cr_assert_eq(line, 0, "line %d: %s", line, sherd_last_error());
    cr_assert_eq(count_entries(dir, "step-"), 0);
    remove_folder(dir);
}

/* --- what stays --------------------------------------------------------------------------------------------------- */

static int save_each_step(void *user, const sherd_options *options) {
    story *told = user;
    sherd_session *session;
    int line = start(options, &session);
    for (int64_t step = 1; !line && step <= 7; step++) {
        line = take_steps(session, options, step, told);
        EXPECT(line || sherd_session_save(session, told->dir, NULL) == SHERD_OK);
    }
    sherd_session_destroy(session);
    return line;
}

static int go_back_and_save(void *user, const sherd_options *options) {
    story *told = user;
    char path[80];
    sherd_session *session;
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    snprintf(path, sizeof path, "%s/step-00000003", told->dir);
    EXPECT(sherd_session_load(session, path, NULL) == SHERD_OK);
    int line = take_steps(session, options, 5, told);
    EXPECT(line || sherd_session_save(session, told->dir, NULL) == SHERD_OK);
    sherd_session_destroy(session);
    return line;
}

Test(async_saves, keeps_so_many_and_leaves_the_branch_it_has_left, .timeout = 60) {
    char dir[40];
    make_folder(dir);
    story told = {.dir = dir};
    sherd_options options = story_options(2, 3, SHERD_GATHER_AUTO);
    options.checkpoint.keep = 2;
    options.checkpoint.keep_every = 3;
    int line = run_ranks(2, &options, save_each_step, &told);
    cr_assert_eq(line, 0, "line %d: %s", line, sherd_last_error());
    cr_assert_eq(count_entries(dir, "step-"), 3);
    cr_assert(count_entries(dir, "step-00000003") && count_entries(dir, "step-00000006") &&
              count_entries(dir, "step-00000007"));
    /* From step 3 on: 6 and 7 are another branch's, but whole. */
    line = run_ranks(2, &options, go_back_and_save, &told);
    cr_assert_eq(line, 0, "line %d: %s", line, sherd_last_error());
    cr_assert_eq(count_entries(dir, ".aside-"), 2);
    cr_assert(count_entries(dir, "step-00000006.aside-") && count_entries(dir, "step-00000007.aside-"));
    cr_assert(count_entries(dir, "step-00000003") && count_entries(dir, "step-00000005"));
    cr_assert_eq(count_entries(dir, "step-"), 4);
    remove_folder(dir);
}

/* --- for a long time ---------------------------------------------------------------------------------------------- */

enum { WARM_UP = 20, SAVES = 300, LATE = SAVES - 10 }; /* late, but before any rank ends */

/* kB of memory that this process has. */
static int64_t resident_kilobytes(void) {
    char line[200];
    int64_t found = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "VmRSS: %ld", &found) == 1) break;
    if (status) fclose(status);
    return found;
}

typedef struct footprint {
    int64_t resident, objects;
    int threads, descriptors;
} footprint;

static footprint find_footprint(void) {
    return (footprint){.resident = resident_kilobytes(),
                       .objects = shd_memory_held(SHD_MEMORY_OBJECTS),
                       .threads = count_entries("/proc/self/task", ""),
                       .descriptors = count_entries("/proc/self/fd", "")};
}

typedef struct long_run {
    char dir[SCRATCH_BYTES];
    footprint seen[2];
} long_run;

static int save_for_long(void *user, const sherd_options *options) {
    long_run *run = user;
    story told;
    sherd_session *session;
    int line = start(options, &session);
    for (int64_t n = 1; !line && n <= SAVES; n++) {
        EXPECT(sherd_session_save_begin(session, run->dir, "{\"position\": 24}") == SHERD_OK);
        line = take_steps(session, options, n, &told);
        EXPECT(line || sherd_session_save_wait(session) == SHERD_OK);
        if (line || (n != WARM_UP && n != LATE)) continue;
        /* While neither rank does anything. */
        EXPECT(shd_session_compare(session, "an end of a save", 1) == SHERD_OK);
        if (options->rank == 0) run->seen[n == LATE] = find_footprint();
        EXPECT(shd_session_compare(session, "a look", 2) == SHERD_OK);
    }
    sherd_save_result result;
    sherd_session_save_result(session, &result);
    EXPECT(result.count == SAVES && result.step == SAVES - 1);
    sherd_session_destroy(session);
    return line;
}

Test(async_saves, three_hundred_times_takes_no_more_of_anything, .timeout = 200) {
    static long_run run;
    const footprint *seen = run.seen;
    sherd_options options = story_options(2, 2, SHERD_GATHER_AUTO);
    options.micro_steps = 1;
    options.checkpoint.keep = 2;
    make_folder(run.dir);
    int line = run_ranks(2, &options, save_for_long, &run);
    cr_assert_eq(line, 0, "line %d: %s", line, sherd_last_error());
    cr_assert_eq(seen[1].threads, seen[0].threads);
    cr_assert_eq(seen[1].descriptors, seen[0].descriptors);
    /* The other rank may have begun the next one: two names. */
    cr_assert_leq(llabs(seen[1].objects - seen[0].objects), 200);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* which keep what is freed */
    cr_assert_leq(seen[1].resident, seen[0].resident + 1024, "%ld and %ld kB", (long)seen[0].resident,
                  (long)seen[1].resident);
#endif
    cr_assert_eq(count_entries(run.dir, "step-"), 2);
    remove_folder(run.dir);
}
