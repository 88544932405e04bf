/* Saves on the software device whose copies to the host take longer than the step that begins them: with updates after
 * the verdict nothing makes the host wait for them. */
#include "runtime/base/clock.h"
#include "runtime/session/internal.h"
#include "session/toy_later.h"
#include "support/ranks.h"
#include "tests/softcuda/softcuda.h"
#include "tests/support/scratch.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* A step takes a few milliseconds. Where the machine is slower than the hold, less is tested, and nothing fails. */
enum { BATCH = 12, HOLD_MS = 150 };

/* --- ranks with a slow stream of copies --------------------------------------------------------------------------- */

typedef struct slow {
    sherd_session *session;
    toy_oracle oracle;
    double until_ms; /* the stream of copies stands still */
    atomic_int line; /* of the first bracket's expectation that failed */
} slow;

static int begin(slow *rank, const sherd_options *options) {
    *rank = (slow){.until_ms = 0};
    toy_oracle_init(&rank->oracle);
    EXPECT(sherd_session_create(options, toy_model(), &rank->session) == SHERD_OK);
    EXPECT(sherd_session_fill(rank->session, toy_fill, NULL) == SHERD_OK);
    return 0;
}

static int end(slow *rank) {
    sherd_session_destroy(rank->session);
    toy_oracle_fini(&rank->oracle);
    return 0;
}

static softcuda_progress run_hold(void *state) {
    return shd_clock_ms() > ((const slow *)state)->until_ms ? SOFTCUDA_DONE : SOFTCUDA_WAITING;
}

static int hold_copies(slow *rank) {
    const shd_engine_place *place = &rank->session->place;
    const softcuda_operation hold = {.name = "slow copies", .run = run_hold, .state = rank};
    rank->until_ms = shd_clock_ms() + HOLD_MS;
    void *stream = place->ops->native_stream(place->streams[SHD_QUEUE_COPY]);
    EXPECT(softcuda_enqueue(stream, &hold) == cudaSuccess);
    return 0;
}

static int enqueue(const toy_work *work, void *user) { return toy_enqueue(work, &((slow *)user)->line); }

static int take_step(slow *rank, const sherd_options *options) {
    int line = toy_step_by(rank->session, &rank->oracle, options, enqueue, rank, NULL);
    toy_oracle_step(&rank->oracle, BATCH, 0.125f);
    return line ? line : atomic_load(&rank->line);
}

static sherd_options slow_options(int ranks, int stage) {
    sherd_options options = SHERD_OPTIONS_INIT;
    options.device = SHERD_DEVICE_CUDA;
    options.link = SHERD_LINK_STAGED;
    options.stage = stage;
    options.micro_steps = BATCH / ranks;
    options.optimizer.kind = SHERD_SGD;
    options.optimizer.lr = 0.125;
    options.on_nonfinite = SHERD_NONFINITE_SKIP; /* so updates come after the verdict */
    options.timeout_s = options.start_timeout_s = 30;
    return options;
}

/* --- what is in the checkpoint ------------------------------------------------------------------------------------ */

typedef struct saved {
    char dir[40];
    int steps; /* that had been taken when it was begun */
} saved;

/* On the CPU, whose brackets check every parameter. */
static int read_back(void *user, const sherd_options *options) {
    const saved *checkpoint = user;
    sherd_session *session;
    toy_oracle oracle;
    toy_oracle_init(&oracle);
    for (int i = 0; i < checkpoint->steps; i++) toy_oracle_step(&oracle, BATCH, 0.125f);
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    EXPECT(sherd_session_load(session, checkpoint->dir, NULL) == SHERD_OK);
    int line = toy_step(session, &oracle, options, NULL);
    sherd_session_destroy(session);
    toy_oracle_fini(&oracle);
    return line;
}

static void save_and_read_back(rank_fn save, int steps, bool skips) {
    for (int stage = 0; stage <= 3; stage++)
        for (int ranks = 1; ranks <= 2; ranks++) {
            saved checkpoint = {.steps = steps};
            cr_assert(scratch_folder(checkpoint.dir));
            softcuda_restart((uint64_t)stage, SOFTCUDA_RANDOM);
            sherd_options options = slow_options(ranks, stage);
            if (!skips) options.on_nonfinite = SHERD_NONFINITE_ABORT;
            if (!skips) options.clip = 1e30;
            int line = run_ranks(ranks, &options, save, checkpoint.dir);
            cr_assert_eq(line, 0, "stage %d, %d ranks: line %d", stage, ranks, line);
            cr_assert_eq(softcuda_report_count(), 0, "stage %d: %s", stage, softcuda_report(0));
            options.device = SHERD_DEVICE_CPU;
            line = run_ranks(ranks, &options, read_back, &checkpoint);
            cr_assert_eq(line, 0, "stage %d, %d ranks, read back: line %d", stage, ranks, line);
            char command[80];
            snprintf(command, sizeof command, "rm -rf %s", checkpoint.dir);
            cr_assert_eq(system(command), 0);
        }
}

/* --- tests -------------------------------------------------------------------------------------------------------- */

