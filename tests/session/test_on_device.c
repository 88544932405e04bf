/* Training on the software device, against the brute-force trainer, bit for bit: what brackets do is enqueued, and checks
 * when it runs that what is lent is what must be there then. The device tells of whatever no event orders. */
#include "runtime/base/clock.h"
#include "session/toy_later.h"
#include "support/ranks.h"
#include "tests/softcuda/softcuda.h"
#include "tests/support/scratch.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 12, STEPS = 3 };

/* --- training ----------------------------------------------------------------------------------------------------- */

static int take_steps(sherd_session *session, const sherd_options *options, toy_oracle *oracle, atomic_int *failed) {
    EXPECT(sherd_session_fill(session, toy_fill, NULL) == SHERD_OK);
    for (int step = 0; step < STEPS; step++) {
        sherd_step_result result;
        int line = toy_step_by(session, oracle, options, toy_enqueue, failed, &result);
        if (line == 0) line = atomic_load(failed);
        if (line) return line;
        toy_oracle_step(oracle, BATCH, 0.125f);
        EXPECT(result.loss == (step * BATCH * BATCH + BATCH * (BATCH - 1) / 2) / (double)BATCH);
        EXPECT(result.target_count == BATCH && result.step == step && result.lr == 0.125);
    }
    return 0;
}

static int train(void *user, const sherd_options *options) {
    (void)user;
    sherd_session *session;
    toy_oracle oracle;
    atomic_int failed = 0;
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    toy_oracle_init(&oracle);
    oracle.blocks = options->replicas;
    oracle.precision = options->precision;
    oracle.reduce_dtype = options->reduce_dtype;
    int line = take_steps(session, options, &oracle, &failed);
    sherd_session_destroy(session); /* first: what is enqueued still uses the oracle */
    toy_oracle_fini(&oracle);
    return line;
}

static sherd_options device_options(int ranks, int stage, sherd_link link) {
    sherd_options options = SHERD_OPTIONS_INIT;
    options.device = SHERD_DEVICE_CUDA;
    options.link = link;
    options.stage = stage;
    options.micro_steps = BATCH / ranks;
    options.optimizer.kind = SHERD_SGD;
    options.optimizer.lr = 0.125;
    options.timeout_s = options.start_timeout_s = 30;
    return options;
}

static void train_with(int ranks, sherd_options options) {
    static uint64_t seed;
    softcuda_restart(++seed, SOFTCUDA_RANDOM);
    int line = run_ranks(ranks, &options, train, NULL);
    cr_assert_eq(line, 0, "%d ranks, %d replicas, stage %d, link %d, precision %d, seed %d: line %d", ranks,
                 options.replicas, options.stage, options.link, options.precision, (int)seed, line);
    cr_assert_eq(softcuda_report_count(), 0, "%d ranks, %d replicas, stage %d, link %d, seed %d: %s", ranks,
                 options.replicas, options.stage, options.link, (int)seed, softcuda_report(0));
}

static void train_at_every_stage(int ranks, int replicas) {
    for (int stage = replicas > 1; stage <= 3; stage++)
        for (int link = SHERD_LINK_NCCL; link <= SHERD_LINK_STAGED; link++) {
            sherd_options options = device_options(ranks, stage, (sherd_link)link);
            options.replicas = replicas;
            train_with(ranks, options);
        }
}

Test(on_device, one_rank_trains_as_brute_force_does, .timeout = 60) { train_at_every_stage(1, 1); }
Test(on_device, two_ranks_train_as_brute_force_does, .timeout = 60) { train_at_every_stage(2, 1); }
Test(on_device, three_ranks_train_as_brute_force_does, .timeout = 60) { train_at_every_stage(3, 1); }
Test(on_device, replicas_train_as_brute_force_does, .timeout = 120) {
    train_at_every_stage(2, 2);
    train_at_every_stage(4, 2);
}

Test(on_device, what_is_made_again_is_as_it_was, .timeout = 60) {
    for (int recompute = SHERD_RECOMPUTE_UNIT; recompute <= SHERD_RECOMPUTE_PART; recompute++) {
        sherd_options options = device_options(2, 3, SHERD_LINK_STAGED);
        options.recompute = (sherd_recompute)recompute;
        train_with(2, options);
    }
}

Test(on_device, half_precision_is_lent_and_exchanged_rounded, .timeout = 60) {
    for (int stage = 0; stage <= 3; stage++) {
        sherd_options options = device_options(2, stage, SHERD_LINK_STAGED);
        options.precision = options.reduce_dtype = SHERD_BF16;
        train_with(2, options);
    }
}

/* Streams wait for more than they must here and there, so not every wait that is left out can be told; many must. */
Test(on_device, waits_that_are_left_out_are_told, .timeout = 120) {
    enum { WAITS = 30, STEP = 11, TOLD = 3 };
    int told = 0;
    for (int i = 0; i < WAITS; i++) {
        softcuda_restart((uint64_t)i, SOFTCUDA_RANDOM);
        softcuda_skip_wait((uint64_t)(20 + i * STEP));
        sherd_options options = device_options(2, 3, SHERD_LINK_STAGED);
        options.timeout_s = 2; /* ranks that find something wrong leave the other alone */
        (void)run_ranks(2, &options, train, NULL);
        told += softcuda_report_count() > 0;
    }
    softcuda_skip_wait(0);
    cr_assert_geq(told, TOLD);
}

