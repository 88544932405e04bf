#include "runtime/base/dtype.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/reference.h"

#include "check.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct shape {
    int64_t rows, vocabulary;
    double spread;    /* of the logits */
    int ignored_each; /* every which row's target is ignored; 1: all; 0: none */
} shape;

static const shape shapes[] = {{0, 5, 1, 0},    {1, 1, 1, 0},    {1, 17, 1, 0},    {17, 173, 1, 3},  {33, 173, 1, 1},
                               {40, 257, 8, 2}, {9, 3000, 1, 0}, {3, 50257, 2, 0}, {130, 173, 40, 5}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static int32_t *make_targets(const shape *s) {
    int32_t *targets = check_random_ids(s->rows, 2, (int32_t)s->vocabulary);
    for (int64_t i = 0; s->ignored_each && i < s->rows; i += s->ignored_each) targets[i] = -1 - (int32_t)(i % 100);
    return targets;
}

/* The gradient's rows begin where those of the logits did: brought together. */
static void *gradient_rows(sherd_dtype dtype, const shape *s, const float *logits) {
    const size_t row_bytes = (size_t)(s->vocabulary * shd_dtype_bytes(dtype));
    char *rows = check_memory(s->rows * (int64_t)row_bytes);
    for (int64_t i = 0; i < s->rows; i++) memcpy(rows + (size_t)i * row_bytes, logits + i * s->vocabulary, row_bytes);
    return rows;
}

static void try_shape(const shape *s, sherd_dtype dtype, float scale, bool gradient) {
    char what[120];
    snprintf(what, sizeof what, "cross-entropy %dx%d, scale %g", (int)s->rows, (int)s->vocabulary, (double)scale);
    const int64_t count = s->rows * s->vocabulary;
    const float *logits = check_random(count, 1, s->spread);
    const int32_t *targets = make_targets(s);
    float *plain = check_copy(count, logits), *first = NULL;
    double *exact = check_widen(count, logits), *plain_loss = check_doubles(s->rows),
           *exact_loss = check_doubles(s->rows);
    double *first_loss = NULL;
    shd_reference_cross_entropy_f32(s->rows, s->vocabulary, plain, targets, scale, gradient, plain_loss);
    shd_reference_cross_entropy_f64(s->rows, s->vocabulary, exact, targets, (double)scale, gradient, exact_loss);
    for (int p = 0; p < CHECK_POOLS; p++) {
        float *fast = check_copy(count, logits);
        double *loss = check_doubles(s->rows);
        shd_op_cross_entropy(&check_maths[dtype][p], s->rows, s->vocabulary, fast, targets, scale, gradient, loss);
        if (!first) first = fast, first_loss = loss;
        check_same_bits(what, count * 4, first, fast);
        check_same_bits(what, s->rows * 8, first_loss, loss);
    }
    if (gradient) check_error(what, dtype, count, gradient_rows(dtype, s, first), plain, exact);
    check_error_f64(what, s->rows, first_loss, plain_loss, exact_loss);
    for (int64_t i = 0; i < s->rows; i++)
        if (targets[i] < 0) cr_assert(first_loss[i] == 0, "%s: row %d does not count", what, (int)i);
    if (!gradient) check_same_bits(what, count * 4, logits, first);
}

Test(cross_entropy, errors_are_at_most_twice_the_plain_references) {
    for (int s = 0; s < SHAPES; s++)
        for (int form = 0; form < 4; form++)
            for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
                check_begin();
                try_shape(&shapes[s], dtype, form & 1 ? 1.0f : 1.0f / 3072, form & 2);
                check_end();
            }
}

Test(cross_entropy, losses_are_the_same_with_and_without_gradient) {
    check_begin();
    const shape s = {21, 3000, 3, 4};
    float *logits = check_random(s.rows * s.vocabulary, 1, s.spread);
    const int32_t *targets = make_targets(&s);
    double alone[21], with[21];
    shd_op_cross_entropy(&check_maths[SHERD_FP32][1], s.rows, s.vocabulary, logits, targets, 1, false, alone);
    shd_op_cross_entropy(&check_maths[SHERD_FP32][1], s.rows, s.vocabulary, logits, targets, 1, true, with);
    check_same_bits("loss", sizeof alone, alone, with);
    check_end();
}

Test(cross_entropy, survives_extremes_and_reports_nan) {
    check_begin();
    float logits[] = {3e38f, -3e38f, 0, -INFINITY, 1, 2, NAN, 1, 2};
    static const int32_t targets[] = {0, 2, 1};
    double loss[3];
    shd_op_cross_entropy(&check_maths[SHERD_FP32][0], 3, 3, logits, targets, 1, true, loss);
    cr_assert(loss[0] == 0 && logits[0] == 0 && logits[1] == 0 && logits[2] == 0);
    cr_assert_float_eq(loss[1], log(1 + exp(-1)), 1e-6);
    cr_assert(logits[3] == 0);
    cr_assert(isnan(loss[2]) && isnan(logits[7]));
    check_end();
}

/* A loss scale that is too large for fp16 shows, and so does a logit that is no number. */
Test(cross_entropy, overflow_and_nan_show_in_fp16) {
    check_begin();
    float logits[] = {0, 0, 0, 0, NAN, 0};
    static const int32_t targets[] = {0, 2};
    double loss[2];
    shd_op_cross_entropy(&check_maths[SHERD_FP16][0], 2, 3, logits, targets, 3e6f, true, loss);
    const float *first = check_loaded(SHERD_FP16, 3, logits), *second = check_loaded(SHERD_FP16, 3, logits + 3);
    cr_assert(isinf(first[0]) && isinf(first[1]) && isinf(first[2]) && loss[0] > 0);
    cr_assert(isnan(loss[1]) && isnan(second[0]) && isnan(second[1]) && isnan(second[2]));
    check_end();
}

typedef struct problem {
    int64_t rows, vocabulary;
    double *logits;
    const int32_t *targets;
} problem;

static double mean_loss(void *context) {
    problem *p = context;
    double loss[5], sum = 0;
    shd_reference_cross_entropy_f64(p->rows, p->vocabulary, p->logits, p->targets, 0, false, loss);
    for (int64_t i = 0; i < p->rows; i++) sum += loss[i];
    return sum * 0.25;
}

Test(cross_entropy, reference_gradient_is_the_derivative) {
    check_begin();
    const shape s = {5, 11, 2, 4};
    problem p = {5, 11, check_widen(55, check_random(55, 1, 2)), make_targets(&s)};
    double *gradient = check_doubles(55), loss[5];
    for (int i = 0; i < 55; i++) gradient[i] = p.logits[i];
    shd_reference_cross_entropy_f64(5, 11, gradient, p.targets, 0.25, true, loss);
    check_gradient("cross-entropy", 55, p.logits, gradient, mean_loss, &p);
    check_end();
}
