#include "runtime/base/dtype.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/reference.h"

#include "check.h"
#include <criterion/criterion.h>
#include <stdio.h>

typedef struct shape {
    int64_t rows, context, heads, head_size, pad;
} shape;

static const shape shapes[] = {{0, 3, 1, 4, 0},   {1, 1, 1, 2, 0},    {36, 18, 5, 8, 3},
                               {99, 33, 1, 6, 0}, {66, 33, 2, 34, 1}, {300, 300, 4, 64, 16}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void try_shape(const shape *s, sherd_dtype dtype, bool inverse) {
    char what[120];
    snprintf(what, sizeof what, "rope rows %d heads %d of %d", (int)s->rows, (int)s->heads, (int)s->head_size);
    const int64_t stride = s->heads * s->head_size + s->pad, count = s->rows * stride;
    const int64_t bytes = shd_dtype_bytes(dtype);
    float *x = check_random_of(dtype, count, 1, 1), *table = check_floats(s->context * s->head_size);
    float *plain = check_copy(count, x);
    double *exact = check_widen(count, x);
    char *before = check_stored(dtype, count, x), *first = NULL;
    shd_op_rope_table(s->context, s->head_size, 10000, table);
    shd_reference_rope_f32(s->rows, s->context, s->heads, s->head_size, stride, 10000, inverse, plain);
    shd_reference_rope_f64(s->rows, s->context, s->heads, s->head_size, stride, 10000, inverse, exact);
    for (int p = 0; p < CHECK_POOLS; p++) {
        void *y = check_stored(dtype, count, x);
        shd_op_rope(&check_maths[dtype][p], s->rows, s->context, s->heads, s->head_size, stride, table, inverse, y);
        if (!first) first = y;
        check_same_bits(what, count * bytes, first, y);
    }
    check_error(what, dtype, count, first, plain, exact);
    for (int64_t i = 0; i < s->rows; i++) { /* what lies between rows is not touched */
        const int64_t at = (i * stride + stride - s->pad) * bytes;
        check_same_bits(what, s->pad * bytes, before + at, first + at);
    }
}

Test(rope, errors_are_at_most_twice_the_plain_references) {
    for (int s = 0; s < SHAPES; s++)
        for (int inverse = 0; inverse < 2; inverse++)
            for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
                check_begin();
                try_shape(&shapes[s], dtype, inverse);
                check_end();
            }
}

/* A rotation's inverse is its transpose, which is what the gradient needs. */
Test(rope, inverse_turns_back) {
    check_begin();
    float *x = check_random(33 * 24, 1, 1), *y = check_copy(33 * 24, x), *table = check_floats(33 * 8);
    shd_op_rope_table(33, 8, 500000, table);
    shd_op_rope(&check_maths[SHERD_FP32][1], 33, 33, 3, 8, 24, table, false, y);
    cr_assert_neq(x[24], y[24]);
    shd_op_rope(&check_maths[SHERD_FP32][1], 33, 33, 3, 8, 24, table, true, y);
    double worst = 0;
    for (int i = 0; i < 33 * 24; i++)
        worst = x[i] - y[i] > worst ? x[i] - y[i] : y[i] - x[i] > worst ? y[i] - x[i] : worst;
    cr_assert_lt(worst, 1e-6);
    check_end();
}

Test(rope, turns_by_position_times_frequency) {
    check_begin();
    float table[2 * 4], x[2 * 4] = {1, 0, 0, 0, 1, 10, 0, 0};
    shd_op_rope_table(2, 4, 100, table); /* frequencies 1 and 1/10 */
    shd_op_rope(&check_maths[SHERD_FP32][0], 2, 2, 1, 4, 4, table, false, x);
    static const double expected[] = {
        1, 0, 0, 0, 0.5403023058681398, 9.950041652780257, 0.8414709848078965, 0.9983341664682815};
    for (int i = 0; i < 8; i++) cr_assert_float_eq(x[i], expected[i], 1e-6);
    check_end();
}
