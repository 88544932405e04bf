#include "optim/optimizer.h"
#include "optim/rounding.h"
#include "optim/schedule.h"
#include "optim/update_kernels.h"
#include "runtime/base/dtype.h"
#include "runtime/base/random.h"
#include "support/textbook.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 100, LARGEST = 4369 };
static const int64_t counts[] = {0, 1, 17, 257, LARGEST};

/* Every optimizer; SGD in its three forms. */
static const sherd_optimizer variants[] = {
    {.kind = SHERD_ADAMW, .lr = 3e-3, .min_lr = 3e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1},
    {.kind = SHERD_LION, .lr = 5e-4, .min_lr = 0, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.3},
    {.kind = SHERD_SGD, .lr = 3e-2, .min_lr = 1e-2, .momentum = 0.9, .weight_decay = 1e-3},
    {.kind = SHERD_SGD, .lr = 3e-1, .min_lr = 0, .momentum = 0, .weight_decay = 1e-3},
    {.kind = SHERD_SGD, .lr = 3e-2, .min_lr = 1e-3, .momentum = 0.9, .nesterov = true, .weight_decay = 1e-2},
    {.kind = SHERD_ADAM, .lr = 3e-3, .min_lr = 1e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

static sherd_optimizer make(int variant, sherd_schedule schedule) {
    sherd_optimizer optimizer = variants[variant];
    optimizer.schedule = schedule;
    optimizer.warmup_steps = 7;
    optimizer.total_steps = STEPS;
    optimizer.layer_lr_decay = 1;
    return optimizer;
}

static shd_pool *make_pool(int32_t threads) {
    shd_pool *pool = NULL;
    cr_assert_eq(shd_pool_create(threads, &pool), SHERD_OK);
    return pool;
}

/* One training run's arrays. */
typedef struct run {
    float *p, *g, *s[2];
    int64_t count;
} run;

static run make_run(int64_t count) {
    run r = {.count = count};
    float **arrays[] = {&r.p, &r.g, &r.s[0], &r.s[1]};
    for (int i = 0; i < 4; i++) *arrays[i] = calloc((size_t)count + 1, sizeof(float));
    shd_random_normal(1, 0, count, 1, r.p);
    return r;
}

static void free_run(run *r) { free(r->p), free(r->g), free(r->s[0]), free(r->s[1]); }

/* The gradient of step `step`: every ninth element always gets zero, as padding does. */
static void draw_gradient(run *r, int64_t step) {
    shd_random_normal(1000 + (uint64_t)step, 0, r->count, step % 3 ? 1 : 0.05, r->g);
    for (int64_t i = 4; i < r->count; i += 9) r->g[i] = 0;
}

static shd_update make_update(const sherd_optimizer *o, run *r, int64_t step, double lr_factor, double weight_decay) {
    shd_update update = {.parameters = r->p,
                         .gradients = r->g,
                         .count = r->count,
                         .step = step,
                         .lr = shd_schedule_lr(o, step) * lr_factor,
                         .weight_decay = weight_decay,
                         .gradient_scale = step % 5 ? 1.0f : 0.25f};
    for (int i = 0; i < shd_optimizer_state_count(o); i++) update.states[i] = r->s[i];
    return update;
}

static void check_against_reference(shd_pool *pool, const sherd_optimizer *o, int64_t count, double lr_factor,
                                    double weight_decay) {
    run r = make_run(count);
    textbook *e = calloc((size_t)count + 1, sizeof *e);
    for (int64_t i = 0; i < count; i++) e[i].p = r.p[i];
    for (int64_t step = 0; step < STEPS; step++) {
        draw_gradient(&r, step);
        shd_update update = make_update(o, &r, step, lr_factor, weight_decay);
        for (int64_t i = 0; i < count; i++)
            textbook_step(o, &e[i], (double)update.gradient_scale * r.g[i], step, lr_factor * shd_schedule_lr(o, step),
                          weight_decay);
        shd_optimizer_update(o, pool, &update);
    }
    int ambiguous = 0;
    for (int64_t i = 0; i < count; i++) {
        ambiguous += e[i].ambiguous;
        if (e[i].ambiguous) continue;
        cr_assert_float_eq(r.p[i], e[i].p, 5e-6 * (1 + fabs(e[i].p)),
                           "kind %d, schedule %d, decay %g, element %ld of %ld: %.9g, not %.9g", o->kind, o->schedule,
                           weight_decay, (long)i, (long)count, r.p[i], e[i].p);
        if (shd_optimizer_state_count(o) > 0) cr_assert_float_eq(r.s[0][i], e[i].s0, 5e-6 * (1 + fabs(e[i].s0)));
        if (shd_optimizer_state_count(o) > 1) cr_assert_float_eq(r.s[1][i], e[i].s1, 5e-6 * (1 + fabs(e[i].s1)));
    }
    cr_assert_leq(ambiguous, 20);
    free(e);
    free_run(&r);
}

/* With the variant's decay, without, and with what a group may say. */
Test(optimizer, follows_the_formulas_in_float64_for_a_hundred_steps) {
    shd_pool *pool = make_pool(1);
    for (int variant = 0; variant < VARIANTS; variant++)
        for (int schedule = SHERD_CONSTANT; schedule <= SHERD_INVERSE_SQRT; schedule++) {
            sherd_optimizer o = make(variant, (sherd_schedule)schedule);
            for (int i = 0; i < 5; i++) {
                check_against_reference(pool, &o, counts[i], 1, o.weight_decay);
                check_against_reference(pool, &o, counts[i], 1, 0);
                check_against_reference(pool, &o, counts[i], 0.3, o.weight_decay / 2);
            }
        }
    shd_pool_destroy(pool);
}

Test(optimizer, leaves_padding_at_zero) {
    shd_pool *pool = make_pool(1);
    for (int variant = 0; variant < VARIANTS; variant++) {
        sherd_optimizer o = make(variant, SHERD_COSINE);
        run r = make_run(64);
        static const float zeros[64];
        memset(r.p, 0, sizeof zeros);
        for (int64_t step = 0; step < 5; step++) {
            shd_update update = make_update(&o, &r, step, 1, o.weight_decay);
            shd_optimizer_update(&o, pool, &update);
        }
        const float *arrays[] = {r.p, r.s[0], r.s[1]};
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 64; j++) cr_assert_eq(arrays[i][j], 0);
        free_run(&r);
    }
    shd_pool_destroy(pool);
}

/* Three steps in spans of `span` elements. */
static run run_in_spans(shd_pool *pool, const sherd_optimizer *o, int64_t count, int64_t span) {
    run r = make_run(count);
    for (int64_t step = 0; step < 3; step++) {
        draw_gradient(&r, step);
        shd_update whole = make_update(o, &r, step, 1, o->weight_decay);
        for (int64_t first = 0; first < count; first += span) {
            shd_update part = whole;
            part.parameters += first;
            part.gradients += first;
            for (int i = 0; i < shd_optimizer_state_count(o); i++) part.states[i] += first;
            part.count = first + span < count ? span : count - first;
            shd_optimizer_update(o, pool, &part);
        }
    }
    return r;
}

Test(optimizer, gives_the_same_bits_for_any_spans_and_threads) {
    enum { COUNT = 40001 };
    static const int64_t spans[] = {COUNT, 20000, 16384, 4099, 977};
    for (int variant = 0; variant < VARIANTS; variant++) {
        sherd_optimizer o = make(variant, SHERD_LINEAR);
        shd_pool *one = make_pool(1);
        run expected = run_in_spans(one, &o, COUNT, COUNT);
        shd_pool_destroy(one);
        for (int32_t threads = 1; threads <= 3; threads++) {
            shd_pool *pool = make_pool(threads);
            for (int i = 0; i < 5; i++) {
                run r = run_in_spans(pool, &o, COUNT, spans[i]);
                cr_assert_eq(memcmp(r.p, expected.p, COUNT * sizeof(float)), 0, "variant %d, spans of %ld", variant,
                             (long)spans[i]);
                for (int j = 0; j < 2; j++) cr_assert_eq(memcmp(r.s[j], expected.s[j], COUNT * sizeof(float)), 0);
                free_run(&r);
            }
            shd_pool_destroy(pool);
        }
        free_run(&expected);
    }
}

/* Values of every kind: subnormal in either type, halfway between two, overflowing, not finite. */
static float awkward(int64_t i) {
    static const float special[] = {0,         -0.0f,       INFINITY,    -INFINITY,     NAN,          65504,
                                    65520,     -65519.996f, 0x1p-24f,    0x1p-25f,      0x1.8p-25f,   0x1p-126f,
                                    0x1p-149f, FLT_MAX,     1 + 0x1p-8f, 1 + 0x1.8p-7f, 1 + 0x1p-11f, 1 + 0x1.8p-10f};
    enum { SPECIALS = sizeof special / sizeof *special };
    if (i % 2) return special[i / 2 % SPECIALS];
    float value;
    uint32_t bits = (uint32_t)i * 2654435761u;
    memcpy(&value, &bits, sizeof value);
    return value;
}

Test(rounding, is_that_of_one_value_on_every_instruction_set_and_any_threads) {
    const shd_optim_kernels *list[SHD_OPTIM_KERNELS_MAX];
    int32_t available = shd_optim_kernels_list(list);
    enum { COUNT = 3 * 16384 + 1003 };
    static float from[COUNT];
    static uint16_t to[COUNT], expected[COUNT];
    for (int64_t i = 0; i < COUNT; i++) from[i] = awkward(i);
    for (sherd_dtype dtype = SHERD_BF16; dtype <= SHERD_FP16; dtype++) {
        for (int64_t i = 0; i < COUNT; i++)
            expected[i] = dtype == SHERD_BF16 ? shd_bf16_round(from[i]) : shd_fp16_round(from[i]);
        for (int32_t set = 0; set < available; set++) {
            memset(to, 0x55, sizeof to);
            shd_optim_round(list[set], dtype)(from, to, COUNT);
            cr_assert_eq(memcmp(to, expected, sizeof to), 0, "%s, %s", list[set]->name, shd_dtype_text(dtype));
        }
        for (int32_t threads = 1; threads <= 3; threads += 2) {
            shd_pool *pool = make_pool(threads);
            memset(to, 0x55, sizeof to);
            shd_round_span(pool, dtype, 0, from, to);
            cr_assert_eq(to[0], 0x5555);
            shd_round_span(pool, dtype, COUNT - 17, from + 17, to);
            cr_assert_eq(memcmp(to, expected + 17, sizeof to - 17 * sizeof *to), 0);
            cr_assert_eq(to[COUNT - 17], 0x5555);
            shd_pool_destroy(pool);
        }
    }
}

Test(optimizer, writes_the_rounded_parameters_beside_the_same_new_ones) {
    for (int v = 0; v < VARIANTS; v++)
        for (sherd_dtype dtype = SHERD_BF16; dtype <= SHERD_FP16; dtype++) {
            enum { COUNT = 2 * 16384 + 257 };
            static uint16_t rounded[COUNT + 1];
            sherd_optimizer optimizer = make(v, SHERD_CONSTANT);
            shd_pool *pool = make_pool(2);
            run alone = make_run(COUNT), copied = make_run(COUNT);
            rounded[COUNT] = 0x5555;
            for (int64_t step = 0; step < 3; step++) {
                draw_gradient(&alone, step);
                draw_gradient(&copied, step);
                shd_update update = {
                    .gradients = alone.g, .count = COUNT, .step = step, .lr = optimizer.lr, .gradient_scale = 1};
                update.parameters = alone.p, update.states[0] = alone.s[0], update.states[1] = alone.s[1];
                shd_optimizer_update(&optimizer, pool, &update);
                update.parameters = copied.p, update.states[0] = copied.s[0], update.states[1] = copied.s[1];
                update.rounded = rounded, update.rounded_dtype = dtype;
                shd_optimizer_update(&optimizer, pool, &update);
            }
            cr_assert_eq(memcmp(alone.p, copied.p, COUNT * sizeof(float)), 0);
            for (int64_t i = 0; i < COUNT; i++)
                cr_assert_eq(rounded[i],
                             dtype == SHERD_BF16 ? shd_bf16_round(copied.p[i]) : shd_fp16_round(copied.p[i]));
            cr_assert_eq(rounded[COUNT], 0x5555);
            free_run(&alone);
            free_run(&copied);
            shd_pool_destroy(pool);
        }
}

Test(optimizer, gives_the_same_bits_on_every_instruction_set) {
    const shd_optim_kernels *list[SHD_OPTIM_KERNELS_MAX];
    int32_t available = shd_optim_kernels_list(list);
    cr_assert_geq(available, 1);
    static const shd_update_constants c = {.gradient_scale = 0.3f,
                                           .lr = 1e-3f,
                                           .keep = 0.999f,
                                           .weight_decay = 0.01f,
                                           .momentum = 0.9f,
                                           .beta1 = 0.9f,
                                           .beta1_rest = 0.1f,
                                           .beta2 = 0.95f,
                                           .beta2_rest = 0.05f,
                                           .step_size = 2e-3f,
                                           .root_factor = 1.7f,
                                           .eps = 1e-8f};
    enum { COUNT = 1003 };
    enum { FUNCTIONS = 6 };
    static float expected[FUNCTIONS][3][COUNT];
    for (int32_t set = 0; set < available; set++) {
        shd_update_fn functions[FUNCTIONS] = {list[set]->adamw, list[set]->adam,         list[set]->lion,
                                              list[set]->sgd,   list[set]->sgd_momentum, list[set]->sgd_nesterov};
        for (int f = 0; f < FUNCTIONS; f++) {
            float arrays[3][COUNT], g[COUNT];
            for (int i = 0; i < 3; i++) shd_random_normal((uint64_t)i, 0, COUNT, 1, arrays[i]);
            for (int i = 0; i < COUNT; i++) arrays[2][i] = fabsf(arrays[2][i]);
            shd_random_normal(9, 0, COUNT, 1, g);
            functions[f](&c, arrays[0], g, arrays[1], arrays[2], COUNT);
            if (set == 0)
                memcpy(expected[f], arrays, sizeof arrays);
            else
                cr_assert_eq(memcmp(expected[f], arrays, sizeof arrays), 0, "%s, function %d", list[set]->name, f);
        }
    }
}

Test(optimizer, names_its_states) {
    sherd_optimizer o = SHERD_OPTIMIZER_INIT;
    cr_assert_eq(shd_optimizer_state_count(&o), 2);
    cr_assert_str_eq(shd_optimizer_state_name(&o, 0), "exp_avg");
    cr_assert_str_eq(shd_optimizer_state_name(&o, 1), "exp_avg_sq");
    o.kind = SHERD_ADAM;
    cr_assert_eq(shd_optimizer_state_count(&o), 2);
    cr_assert_str_eq(shd_optimizer_state_name(&o, 1), "exp_avg_sq");
    o.kind = SHERD_LION;
    cr_assert_eq(shd_optimizer_state_count(&o), 1);
    cr_assert_str_eq(shd_optimizer_state_name(&o, 0), "exp_avg");
    o.kind = SHERD_SGD;
    cr_assert_eq(shd_optimizer_state_count(&o), 0);
    o.momentum = 0.9;
    cr_assert_eq(shd_optimizer_state_count(&o), 1);
    cr_assert_str_eq(shd_optimizer_state_name(&o, 0), "momentum");
}

Test(clip, scales_only_above_the_bound) {
    cr_assert_eq(shd_clip_scale(0, 1e9), 1);
    cr_assert_eq(shd_clip_scale(1, 1), 1);
    cr_assert_eq(shd_clip_scale(1, 0), 1);
    cr_assert_float_eq(shd_clip_scale(1, 4), 1 / 4.000001, 1e-15);
    cr_assert_float_eq(shd_clip_scale(0.5, 2), 0.5 / 2.000001, 1e-15);
}

Test(optimizer, accepts_defaults_and_ignores_what_is_not_used) {
    sherd_optimizer o = SHERD_OPTIMIZER_INIT;
    cr_assert_eq(shd_optimizer_check(&o), SHERD_OK);
    o.momentum = 7;
    o.min_lr = 5;
    cr_assert_eq(shd_optimizer_check(&o), SHERD_OK);
    for (int variant = 0; variant < VARIANTS; variant++)
        for (int schedule = SHERD_CONSTANT; schedule <= SHERD_INVERSE_SQRT; schedule++) {
            o = make(variant, (sherd_schedule)schedule);
            cr_assert_eq(shd_optimizer_check(&o), SHERD_OK);
        }
}

Test(optimizer, a_schedule_with_an_end_needs_to_be_told_it) {
    sherd_optimizer o = SHERD_OPTIMIZER_INIT;
    o.schedule = SHERD_LINEAR;
    cr_assert_eq(shd_optimizer_check(&o), SHERD_CONFIG);
    cr_assert(strstr(sherd_last_error(), "optimizer.total_steps (train.steps) is 0"), "\"%s\"", sherd_last_error());
    o.total_steps = 1;
    cr_assert_eq(shd_optimizer_check(&o), SHERD_OK);
}

Test(optimizer, refuses_a_bad_value_and_names_its_key) {
    static const sherd_optimizer good = {.kind = SHERD_ADAMW,
                                         .schedule = SHERD_COSINE,
                                         .total_steps = 10,
                                         .lr = 1,
                                         .beta1 = 0.9,
                                         .beta2 = 0.9,
                                         .eps = 1e-8,
                                         .layer_lr_decay = 1,
                                         .ns_steps = 5,
                                         .update_clip = 1};
    struct {
        sherd_optimizer o;
        const char *says;
    } rows[64];
    int count = 0;
#define BAD(field, value, text) (rows[count].o = good, rows[count].o.field = (value), rows[count++].says = (text))
    BAD(kind, (sherd_optimizer_kind)6, "optimizer.kind (optimizer.name)");
    BAD(schedule, (sherd_schedule)9, "optimizer.schedule");
    BAD(decay, (sherd_decay)-1, "optimizer.decay");
    BAD(lr, -1, "optimizer.lr is -1; it must be 0 or more");
    BAD(lr, NAN, "optimizer.lr");
    BAD(lr, 1e39, "optimizer.lr");
    BAD(min_lr, -0.5, "optimizer.min_lr is -0.5");
    BAD(min_lr, 2, "optimizer.min_lr is 2; it must not be above optimizer.lr, which is 1");
    BAD(warmup_steps, -1, "optimizer.warmup_steps is -1");
    BAD(total_steps, 0, "optimizer.total_steps (train.steps) is 0; this schedule ends there");
    BAD(weight_decay, -0.1, "optimizer.weight_decay");
    BAD(weight_decay, INFINITY, "optimizer.weight_decay");
    BAD(beta1, 1, "optimizer.beta1 (optimizer.betas[0]) is 1; it must be in [0, 1)");
    BAD(beta2, 1.5, "(optimizer.betas[1]) is 1.5; it must be in [0, 1)");
    BAD(beta2, NAN, "optimizer.beta2 (optimizer.betas[1])");
    BAD(eps, 0, "optimizer.eps is 0");
    BAD(eps, -1e-8, "optimizer.eps");
    BAD(momentum, 1, "optimizer.momentum is 1; it must be in [0, 1)");
    rows[count - 1].o.kind = SHERD_SGD;
    BAD(beta1, -0.1, "(optimizer.betas[0])");
    rows[count - 1].o.kind = SHERD_LION;
    BAD(eps, 0, "optimizer.eps is 0");
    rows[count - 1].o.kind = SHERD_ADAM;
    BAD(nesterov, true, "optimizer.nesterov is true, but optimizer.momentum is 0");
    rows[count - 1].o.kind = SHERD_SGD;
    BAD(state_dtype, SHERD_BF16, "optimizer.state_dtype has the unknown value 1; it must be fp32 or int8");
    BAD(state_dtype, SHERD_INT8, "optimizer.state_dtype is int8, but sgd without optimizer.momentum keeps no state");
    rows[count - 1].o.kind = SHERD_SGD;
    BAD(state_dtype, SHERD_INT8, "optimizer.state_dtype is int8, but muon keeps its states in fp32; take fp32");
    rows[count - 1].o.kind = SHERD_MUON;
    BAD(state_dtype, SHERD_INT8, "optimizer.state_dtype is int8, but adafactor keeps its states in fp32");
    rows[count - 1].o.kind = SHERD_ADAFACTOR;
    BAD(warmup_tokens, -1, "optimizer.warmup_tokens is -1");
    BAD(warmup_tokens, 10, "optimizer.warmup_tokens is 10, but the tokens of a step are 0");
    BAD(warmup_tokens, 10, "optimizer.warmup_tokens is 10, and optimizer.warmup_steps is 3; give one of them");
    rows[count - 1].o.warmup_steps = 3;
    BAD(decay_steps, -1, "optimizer.decay_steps is -1");
    rows[count - 1].o.schedule = SHERD_WSD;
    BAD(decay_steps, 8, "optimizer.decay_steps is 8; of 10 steps, the first 3 of which warm up, it must be at most 7");
    rows[count - 1].o.schedule = SHERD_WSD;
    rows[count - 1].o.warmup_steps = 3;
    BAD(min_lr, 2, "optimizer.min_lr is 2");
    rows[count - 1].o.schedule = SHERD_INVERSE_SQRT;
    BAD(layer_lr_decay, 0, "optimizer.layer_lr_decay is 0; it must be above 0 and at most 1");
    BAD(layer_lr_decay, 1.01, "optimizer.layer_lr_decay is 1.01");
    BAD(layer_lr_decay, NAN, "optimizer.layer_lr_decay");
    BAD(momentum, 1, "optimizer.momentum is 1; it must be in [0, 1)");
    rows[count - 1].o.kind = SHERD_MUON;
    BAD(nesterov, true, "optimizer.nesterov is true, but optimizer.momentum is 0");
    rows[count - 1].o.kind = SHERD_MUON;
    BAD(ns_steps, 0, "optimizer.ns_steps is 0; it must be 1 to 100");
    rows[count - 1].o.kind = SHERD_MUON;
    BAD(ns_steps, 101, "optimizer.ns_steps is 101");
    rows[count - 1].o.kind = SHERD_MUON;
    BAD(adjust_lr, (sherd_adjust_lr)2, "optimizer.adjust_lr has the unknown value 2");
    rows[count - 1].o.kind = SHERD_MUON;
    BAD(eps, 0, "optimizer.eps is 0");
    rows[count - 1].o.kind = SHERD_MUON;
    BAD(beta2_decay, 0.5, "optimizer.beta2_decay is 0.5; it must be in [-1000, 0]");
    rows[count - 1].o.kind = SHERD_ADAFACTOR;
    BAD(update_clip, 0.5, "optimizer.update_clip is 0.5; it must be in [1, 1e30]");
    rows[count - 1].o.kind = SHERD_ADAFACTOR;
    BAD(scale_floor, -1, "optimizer.scale_floor is -1");
    rows[count - 1].o.kind = SHERD_ADAFACTOR;
#undef BAD
    for (int i = 0; i < count; i++) {
        cr_assert_eq(shd_optimizer_check(&rows[i].o), SHERD_CONFIG, "row %d", i);
        cr_assert(strstr(sherd_last_error(), rows[i].says), "row %d: \"%s\"", i, sherd_last_error());
    }
}
