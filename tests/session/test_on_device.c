/* Training on the software device, against the brute-force trainer, bit for bit: what brackets do is enqueued, and checks
 * when it runs that what is lent is what must be there then. The device tells of whatever no event orders. */
#include "runtime/base/dtype.h"
#include "support/ranks.h"
#include "support/toy.h"
#include "tests/softcuda/softcuda.h"
#include "tests/support/scratch.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 12, STEPS = 3, MOST_ACCESSES = 2 * TOY_TENSORS + 8 };

/* --- brackets that run later -------------------------------------------------------------------------------------- */

typedef struct later_work {
    toy_work work;
    const void *parameters[TOY_TENSORS];
    float *gradients[TOY_TENSORS];
    void *outputs[TOY_UNITS], *activations[TOY_UNITS], *remade[TOY_UNITS];
    atomic_int *line; /* of the first expectation that failed */
} later_work;

static softcuda_progress run_later(void *state) {
    later_work *later = state;
    int none = 0, line = toy_do(&later->work);
    if (line) atomic_compare_exchange_strong(later->line, &none, line);
    return SOFTCUDA_DONE;
}

static void add(softcuda_access *all, size_t *count, const void *memory, int64_t bytes, bool writes) {
    if (memory && bytes > 0)
        all[(*count)++] = (softcuda_access){.memory = memory, .bytes = (size_t)bytes, .writes = writes};
}

static size_t list_accesses(const later_work *later, softcuda_access *all) {
    const sherd_view *view = &later->work.view;
    const sherd_unit *unit = &toy_model()->units[view->unit];
    const bool makes = !later->work.backward;
    size_t count = 0;
    for (int32_t t = 0; t < TOY_TENSORS; t++) {
        add(all, &count, later->parameters[t], toy_count(t) * shd_dtype_bytes(later->work.before->precision), false);
        add(all, &count, later->gradients[t], toy_count(t) * (int64_t)sizeof(float), true);
    }
    add(all, &count, later->outputs[view->unit], unit->output_bytes, makes && !view->again);
    add(all, &count, later->activations[view->unit], unit->activation_bytes, makes && !view->part_again);
    add(all, &count, later->remade[view->unit], unit->remade_bytes, makes);
    add(all, &count, view->scratch, toy_model()->scratch_bytes, true);
    return count;
}

/* A toy_run_fn; `user` is where a failed expectation leaves its line. */
static int enqueue(const toy_work *work, void *user) {
    later_work *later = calloc(1, sizeof *later);
    softcuda_access accesses[MOST_ACCESSES];
    later->work = *work;
    later->line = user;
    memcpy(later->parameters, work->view.parameters, sizeof later->parameters);
    memcpy(later->gradients, work->view.gradients, sizeof later->gradients);
    memcpy(later->outputs, work->view.outputs, sizeof later->outputs);
    memcpy(later->activations, work->view.activations, sizeof later->activations);
    memcpy(later->remade, work->view.remade, sizeof later->remade);
    later->work.view.parameters = later->parameters;
    later->work.view.gradients = later->gradients;
    later->work.view.outputs = later->outputs;
    later->work.view.activations = later->activations;
    later->work.view.remade = later->remade;
    softcuda_operation operation = {.name = work->backward ? "toy backward" : "toy forward",
                                    .run = run_later,
                                    .drop = free,
                                    .state = later,
                                    .accesses = accesses,
                                    .access_count = list_accesses(later, accesses),
                                    .is_instrumented = true};
    EXPECT(softcuda_enqueue(work->view.stream, &operation) == cudaSuccess);
    return 0;
}

/* --- training ----------------------------------------------------------------------------------------------------- */

static int take_steps(sherd_session *session, const sherd_options *options, toy_oracle *oracle, atomic_int *failed) {
    EXPECT(sherd_session_fill(session, toy_fill, NULL) == SHERD_OK);
    for (int step = 0; step < STEPS; step++) {
        sherd_step_result result;
        int line = toy_step_by(session, oracle, options, enqueue, failed, &result);
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
    enum { WAITS = 20, STEP = 17, TOLD = 4 };
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

/* --- checkpoints -------------------------------------------------------------------------------------------------- */

/* Steps of a session that the oracle goes along with, on the device or not. */
typedef struct passage {
    char dir[40];
    bool on_device, loads; /* else it fills and saves */
} passage;

static int take_one(sherd_session *session, const passage *part, const sherd_options *options, toy_oracle *oracle) {
    sherd_step_result result;
    atomic_int failed = 0;
    int line = part->on_device ? toy_step_by(session, oracle, options, enqueue, &failed, &result)
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
