/* Muon and Adafactor on single tensors: against float64, and that neither threads nor instruction sets change bits. */
#include "optim/whole_kernels.h"
#include "runtime/base/random.h"
#include "support/textbook_whole.h"
#include "tests/optim/whole_run.h"

#include <criterion/criterion.h>

enum { STEPS = 100 };

static const sherd_tensor matrices[] = {
    {.name = "one", .dim_count = 2, .shape = {1, 1}},     {.name = "row", .dim_count = 2, .shape = {1, 17}},
    {.name = "column", .dim_count = 2, .shape = {17, 1}}, {.name = "wide", .dim_count = 2, .shape = {8, 33}},
    {.name = "tall", .dim_count = 2, .shape = {33, 8}},   {.name = "square", .dim_count = 2, .shape = {17, 17}},
};
static const sherd_tensor others[] = {
    {.name = "scalar", .dim_count = 0},
    {.name = "vector", .dim_count = 1, .shape = {257}},
    {.name = "stack", .dim_count = 3, .shape = {3, 5, 7}},
    {.name = "stacks", .dim_count = 4, .shape = {2, 2, 9, 4}},
    {.name = "empty", .dim_count = 2, .shape = {4, 0}},
};
enum { MATRICES = sizeof matrices / sizeof *matrices, OTHERS = sizeof others / sizeof *others };

static sherd_optimizer with_kind(sherd_optimizer_kind kind) {
    sherd_optimizer optimizer = SHERD_OPTIMIZER_INIT;
    optimizer.kind = kind;
    return optimizer;
}

static shd_pool *make_pool(int32_t threads) {
    shd_pool *pool = NULL;
    cr_assert_eq(shd_pool_create(threads, &pool), SHERD_OK);
    return pool;
}

static double largest_gap(const whole_run *run, const double *expected) {
    double gap = 0;
    for (int64_t i = 0; i < run->count; i++) gap = fmax(gap, fabs((double)run->p[i] - expected[i]));
    return gap;
}

/* 100 steps with a changing learning rate, a spike now and then, and a gradient scale. Gradients: random; `rank_one`:
 * that of one pair of vectors, the same direction in all steps. */
static void follow_textbook(const sherd_optimizer *optimizer, const sherd_tensor *tensor, bool rank_one) {
    shd_pool *pool = make_pool(2);
    whole_run run = whole_run_make(optimizer, tensor);
    size_t room = (size_t)run.count + 1;
    textbook_whole book = {tensor, calloc(room, 8), calloc(room, 8), calloc(room, 8)};
    double *g = calloc(room, 8);
    float *left = calloc(room, 4), *right = calloc(room, 4);
    shd_random_normal(1, 0, run.count, 0.5, run.p);
    for (int64_t i = 0; i < run.count; i++) book.p[i] = (double)run.p[i];
    for (int64_t step = 0; step < STEPS; step++) {
        double lr = 0.02 + 0.001 * (double)(step % 7), size = step % 10 == 9 ? 20 : 0.1;
        shd_random_normal(100 + (uint64_t)step, 0, run.count, size, run.g);
        if (rank_one) {
            int64_t columns = tensor->shape[tensor->dim_count - 1];
            shd_random_normal(7, 0, run.count, 1, left);
            shd_random_normal(8, 0, run.count, 1, right);
            for (int64_t i = 0; i < run.count; i++) run.g[i] = left[i / columns] * right[i % columns];
        }
        for (int64_t i = 0; i < run.count; i++) g[i] = 0.25 * (double)run.g[i];
        whole_run_update(&run, optimizer, pool, step, lr, 0.125, 0.25f);
        if (run.count == 0) continue;
        if (optimizer->kind == SHERD_MUON)
            textbook_muon(optimizer, &book, g, lr, 0.125);
        else
            textbook_adafactor(optimizer, &book, g, step, lr, 0.125);
    }
    double gap = largest_gap(&run, book.p);
    /* What rounding leaves of singular values that should be zero is multiplied by up to 3.4445⁵ in every step. */
    cr_expect(gap <= (rank_one ? 2e-4 : 2e-5), "%s: %g away after %d steps", tensor->name, gap, STEPS);
    free(book.p), free(book.s0), free(book.s1), free(g), free(left), free(right);
    whole_run_free(&run);
    shd_pool_destroy(pool);
}

Test(whole, muon_follows_float64_for_a_hundred_steps) {
    sherd_optimizer optimizer = with_kind(SHERD_MUON);
    for (int i = 0; i < MATRICES; i++) {
        optimizer.momentum = 0.95;
        optimizer.nesterov = true;
        optimizer.ns_steps = 5;
        optimizer.adjust_lr = SHERD_ADJUST_LR_MATCH_RMS_ADAMW;
        follow_textbook(&optimizer, &matrices[i], false);
        follow_textbook(&optimizer, &matrices[i], true);
        optimizer.adjust_lr = SHERD_ADJUST_LR_ORIGINAL;
        optimizer.nesterov = false;
        optimizer.ns_steps = 4;
        follow_textbook(&optimizer, &matrices[i], false);
        optimizer.momentum = 0; /* no state */
        follow_textbook(&optimizer, &matrices[i], false);
    }
}