/* At every 97th call of a run the device says that it cannot go on. Both ranks end, soon, or none has noticed. */
typedef struct ends {
    atomic_int failed, told; /* ranks; those that said what the device said */
} ends;

static int train_to_the_end(void *user, const sherd_options *options) {
    ends *all = user;
    sherd_session *session;
    toy_oracle oracle;
    atomic_int failed = 0;
    bool is_over = sherd_session_create(options, toy_model(), &session) != SHERD_OK;
    bool is_told = is_over && strstr(sherd_last_error(), "cudaErrorIllegalAddress");
    if (!is_over) {
        toy_oracle_init(&oracle);
        is_over = take_steps(session, options, &oracle, &failed) != 0;
        is_told = is_over && strstr(sherd_last_error(), "cudaErrorIllegalAddress");
        sherd_session_destroy(session);
        toy_oracle_fini(&oracle);
    }
    atomic_fetch_add(&all->failed, is_over);
    atomic_fetch_add(&all->told, is_told);
    return 0;
}

Test(on_device, any_call_that_fails_ends_all_ranks, .timeout = 240) {
    enum { EACH = 97, ENOUGH_MS = 8000 };
    sherd_options options = device_options(2, 3, SHERD_LINK_STAGED);
    ends none = {0};
    softcuda_restart(1, SOFTCUDA_RANDOM);
    uint64_t calls = softcuda_calls("*");
    cr_assert_eq(run_ranks(2, &options, train_to_the_end, &none), 0);
    cr_assert_eq(none.failed, 0);
    calls = softcuda_calls("*") - calls;
    int tried = 0, told = 0;
    for (uint64_t nth = 1; nth < calls; nth += EACH) {
        ends all = {0};
        softcuda_restart(nth, SOFTCUDA_RANDOM);
        softcuda_fail_at("*", nth, cudaErrorIllegalAddress);
        double since_ms = shd_clock_ms();
        cr_assert_eq(run_ranks(2, &options, train_to_the_end, &all), 0);
        cr_assert_lt(shd_clock_ms() - since_ms, ENOUGH_MS, "call %d of %d", (int)nth, (int)calls);
        cr_assert(all.failed == 0 || (all.failed == 2 && all.told > 0), "call %d of %d: %d failed, %d told", (int)nth,
                  (int)calls, all.failed, all.told);
        tried++;
        told += all.told > 0;
    }
    cr_assert_gt(told, tried / 2, "%d of %d", told, tried); /* calls that clean up fail in silence */
    softcuda_fail_at("*", 0, 0);
}

/* --- the same numbers as on the host ------------------------------------------------------------------------------ */

typedef struct numbers {
    bool on_device;
    sherd_step_result results[STEPS]; /* rank 0's */
} numbers;

static int enqueue_unchecked(const toy_work *work, void *line) {
    toy_work unchecked = *work;
    unchecked.unchecked = true;
    return toy_enqueue(&unchecked, line);
}

static int do_unchecked(const toy_work *work, void *line) {
    toy_work unchecked = *work;
    (void)line;
    unchecked.unchecked = true;
    return toy_do(&unchecked);
}

/* The oracle tells samples and types alone. */
static int tell_numbers(void *user, const sherd_options *options) {
    numbers *told = user;
    sherd_session *session;
    toy_oracle oracle;
    atomic_int failed = 0;
    int line = 0;
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    toy_oracle_init(&oracle);
    oracle.precision = options->precision;
    if (sherd_session_fill(session, toy_fill, NULL) != SHERD_OK) line = __LINE__;
    for (int step = 0; step < STEPS && line == 0; step++) {
        sherd_step_result result;
        line = toy_step_by(session, &oracle, options, told->on_device ? enqueue_unchecked : do_unchecked, &failed,
                           &result);
        oracle.sample += BATCH;
        if (options->rank == 0) told->results[step] = result;
    }
    sherd_session_destroy(session);
    toy_oracle_fini(&oracle);
    return line ? line : atomic_load(&failed);
}

static void compare_with_host(const char *what, sherd_options options, int ranks) {
    numbers host = {.on_device = false}, device = {.on_device = true};
    sherd_options on_host = options;
    on_host.device = SHERD_DEVICE_CPU;
    on_host.gather = SHERD_GATHER_COPY;
    softcuda_restart((uint64_t)ranks, SOFTCUDA_RANDOM);
    cr_assert_eq(run_ranks(ranks, &on_host, tell_numbers, &host), 0, "%s", what);
    cr_assert_eq(run_ranks(ranks, &options, tell_numbers, &device), 0, "%s", what);
    for (int step = 0; step < STEPS; step++) {
        const sherd_step_result *a = &host.results[step], *b = &device.results[step];
        cr_assert(a->loss == b->loss && a->grad_norm == b->grad_norm && a->param_norm == b->param_norm,
                  "%s, step %d: norms %.17g and %.17g, %.17g and %.17g", what, step, a->grad_norm, b->grad_norm,
                  a->param_norm, b->param_norm);
        cr_assert(a->loss_scale == b->loss_scale && a->skipped == b->skipped && a->lr == b->lr, "%s, step %d", what,
                  step);
    }
    cr_assert_eq(softcuda_report_count(), 0, "%s: %s", what, softcuda_report(0));
}

