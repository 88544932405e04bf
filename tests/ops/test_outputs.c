#include "runtime/base/dtype.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/reference.h"

#include "check.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const int64_t shapes[][2] = {{0, 3}, {1, 1}, {1, 17}, {17, 257}, {5, 40000}, {70000, 2}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* --- squared errors ----------------------------------------------------------------------------------------------- */

/* The gradient's rows begin where those of the outputs did: brought together. */
static void *gradient_rows(sherd_dtype dtype, int64_t rows, int64_t columns, const float *outputs) {
    const size_t row_bytes = (size_t)(columns * shd_dtype_bytes(dtype));
    char *together = check_memory(rows * (int64_t)row_bytes);
    for (int64_t i = 0; i < rows; i++) memcpy(together + (size_t)i * row_bytes, outputs + i * columns, row_bytes);
    return together;
}

static void try_square_error(int64_t rows, int64_t columns, sherd_dtype dtype, bool gradient) {
    char what[120];
    snprintf(what, sizeof what, "squared error %dx%d", (int)rows, (int)columns);
    const int64_t count = rows * columns;
    const float *outputs = check_random(count, 1, 3), scale = 1.0f / 3072;
    float *targets = check_random(count, 2, 3), *plain = check_copy(count, outputs), *first = NULL;
    for (int64_t i = 0; i < count; i += 7) targets[i] = NAN;
    double *exact = check_widen(count, outputs), *wide_targets = check_widen(count, targets);
    double *plain_loss = check_doubles(count), *exact_loss = check_doubles(count), *first_loss = NULL;
    shd_reference_square_error_f32(rows, columns, plain, targets, scale, gradient, plain_loss);
    shd_reference_square_error_f64(rows, columns, exact, wide_targets, (double)scale, gradient, exact_loss);
    for (int p = 0; p < CHECK_POOLS; p++) {
        float *fast = check_copy(count, outputs);
        double *loss = check_doubles(count);
        shd_op_square_error(&check_maths[dtype][p], rows, columns, fast, targets, scale, gradient, loss);
        if (!first) first = fast, first_loss = loss;
        check_same_bits(what, count * 4, first, fast);
        check_same_bits(what, count * 8, first_loss, loss);
    }
    if (gradient) check_error(what, dtype, count, gradient_rows(dtype, rows, columns, first), plain, exact);
    if (!gradient) check_same_bits(what, count * 4, outputs, first);
    check_error_f64(what, count, first_loss, plain_loss, exact_loss);
    for (int64_t i = 0; i < count; i += 7) cr_assert(first_loss[i] == 0);
}

Test(outputs, squared_errors_are_at_most_twice_as_wrong_as_the_plain_references) {
    for (int s = 0; s < SHAPES; s++)
        for (int gradient = 0; gradient < 2; gradient++)
            for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
                check_begin();
                try_square_error(shapes[s][0], shapes[s][1], dtype, gradient);
                check_end();
            }
}

typedef struct problem {
    double *outputs, *targets, *losses;
} problem;

enum { ROWS = 9, COLUMNS = 5 };

static double total(void *context) {
    const problem *p = context;
    double sum = 0;
    shd_reference_square_error_f64(ROWS, COLUMNS, p->outputs, p->targets, 0, false, p->losses);
    for (int i = 0; i < ROWS * COLUMNS; i++) sum += p->losses[i];
    return sum;
}

Test(outputs, the_reference_gradient_is_the_derivative) {
    check_begin();
    const int64_t count = ROWS * COLUMNS;
    problem p = {.outputs = check_widen(count, check_random(count, 1, 2)),
                 .targets = check_widen(count, check_random(count, 2, 2)),
                 .losses = check_doubles(count)};
    double *gradient = check_doubles(count);
    memcpy(gradient, p.outputs, (size_t)count * sizeof *gradient);
    shd_reference_square_error_f64(ROWS, COLUMNS, gradient, p.targets, 1, true, p.losses);
    check_gradient("squared error", count, p.outputs, gradient, total, &p);
    check_end();
}

/* --- predictions -------------------------------------------------------------------------------------------------- */

Test(outputs, the_first_of_the_largest_logits_is_the_prediction) {
    static const float logits[][4] = {
        {1, 3, 2, 0}, {3, 3, 3, 3}, {0, 5, 5, 1}, {0, NAN, 5, 1}, {-1, -2, -3, -INFINITY}};
    static const double predicted[][4] = {{0, 1, 0, 0}, {1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 0, 0}, {1, 0, 0, 0}};
    check_begin();
    for (int row = 0; row < 5; row++)
        for (int32_t target = -1; target < 4; target++) {
            double correct = 7;
            shd_op_correct(&check_maths[SHERD_FP32][0], 1, 4, logits[row], &target, &correct);
            cr_assert_eq(correct, target < 0 ? 0 : predicted[row][target], "row %d, target %d", row, target);
        }
    check_end();
}

Test(outputs, predictions_are_counted_in_every_row_with_any_number_of_threads) {
    for (int s = 0; s < SHAPES; s++) {
        check_begin();
        const int64_t rows = shapes[s][0], classes = shapes[s][1];
        const float *logits = check_random(rows * classes, 3, 1);
        const int32_t *targets = check_random_ids(rows, 4, (int32_t)classes);
        for (int p = 0; p < CHECK_POOLS; p++) {
            double *correct = check_doubles(rows);
            shd_op_correct(&check_maths[SHERD_BF16][p], rows, classes, logits, targets, correct);
            for (int64_t i = 0; i < rows; i++) {
                int64_t best = 0;
                for (int64_t j = 1; j < classes; j++)
                    if (logits[i * classes + j] > logits[i * classes + best]) best = j;
                cr_assert_eq(correct[i], best == targets[i], "row %d of %dx%d", (int)i, (int)rows, (int)classes);
            }
        }
        check_end();
    }
}

/* --- biases ------------------------------------------------------------------------------------------------------- */

Test(outputs, biases_of_any_type_are_added_to_every_row) {
    for (int s = 0; s < SHAPES; s++)
        for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
            check_begin();
            const int64_t rows = shapes[s][0], columns = shapes[s][1];
            const float *y = check_random(rows * columns, 5, 1), *bias = check_random_of(dtype, columns, 6, 1);
            const void *stored = check_stored(dtype, columns, bias);
            for (int p = 0; p < CHECK_POOLS; p++) {
                float *sum = check_copy(rows * columns, y);
                shd_op_add_bias(&check_maths[dtype][p], rows, columns, stored, sum);
                for (int64_t i = 0; i < rows * columns; i++) cr_assert_eq(sum[i], y[i] + bias[i % columns]);
            }
            check_end();
        }
}