static int save_over_steps(void *user, const sherd_options *options) {
    slow rank;
    int line = begin(&rank, options);
    if (!line) line = take_step(&rank, options);
    if (line) return line;
    EXPECT(sherd_session_save_begin(rank.session, user, NULL) == SHERD_OK);
    line = hold_copies(&rank);
    if (!line) line = take_step(&rank, options);
    if (!line) line = take_step(&rank, options);
    if (line) return line;
    EXPECT(sherd_session_save_wait(rank.session) == SHERD_OK);
    return end(&rank);
}

Test(slow_copies, are_of_the_step_that_began_them, .timeout = 60) { save_and_read_back(save_over_steps, 1, true); }

/* What ends the save begins with SAVE again, right after the step. */
static int save_and_wait(void *user, const sherd_options *options) {
    slow rank;
    int line = begin(&rank, options);
    if (!line) line = take_step(&rank, options);
    if (line) return line;
    EXPECT(sherd_session_save_begin(rank.session, user, NULL) == SHERD_OK);
    line = hold_copies(&rank);
    if (!line) line = take_step(&rank, options);
    if (line) return line;
    EXPECT(sherd_session_save_wait(rank.session) == SHERD_OK);
    return end(&rank);
}

Test(slow_copies, are_waited_for_between_steps, .timeout = 60) { save_and_read_back(save_and_wait, 1, true); }

/* The first save fails at once; the second begins while its copies are under way. */
static int save_after_failure(void *user, const sherd_options *options) {
    const struct timespec nap = {.tv_nsec = 1000000};
    slow rank;
    int line = begin(&rank, options);
    if (!line) line = take_step(&rank, options);
    if (line) return line;
    EXPECT(sherd_session_save_begin(rank.session, "/dev/null/folder", NULL) == SHERD_OK);
    while (shd_writer_state_of(rank.session->save.writer) == SHD_WRITER_WRITING) nanosleep(&nap, NULL);
    line = hold_copies(&rank);
    if (!line) line = take_step(&rank, options);
    if (line) return line;
    EXPECT(!sherd_session_save_pending(rank.session) && sherd_session_save_wait(rank.session) != SHERD_OK);
    EXPECT(sherd_session_save_begin(rank.session, user, NULL) == SHERD_OK);
    line = take_step(&rank, options);
    if (line) return line;
    EXPECT(sherd_session_save_wait(rank.session) == SHERD_OK);
    return end(&rank);
}

Test(slow_copies, of_a_save_that_has_failed_are_not_taken_for_those_of_the_next, .timeout = 60) {
    save_and_read_back(save_after_failure, 2, true);
}

/* The step after the save begins has no finite loss. */
static int save_and_diverge(void *user, const sherd_options *options) {
    const double wrong = NAN;
    slow rank;
    sherd_view view;
    int line = begin(&rank, options);
    if (!line) line = take_step(&rank, options);
    if (line) return line;
    EXPECT(sherd_session_save_begin(rank.session, user, NULL) == SHERD_OK);
    line = hold_copies(&rank);
    if (line) return line;
    EXPECT(sherd_step_begin(rank.session, options->micro_steps) == SHERD_OK);
    for (int32_t k = 0; k < options->micro_steps; k++) {
        for (int32_t u = 0; u < TOY_UNITS; u++) {
            EXPECT(sherd_forward_begin(rank.session, u, &view) == SHERD_OK);
            EXPECT(sherd_add_loss(rank.session, &wrong, 1) == SHERD_OK);
            EXPECT(sherd_forward_end(rank.session, u) == SHERD_OK);
        }
        for (int32_t u = TOY_UNITS; u-- > 0;)
            EXPECT(sherd_backward_begin(rank.session, u, &view) == SHERD_OK &&
                   sherd_backward_end(rank.session, u) == SHERD_OK);
    }
    EXPECT(sherd_step(rank.session, NULL) == SHERD_NUMERIC);
    sherd_save_result result;
    sherd_session_save_result(rank.session, &result);
    EXPECT(result.count == 1 && result.status == SHERD_OK && !sherd_session_save_pending(rank.session));
    return end(&rank);
}

Test(slow_copies, are_finished_when_the_next_step_diverges, .timeout = 60) {
    save_and_read_back(save_and_diverge, 1, false);
}

/* Nothing that was to be copied comes any more. */
static int save_on_a_lost_device(void *user, const sherd_options *options) {
    slow rank;
    int line = begin(&rank, options);
    if (!line) line = take_step(&rank, options);
    if (line) return line;
    EXPECT(sherd_session_save_begin(rank.session, user, NULL) == SHERD_OK);
    line = hold_copies(&rank);
    if (!line) line = take_step(&rank, options);
    if (line) return line;
    softcuda_break(cudaErrorIllegalAddress);
    EXPECT(sherd_session_save_wait(rank.session) == SHERD_DEVICE);
    return end(&rank);
}

Test(slow_copies, that_a_device_loses_end_the_session, .timeout = 30) {
    saved checkpoint = {.steps = 1};
    cr_assert(scratch_folder(checkpoint.dir));
    sherd_options options = slow_options(1, 3);
    int line = run_ranks(1, &options, save_on_a_lost_device, checkpoint.dir);
    cr_assert_eq(line, 0, "line %d", line);
    char command[80];
    snprintf(command, sizeof command, "rm -rf %s", checkpoint.dir);
    cr_assert_eq(system(command), 0);
}