Test(on_device, every_optimizer_has_the_bits_that_it_has_on_the_host, .timeout = 120) {
    static const struct {
        const char *name;
        sherd_optimizer_kind kind;
        double momentum, clip;
        sherd_dtype precision;
    } kinds[] = {
        {"adamw", SHERD_ADAMW, 0, 0.5, SHERD_FP32},           {"adamw without a bound", SHERD_ADAMW, 0, 0, SHERD_FP32},
        {"adam, bf16", SHERD_ADAM, 0, 0.5, SHERD_BF16},       {"lion, bf16", SHERD_LION, 0, 0, SHERD_BF16},
        {"sgd with momentum", SHERD_SGD, 0.9, 0, SHERD_FP32}, {"adamw, fp16", SHERD_ADAMW, 0, 0.5, SHERD_FP16},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (int stage = 0; stage <= 3; stage++) {
            sherd_options options = device_options(2, stage, SHERD_LINK_STAGED);
            options.optimizer.kind = kinds[i].kind;
            options.optimizer.momentum = kinds[i].momentum;
            options.optimizer.weight_decay = 0.01;
            options.optimizer.lr = 0.01;
            options.clip = kinds[i].clip;
            options.precision = kinds[i].precision;
            options.loss_scale.initial = 1024;
            options.loss_scale.growth_interval = 1;
            compare_with_host(kinds[i].name, options, 2);
        }
}

/* --- checkpoints -------------------------------------------------------------------------------------------------- */

/* Steps of a session that the oracle goes along with, on the device or not. */
typedef struct passage {
    char dir[40];
    bool on_device, loads; /* else it fills and saves */
} passage;

static int take_one(sherd_session *session, const passage *part, const sherd_options *options, toy_oracle *oracle) {
    sherd_step_result result;
    atomic_int failed = 0;
    int line = part->on_device ? toy_step_by(session, oracle, options, toy_enqueue, &failed, &result)
                               : toy_step(session, oracle, options, &result);
    toy_oracle_step(oracle, BATCH, 0.125f);
    return line ? line : atomic_load(&failed);
}

/* The first passage takes a step, begins to save and takes another one meanwhile; the second goes on after the first step. */
static int pass(void *user, const sherd_options *options) {
    const passage *part = user;
    sherd_session *session;
    toy_oracle oracle;
    toy_oracle_init(&oracle);
    EXPECT(sherd_session_create(options, toy_model(), &session) == SHERD_OK);
    if (part->loads) {
        EXPECT(sherd_session_load(session, part->dir, NULL) == SHERD_OK);
        toy_oracle_step(&oracle, BATCH, 0.125f);
    } else {
        EXPECT(sherd_session_fill(session, toy_fill, NULL) == SHERD_OK);
        int line = take_one(session, part, options, &oracle);
        if (line) return line;
        EXPECT(sherd_session_save_begin(session, part->dir, NULL) == SHERD_OK);
    }
    int line = take_one(session, part, options, &oracle);
    if (line == 0) line = take_one(session, part, options, &oracle);
    EXPECT(sherd_session_save_wait(session) == SHERD_OK);
    sherd_session_destroy(session);
    toy_oracle_fini(&oracle);
    return line;
}

static void go_over(bool first_on_device, bool second_on_device, int stage) {
    passage part = {.on_device = first_on_device};
    cr_assert(scratch_folder(part.dir));
    softcuda_restart((uint64_t)stage, SOFTCUDA_RANDOM);
    for (int i = 0; i < 2; i++) {
        sherd_options options = device_options(2 + i, stage, SHERD_LINK_STAGED);
        if (!part.on_device) options.device = SHERD_DEVICE_CPU;
        int line = run_ranks(2 + i, &options, pass, &part);
        cr_assert_eq(line, 0, "stage %d, passage %d: line %d", stage, i, line);
        part.on_device = second_on_device;
        part.loads = true;
    }
    cr_assert_eq(softcuda_report_count(), 0, "stage %d: %s", stage, softcuda_report(0));
    char command[80];
    snprintf(command, sizeof command, "rm -rf %s", part.dir);
    cr_assert_eq(system(command), 0);
}

Test(on_device, checkpoints_go_from_anywhere_to_anywhere, .timeout = 120) {
    for (int stage = 0; stage <= 3; stage++) {
        go_over(true, true, stage);
        go_over(true, false, stage);
        go_over(false, true, stage);
    }
}
