/* Optimizers with states in 8 bits: that they are the optimizers of test_optimizer.c but for the rounding of states, and
 * what that rounding does to training. */
#include "optim/optimizer.h"
#include "optim/update_kernels.h"
#include "runtime/base/arith.h"
#include "runtime/base/random.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = SHD_CODE_BLOCK_COUNT };

static const sherd_optimizer variants[] = {
    {.kind = SHERD_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8},
    {.kind = SHERD_ADAM, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
    {.kind = SHERD_LION, .beta1 = 0.9, .beta2 = 0.99},
    {.kind = SHERD_SGD, .momentum = 0.9},
    {.kind = SHERD_SGD, .momentum = 0.9, .nesterov = true},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

static shd_codebook books[2];
static void make_books(void) {
    for (int root = 0; root < 2; root++) shd_codebook_init(&books[root], root);
}
TestSuite(optimizer_blocks, .init = make_books);

/* Parameters, gradients and states of a tensor, padded to whole blocks with zeros. */
typedef struct run {
    int64_t count, block_count;
    float *p, *g, *values[2];
    shd_code_block *blocks[2];
} run;

static run make_run(int64_t count) {
    run r = {.count = count, .block_count = shd_div_ceil(count, BLOCK)};
    size_t padded = (size_t)r.block_count * BLOCK;
    float **arrays[] = {&r.p, &r.g, &r.values[0], &r.values[1]};
    for (int i = 0; i < 4; i++) *arrays[i] = calloc(padded + 1, sizeof(float));
    for (int i = 0; i < 2; i++) r.blocks[i] = calloc((size_t)r.block_count + 1, sizeof(shd_code_block));
    shd_random_normal(1, 0, count, 1, r.p);
    return r;
}

static void free_run(run *r) {
    free(r->p), free(r->g);
    for (int i = 0; i < 2; i++) free(r->values[i]), free(r->blocks[i]);
}

/* Gradients whose sizes differ over four decades; every ninth is always zero. */
static void draw_gradient(run *r, int64_t step) {
    shd_random_normal(1000 + (uint64_t)step, 0, r->count, 1, r->g);
    for (int64_t i = 0; i < r->count; i++) r->g[i] *= i % 9 ? powf(10, -(float)(i * 7 % 40) / 10) : 0;
}

static shd_update make_update(const run *r, int64_t step) {
    return (shd_update){.parameters = r->p,
                        .gradients = r->g,
                        .count = r->count,
                        .step = step,
                        .lr = 1e-2,
                        .weight_decay = 0.1,
                        .gradient_scale = 0.5f};
}

/* One step as it is defined: states are read from their blocks, all of the tensor is updated in float32, and states
 * are put back. */
static void step_as_defined(const sherd_optimizer *o, shd_pool *pool, run *r, int64_t step) {
    const shd_optim_kernels *kernels = shd_optim_kernels_best();
    shd_update update = make_update(r, step);
    int32_t states = shd_optimizer_state_count(o);
    for (int32_t s = 0; s < states; s++) {
        kernels->dequantize(&books[shd_optimizer_state_is_root(o, s)], r->blocks[s], r->block_count, r->values[s]);
        update.states[s] = r->values[s];
    }
    shd_optimizer_update(o, pool, &update);
    for (int32_t s = 0; s < states; s++)
        kernels->quantize(&books[shd_optimizer_state_is_root(o, s)], r->values[s], r->block_count, r->blocks[s]);
}

/* The same by the code under test, in spans of `span` elements. */
static void step_in_spans(const sherd_optimizer *o, shd_pool *pool, run *r, int64_t step, int64_t span) {
    for (int64_t first = 0; first < r->count; first += span) {
        shd_update update = make_update(r, step);
        update.parameters += first;
        update.gradients += first;
        update.count = shd_min(span, r->count - first);
        for (int32_t s = 0; s < shd_optimizer_state_count(o); s++) {
            update.codebooks[s] = &books[shd_optimizer_state_is_root(o, s)];
            update.state_blocks[s] = r->blocks[s] + first / BLOCK;
        }
        shd_optimizer_update(o, pool, &update);
    }
}

static void check_same(const run *a, const run *b, const char *what, int variant, int64_t span) {
    size_t bytes = (size_t)a->block_count * BLOCK * sizeof(float);
    cr_assert_eq(memcmp(a->p, b->p, bytes), 0, "%s, variant %d, %ld elements in spans of %ld", what, variant,
                 (long)a->count, (long)span);
    for (int s = 0; s < 2; s++)
        cr_assert_eq(memcmp(a->blocks[s], b->blocks[s], (size_t)a->block_count * sizeof(shd_code_block)), 0,
                     "%s, variant %d, %ld elements in spans of %ld: state %d", what, variant, (long)a->count,
                     (long)span, s);
}

Test(optimizer_blocks, update_as_in_float32_between_reading_and_writing_codes) {
    static const int64_t counts[] = {0, 1, 17, 256, 257, 17 * 257, 40001};
    for (int32_t threads = 1; threads <= 3; threads += 2) {
        shd_pool *pool = NULL;
        cr_assert_eq(shd_pool_create(threads, &pool), SHERD_OK);
        for (int variant = 0; variant < VARIANTS; variant++)
            for (int c = 0; c < 7; c++) {
                const int64_t spans[] = {counts[c] + 1, 256, 1024, 19 * 256};
                run expected = make_run(counts[c]);
                for (int64_t step = 0; step < 6; step++) {
                    draw_gradient(&expected, step);
                    step_as_defined(&variants[variant], pool, &expected, step);
                }
                for (int i = 0; i < 4; i++) {
                    run r = make_run(counts[c]);
                    for (int64_t step = 0; step < 6; step++) {
                        draw_gradient(&r, step);
                        step_in_spans(&variants[variant], pool, &r, step, spans[i]);
                    }
                    check_same(&expected, &r, "states in blocks", variant, spans[i]);
                    free_run(&r);
                }
                free_run(&expected);
            }
        shd_pool_destroy(pool);
    }
}

Test(optimizer_blocks, are_a_choice_for_every_optimizer_that_keeps_moments) {
    for (int variant = 0; variant < VARIANTS; variant++) {
        sherd_optimizer o = variants[variant];
        o.layer_lr_decay = 1;
        o.state_dtype = SHERD_INT8;
        cr_assert_eq(shd_optimizer_check(&o), SHERD_OK, "%s", sherd_last_error());
        for (int32_t s = 0; s < shd_optimizer_state_count(&o); s++)
            cr_assert_eq(shd_optimizer_state_is_root(&o, s),
                         strcmp(shd_optimizer_state_name(&o, s), "exp_avg_sq") == 0);
    }
}

Test(optimizer_blocks, leave_zeros_alone) {
    shd_pool *pool = NULL;
    cr_assert_eq(shd_pool_create(1, &pool), SHERD_OK);
    for (int variant = 0; variant < VARIANTS; variant++) {
        run r = make_run(300);
        for (int64_t i = 0; i < 300; i += 9) r.p[i] = 0; /* whose gradients are zero too */
        for (int64_t step = 0; step < 5; step++) {
            draw_gradient(&r, step);
            step_in_spans(&variants[variant], pool, &r, step, 512);
        }
        for (int64_t i = 0; i < 512; i++)
            if (i >= 300 || i % 9 == 0) {
                cr_assert_eq(r.p[i], 0);
                for (int s = 0; s < 2; s++) cr_assert_eq(r.blocks[s][i / BLOCK].codes[i % BLOCK], 0);
            } else {
                cr_assert_neq(r.p[i], 0);
            }
        free_run(&r);
    }
    shd_pool_destroy(pool);
}

/* --- what it does to training ------------------------------------------------------------------------------------- */

/* How states are kept between steps. LINEAR is what codes would be if they were spread evenly: a control, which must not
 * pass for sound. */
typedef enum keep { FLOATS, BLOCKS, LINEAR } keep;

static void round_linearly(float *values, int64_t count, bool root) {
    for (int64_t first = 0; first < count; first += BLOCK) {
        float largest = 0, levels = root ? 255 : 127;
        for (int64_t i = first; i < first + BLOCK; i++) largest = fmaxf(largest, fabsf(values[i]));
        for (int64_t i = first; largest > 0 && i < first + BLOCK; i++)
            values[i] = roundf(values[i] / largest * levels) / levels * largest;
    }
}

enum { INPUTS = 1024, BATCH = 8, STEPS = 500 };

/* Linear regression on inputs whose sizes differ over three decades, as those of a network's layers do. Returns the mean
 * squared error over the last hundred steps, before each step's update. */
static double train(const sherd_optimizer *o, double lr, keep how) {
    shd_pool *pool = NULL;
    cr_assert_eq(shd_pool_create(1, &pool), SHERD_OK);
    run r = make_run(INPUTS);
    float truth[INPUTS], x[INPUTS];
    shd_random_normal(2, 0, INPUTS, 1, truth);
    memset(r.p, 0, sizeof truth);
    double late = 0;
    for (int64_t step = 0; step < STEPS; step++) {
        memset(r.g, 0, sizeof x);
        for (int b = 0; b < BATCH; b++) {
            shd_random_normal(9, (step * BATCH + b) * INPUTS, INPUTS, 1, x);
            double error = 0;
            for (int i = 0; i < INPUTS; i++) {
                x[i] *= powf(10, -(float)(i % 13) / 4);
                error += x[i] * (r.p[i] - truth[i]);
            }
            if (step >= STEPS - 100) late += error * error / BATCH / 100;
            for (int i = 0; i < INPUTS; i++) r.g[i] += (float)error * x[i] / BATCH;
        }
        shd_update update = make_update(&r, step);
        update.lr = lr * (1 - 0.9 * (double)step / STEPS);
        update.weight_decay = 0;
        update.gradient_scale = 1;
        for (int32_t s = 0; s < shd_optimizer_state_count(o); s++) {
            update.states[s] = r.values[s];
            update.state_blocks[s] = r.blocks[s];
            if (how == BLOCKS) update.codebooks[s] = &books[shd_optimizer_state_is_root(o, s)];
        }
        shd_optimizer_update(o, pool, &update);
        for (int32_t s = 0; how == LINEAR && s < shd_optimizer_state_count(o); s++)
            round_linearly(r.values[s], INPUTS, shd_optimizer_state_is_root(o, s));
    }
    free_run(&r);
    shd_pool_destroy(pool);
    return late;
}

/* The control diverges with Adam: a second moment that is small within its block becomes zero. */
Test(optimizer_blocks, train_as_well_as_float32_where_evenly_spread_codes_diverge) {
    static const double lr[VARIANTS] = {1e-2, 1e-2, 2e-3, 1e-3, 1e-3};
    for (int variant = 0; variant < VARIANTS; variant++) {
        double floats = train(&variants[variant], lr[variant], FLOATS);
        double blocks = train(&variants[variant], lr[variant], BLOCKS);
        cr_assert_float_eq(blocks, floats, 0.02 * floats, "variant %d: %g, and %g in float32", variant, blocks, floats);
        if (shd_optimizer_state_count(&variants[variant]) == 2)
            cr_assert_gt(train(&variants[variant], lr[variant], LINEAR), 5 * floats);
    }
}