Test(whole, adafactor_follows_float64_for_a_hundred_steps) {
    sherd_optimizer optimizer = with_kind(SHERD_ADAFACTOR);
    for (int i = 0; i < MATRICES + OTHERS; i++) {
        const sherd_tensor *tensor = i < MATRICES ? &matrices[i] : &others[i - MATRICES];
        optimizer.beta2_decay = -0.8;
        optimizer.update_clip = 1;
        optimizer.scale_floor = 1e-3;
        follow_textbook(&optimizer, tensor, false);
        if (tensor->dim_count == 2 && tensor->shape[1] > 0) follow_textbook(&optimizer, tensor, true);
        optimizer.beta2_decay = -0.5;
        optimizer.update_clip = 1.5;
        optimizer.scale_floor = 0.25;
        follow_textbook(&optimizer, tensor, false);
    }
}

/* The singular values of what Muon takes off, by the eigenvalues of its Gram matrix, which for a product with itself
 * lie on the diagonal: a diagonal gradient shows them one by one. */
Test(whole, muon_brings_singular_values_near_one) {
    sherd_optimizer optimizer = with_kind(SHERD_MUON);
    const sherd_tensor tensor = {.name = "diagonal", .dim_count = 2, .shape = {5, 9}};
    shd_pool *pool = make_pool(1);
    whole_run run = whole_run_make(&optimizer, &tensor);
    const float values[5] = {3, 1, 0.5f, 0.1f, 0.05f};
    for (int i = 0; i < 5; i++) run.g[i * 9 + i] = i % 2 ? -values[i] : values[i];
    optimizer.adjust_lr = SHERD_ADJUST_LR_ORIGINAL;
    whole_run_update(&run, &optimizer, pool, 0, 1, 0, 1);
    for (int i = 0; i < 45; i++) {
        double value = (double)run.p[i];
        bool diagonal = i % 10 == 0 && i / 9 == i % 9;
        if (diagonal)
            cr_expect(fabs(value) > 0.5 && fabs(value) < 1.3 && (value < 0) == (i / 10 % 2 == 0), "%d: %g", i, value);
        else
            cr_expect(value == 0, "%d: %g", i, value);
    }
    whole_run_free(&run);
    shd_pool_destroy(pool);
}

Test(whole, a_zero_gradient_moves_nothing_but_by_decay) {
    static const sherd_optimizer_kind kinds[] = {SHERD_MUON, SHERD_ADAFACTOR};
    shd_pool *pool = make_pool(1);
    for (int k = 0; k < 2; k++) {
        sherd_optimizer optimizer = with_kind(kinds[k]);
        whole_run run = whole_run_make(&optimizer, &matrices[3]);
        for (int64_t i = 0; i < run.count; i++) run.p[i] = (float)i;
        whole_run_update(&run, &optimizer, pool, 0, 0.5, 0, 1);
        for (int64_t i = 0; i < run.count; i++) cr_assert_eq(run.p[i], (float)i);
        memset(run.g, 0, (size_t)run.count * 4);
        whole_run_update(&run, &optimizer, pool, 1, 0.5, 1, 1);
        for (int64_t i = 0; i < run.count; i++) cr_assert_eq(run.p[i], (float)i / 2);
        whole_run_free(&run);
    }
    shd_pool_destroy(pool);
}

/* The second gradient is sound again. 1e25 is as well, but its square is beyond float32: Adafactor's variances are not
 * finite any more, while Muon keeps none. */
Test(whole, what_is_not_finite_in_gradient_or_state_shows_in_every_parameter) {
    static const float odd[] = {NAN, INFINITY, -INFINITY, 1e25f};
    shd_pool *pool = make_pool(2);
    for (int t = 0; t < MATRICES + OTHERS - 1; t++)
        for (int i = 0; i < 8; i++) {
            const sherd_tensor *tensor = t < MATRICES ? &matrices[t] : &others[t - MATRICES];
            sherd_optimizer optimizer = with_kind(i < 4 ? SHERD_ADAFACTOR : SHERD_MUON);
            optimizer.momentum = 0.95;
            if (i >= 4 && (tensor->dim_count != 2 || i == 7)) continue;
            whole_run run = whole_run_make(&optimizer, tensor);
            for (int64_t step = 0; step < 2; step++) {
                for (int64_t e = 0; e < run.count; e++) run.g[e] = 0.5f;
                if (step == 0) run.g[run.count / 2] = odd[i % 4];
                whole_run_update(&run, &optimizer, pool, step, 0.1, 0, 1);
            }
            for (int64_t e = 0; e < run.count; e++)
                cr_assert(isnan(run.p[e]), "%s, %s of %g: element %lld is %g", i < 4 ? "adafactor" : "muon",
                          tensor->name, (double)odd[i % 4], (long long)e, (double)run.p[e]);
            whole_run_free(&run);
        }
    shd_pool_destroy(pool);
}

