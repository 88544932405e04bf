#include "optim/optimizer.h"
#include "optim/update_kernels.h"
#include "runtime/base/random.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 100, LARGEST = 4369 };
static const int64_t counts[] = {0, 1, 17, 257, LARGEST};

/* Every optimizer; SGD with and without momentum. */
static const sherd_optimizer variants[] = {
    {.kind = SHERD_ADAMW, .lr = 3e-3, .min_lr = 3e-4, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1},
    {.kind = SHERD_LION, .lr = 5e-4, .min_lr = 0, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.3},
    {.kind = SHERD_SGD, .lr = 3e-2, .min_lr = 1e-2, .momentum = 0.9, .weight_decay = 1e-3},
    {.kind = SHERD_SGD, .lr = 3e-1, .min_lr = 0, .momentum = 0, .weight_decay = 1e-3},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

static sherd_optimizer make(int variant, sherd_schedule schedule) {
    sherd_optimizer optimizer = variants[variant];
    optimizer.schedule = schedule;
    optimizer.warmup_steps = 7;
    optimizer.total_steps = STEPS;
    return optimizer;
}

static shd_pool *make_pool(int32_t threads) {
    shd_pool *pool = NULL;
    cr_assert_eq(shd_pool_create(threads, &pool), SHERD_OK);
    return pool;
}

/* The textbook in float64, written apart from the code under test: README of the reference runs. */
typedef struct reference {
    double p, s0, s1;
    bool ambiguous; /* Lion: a direction so near zero that float32 may take the other sign */
} reference;

static void step_reference(const sherd_optimizer *o, reference *e, double g, int64_t step, double lr, bool decay) {
    double wd = decay ? o->weight_decay : 0;
    if (o->kind == SHERD_ADAMW) {
        e->p *= 1 - lr * wd;
        e->s0 = o->beta1 * e->s0 + (1 - o->beta1) * g;
        e->s1 = o->beta2 * e->s1 + (1 - o->beta2) * g * g;
        double m_hat = e->s0 / (1 - pow(o->beta1, (double)step + 1)),
               v_hat = e->s1 / (1 - pow(o->beta2, (double)step + 1));
        e->p -= lr * m_hat / (sqrt(v_hat) + o->eps);
    } else if (o->kind == SHERD_LION) {
        double u = o->beta1 * e->s0 + (1 - o->beta1) * g;
        if (u != 0 && fabs(u) < 1e-6) e->ambiguous = true;
        e->s0 = o->beta2 * e->s0 + (1 - o->beta2) * g;
        e->p *= 1 - lr * wd;
        e->p -= lr * (u > 0 ? 1 : u < 0 ? -1 : 0);
    } else {
        g += wd * e->p;
        e->s0 = step == 0 ? g : o->momentum * e->s0 + g;
        e->p -= lr * e->s0;
    }
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

static shd_update make_update(const sherd_optimizer *o, run *r, int64_t step, bool decay) {
    shd_update update = {.parameters = r->p,
                         .gradients = r->g,
                         .count = r->count,
                         .step = step,
                         .lr = shd_schedule_lr(o, step),
                         .gradient_scale = step % 5 ? 1.0f : 0.25f,
                         .decay = decay};
    for (int i = 0; i < shd_optimizer_state_count(o); i++) update.states[i] = r->s[i];
    return update;
}

static void check_against_reference(shd_pool *pool, const sherd_optimizer *o, int64_t count, bool decay) {
    run r = make_run(count);
    reference *e = calloc((size_t)count + 1, sizeof *e);
    for (int64_t i = 0; i < count; i++) e[i].p = r.p[i];
    for (int64_t step = 0; step < STEPS; step++) {
        draw_gradient(&r, step);
        shd_update update = make_update(o, &r, step, decay);
        for (int64_t i = 0; i < count; i++)
            step_reference(o, &e[i], (double)update.gradient_scale * r.g[i], step, update.lr, decay);
        shd_optimizer_update(o, pool, &update);
    }
    int ambiguous = 0;
    for (int64_t i = 0; i < count; i++) {
        ambiguous += e[i].ambiguous;
        if (e[i].ambiguous) continue;
        cr_assert_float_eq(r.p[i], e[i].p, 5e-6 * (1 + fabs(e[i].p)),
                           "kind %d, schedule %d, decay %d, element %ld of %ld: %.9g, not %.9g", o->kind, o->schedule,
                           decay, (long)i, (long)count, r.p[i], e[i].p);
        if (shd_optimizer_state_count(o) > 0) cr_assert_float_eq(r.s[0][i], e[i].s0, 5e-6 * (1 + fabs(e[i].s0)));
        if (shd_optimizer_state_count(o) > 1) cr_assert_float_eq(r.s[1][i], e[i].s1, 5e-6 * (1 + fabs(e[i].s1)));
    }
    cr_assert_leq(ambiguous, 20);
    free(e);
    free_run(&r);
}

Test(optimizer, follows_the_formulas_in_float64_for_a_hundred_steps) {
    shd_pool *pool = make_pool(1);
    for (int variant = 0; variant < VARIANTS; variant++)
        for (int schedule = SHERD_CONSTANT; schedule <= SHERD_COSINE; schedule++)
            for (int decay = 0; decay < 2; decay++)
                for (int i = 0; i < 5; i++) {
                    sherd_optimizer o = make(variant, (sherd_schedule)schedule);
                    check_against_reference(pool, &o, counts[i], decay);
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
            shd_update update = make_update(&o, &r, step, true);
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
        shd_update whole = make_update(o, &r, step, true);
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
    float expected[4][3][COUNT];
    for (int32_t set = 0; set < available; set++) {
        shd_update_fn functions[4] = {list[set]->adamw, list[set]->lion, list[set]->sgd, list[set]->sgd_momentum};
        for (int f = 0; f < 4; f++) {
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

Test(optimizer, decays_what_it_is_told_to) {
    sherd_optimizer o = SHERD_OPTIMIZER_INIT;
    for (int32_t dims = 0; dims <= 4; dims++) {
        o.weight_decay = 0.1;
        o.decay = SHERD_DECAY_MATRICES;
        cr_assert_eq(shd_optimizer_decays(&o, dims), dims >= 2);
        o.decay = SHERD_DECAY_ALL;
        cr_assert(shd_optimizer_decays(&o, dims));
        o.decay = SHERD_DECAY_NONE;
        cr_assert_not(shd_optimizer_decays(&o, dims));
        o.decay = SHERD_DECAY_ALL;
        o.weight_decay = 0;
        cr_assert_not(shd_optimizer_decays(&o, dims));
    }
}

Test(optimizer, names_its_states) {
    sherd_optimizer o = SHERD_OPTIMIZER_INIT;
    cr_assert_eq(shd_optimizer_state_count(&o), 2);
    cr_assert_str_eq(shd_optimizer_state_name(&o, 0), "exp_avg");
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

/* What the reference runs recorded (Python), and hand-worked rows for the edges: no warm-up, warm-up to the end, past
 * the end. */
Test(schedule, follows_the_recorded_runs_and_hand_worked_rows) {
    static const struct {
        sherd_schedule schedule;
        int32_t warmup;
        int64_t total;
        double lr, min_lr;
        int64_t step;
        double expected;
    } rows[] = {
        {SHERD_COSINE, 6, 60, 0.003, 0.0003, 0, 0.0005},
        {SHERD_COSINE, 6, 60, 0.003, 0.0003, 2, 0.0015},
        {SHERD_COSINE, 6, 60, 0.003, 0.0003, 6, 0.003},
        {SHERD_COSINE, 6, 60, 0.003, 0.0003, 30, 0.0018844250398503562},
        {SHERD_COSINE, 6, 60, 0.003, 0.0003, 59, 0.00030228398633378795},
        {SHERD_COSINE, 4, 40, 0.3, 0, 5, 0.29942920471376183},
        {SHERD_COSINE, 4, 40, 0.3, 0, 39, 0.0005707952862381682},
        {SHERD_COSINE, 0, 7, 1, 0, 3, 0.61126046697815717},
        {SHERD_COSINE, 0, 7, 1, 0.25, 7, 0.25},
        {SHERD_COSINE, 0, 7, 1, 0.25, 700, 0.25},
        {SHERD_COSINE, 5, 5, 1, 0.25, 4, 1},
        {SHERD_COSINE, 5, 5, 1, 0.25, 5, 0.25},
        {SHERD_LINEAR, 4, 40, 0.0005, 0, 0, 0.000125},
        {SHERD_LINEAR, 4, 40, 0.0005, 0, 6, 0.00047222222222222224},
        {SHERD_LINEAR, 4, 40, 0.0005, 0, 39, 1.3888888888888913e-05},
        {SHERD_LINEAR, 0, 4, 1, 0.5, 1, 0.875},
        {SHERD_LINEAR, 0, 4, 1, 0.5, 9, 0.5},
        {SHERD_LINEAR, 10, 4, 1, 0.5, 3, 0.4},
        {SHERD_CONSTANT, 4, 1, 2, 0, 0, 0.5},
        {SHERD_CONSTANT, 4, 1, 2, 0, 3, 2},
        {SHERD_CONSTANT, 4, 1, 2, 0, 1000, 2},
        {SHERD_CONSTANT, 0, 1, 2, 7, 0, 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sherd_optimizer o = {.schedule = rows[i].schedule,
                             .warmup_steps = rows[i].warmup,
                             .total_steps = rows[i].total,
                             .lr = rows[i].lr,
                             .min_lr = rows[i].min_lr};
        double lr = shd_schedule_lr(&o, rows[i].step);
        cr_assert_float_eq(lr, rows[i].expected, 1e-14, "row %zu: %.17g", i, lr);
    }
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
        for (int schedule = SHERD_CONSTANT; schedule <= SHERD_COSINE; schedule++) {
            o = make(variant, (sherd_schedule)schedule);
            cr_assert_eq(shd_optimizer_check(&o), SHERD_OK);
        }
}

Test(optimizer, refuses_a_bad_value_and_names_its_key) {
    static const sherd_optimizer good = {.kind = SHERD_ADAMW,
                                         .schedule = SHERD_COSINE,
                                         .total_steps = 10,
                                         .lr = 1,
                                         .beta1 = 0.9,
                                         .beta2 = 0.9,
                                         .eps = 1e-8};
    struct {
        sherd_optimizer o;
        const char *says;
    } rows[24];
    int count = 0;
#define BAD(field, value, text) (rows[count].o = good, rows[count].o.field = (value), rows[count++].says = (text))
    BAD(kind, (sherd_optimizer_kind)3, "optimizer.name");
    BAD(schedule, (sherd_schedule)9, "optimizer.schedule");
    BAD(decay, (sherd_decay)-1, "optimizer.decay");
    BAD(lr, -1, "optimizer.lr is -1; it must be 0 or more");
    BAD(lr, NAN, "optimizer.lr");
    BAD(lr, 1e39, "optimizer.lr");
    BAD(min_lr, -0.5, "optimizer.min_lr is -0.5");
    BAD(min_lr, 2, "optimizer.min_lr is 2; it must not be above optimizer.lr, which is 1");
    BAD(warmup_steps, -1, "optimizer.warmup_steps is -1");
    BAD(total_steps, 0, "optimizer.schedule ends at step 0");
    BAD(weight_decay, -0.1, "optimizer.weight_decay");
    BAD(weight_decay, INFINITY, "optimizer.weight_decay");
    BAD(beta1, 1, "optimizer.betas[0] is 1; it must be in [0, 1)");
    BAD(beta2, 1.5, "optimizer.betas[1] is 1.5; it must be in [0, 1)");
    BAD(beta2, NAN, "optimizer.betas[1]");
    BAD(eps, 0, "optimizer.eps is 0");
    BAD(eps, -1e-8, "optimizer.eps");
    BAD(momentum, 1, "optimizer.momentum is 1; it must be in [0, 1)");
    rows[count - 1].o.kind = SHERD_SGD;
    BAD(beta1, -0.1, "optimizer.betas[0]");
    rows[count - 1].o.kind = SHERD_LION;
#undef BAD
    for (int i = 0; i < count; i++) {
        cr_assert_eq(shd_optimizer_check(&rows[i].o), SHERD_CONFIG, "row %d", i);
        cr_assert(strstr(sherd_last_error(), rows[i].says), "row %d: \"%s\"", i, sherd_last_error());
    }
}