Test(whole, threads_change_no_bits) {
    static const sherd_tensor tensors[] = {{.name = "large", .dim_count = 2, .shape = {130, 300}},
                                           {.name = "long", .dim_count = 2, .shape = {20000, 3}},
                                           {.name = "stack", .dim_count = 3, .shape = {5, 100, 200}},
                                           {.name = "vector", .dim_count = 1, .shape = {70000}}};
    for (int t = 0; t < 4; t++)
        for (int k = 0; k < 2; k++) {
            sherd_optimizer optimizer = with_kind(k ? SHERD_MUON : SHERD_ADAFACTOR);
            if (k && tensors[t].dim_count != 2) continue;
            optimizer.momentum = 0.95;
            whole_run runs[3];
            for (int r = 0; r < 3; r++) {
                shd_pool *pool = make_pool(1 + r);
                runs[r] = whole_run_make(&optimizer, &tensors[t]);
                shd_random_normal(1, 0, runs[r].count, 1, runs[r].p);
                for (int64_t step = 0; step < 2; step++) {
                    shd_random_normal(2 + (uint64_t)step, 0, runs[r].count, 1, runs[r].g);
                    whole_run_update(&runs[r], &optimizer, pool, step, 0.1, 0.1, 1);
                }
                cr_expect(memcmp(runs[0].p, runs[r].p, (size_t)runs[r].count * 4) == 0, "%s, %d threads",
                          tensors[t].name, 1 + r);
                shd_pool_destroy(pool);
            }
            for (int r = 0; r < 3; r++) whole_run_free(&runs[r]);
        }
}

/* Every loop of every set against the baseline's. */
Test(whole, instruction_sets_give_the_same_bits) {
    enum { COUNT = 1003 };
    static float in[COUNT], a[2][COUNT], b[2][COUNT];
    static double sums[2][64];
    const shd_whole_kernels *list[SHD_OPTIM_KERNELS_MAX];
    int32_t sets = shd_whole_kernels_list(list);
    const shd_momentum_constants constants = {0.7f, 0.9f, 0.1f};
    shd_random_normal(3, 0, COUNT, 1, in);
    for (int32_t s = 0; s < sets; s++) {
        const shd_whole_kernels *pair[2] = {list[0], list[s]};
        double totals[2];
        for (int i = 0; i < 2; i++) {
            for (int j = 0; j < COUNT; j++) a[i][j] = in[j], b[i][j] = in[j] * in[j];
            pair[i]->follow(&constants, a[i], b[i], COUNT);
            pair[i]->follow_nesterov(&constants, a[i], b[i], COUNT);
            pair[i]->combine(0.3f, -0.6f, a[i], b[i], COUNT);
            pair[i]->scale(1.7f, a[i], a[i], COUNT);
            pair[i]->precondition(0.3f, in, 1e-3f, a[i], COUNT);
            for (int j = 0; j < COUNT; j++) b[i][j] = in[j] * in[j];
            pair[i]->precondition_elements(0.2f, 1e-3f, b[i], a[i], COUNT);
            pair[i]->take(0.99f, a[i], b[i], COUNT);
            memset(sums[i], 0, sizeof sums[i]);
            pair[i]->column_square_sums(a[i], 15, 65, 63, sums[i]);
            totals[i] = pair[i]->square_sum(a[i], COUNT);
        }
        cr_expect(memcmp(a[0], a[1], sizeof a[0]) == 0 && memcmp(b[0], b[1], sizeof b[0]) == 0, "set %d", s);
        cr_expect(memcmp(sums[0], sums[1], sizeof sums[0]) == 0 && totals[0] == totals[1], "sums of set %d", s);
    }
}

Test(whole, states_are_those_of_the_shape) {
    sherd_optimizer muon = with_kind(SHERD_MUON), adafactor = with_kind(SHERD_ADAFACTOR);
    cr_assert_eq(shd_whole_state_count(&muon), 0);
    muon.momentum = 0.95;
    cr_assert_eq(shd_whole_state_count(&muon), 1);
    cr_assert_str_eq(shd_whole_state_name(&muon, 0), "momentum");
    cr_assert_eq(shd_whole_state_elements(&muon, &matrices[3], 0), 8 * 33);
    cr_assert_eq(shd_whole_state_count(&adafactor), 3);
    cr_assert_str_eq(shd_whole_state_name(&adafactor, 1), "column_variance");
    static const int64_t expected[OTHERS][3] = {{0, 0, 1}, {0, 0, 257}, {15, 21, 0}, {36, 16, 0}, {0, 0, 0}};
    for (int t = 0; t < OTHERS; t++)
        for (int32_t s = 0; s < 3; s++)
            cr_expect(shd_whole_state_elements(&adafactor, &others[t], s) == expected[t][s], "%s, %d", others[t].name,
                      s);
}
