/* Losses on a device against the references; what is exact there, against the CPU, bit by bit. */
#include "runtime/base/dtype.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/reference.h"

#include "check_device.h"
#include "runtime/base/random.h"
#include "runtime/ops/cuda/cuda_ops.h"
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
                               {40, 257, 8, 2}, {9, 3000, 1, 0}, {2, 50257, 2, 0}, {130, 173, 40, 5}};
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
    const shd_math math = check_device_math(dtype);
    float *plain = check_copy(count, logits), *there = check_to_device(count * 4, logits);
    double *exact = check_widen(count, logits), *plain_loss = check_doubles(s->rows),
           *exact_loss = check_doubles(s->rows), *loss_there = check_device_memory(s->rows * 8);
    shd_reference_cross_entropy_f32(s->rows, s->vocabulary, plain, targets, scale, gradient, plain_loss);
    shd_reference_cross_entropy_f64(s->rows, s->vocabulary, exact, targets, (double)scale, gradient, exact_loss);
    shd_cuda_cross_entropy(&math, s->rows, s->vocabulary, there, check_to_device(s->rows * 4, targets), scale, gradient,
                           loss_there);
    const float *found = check_from_device(count * 4, there);
    const double *loss = check_from_device(s->rows * 8, loss_there);
    if (gradient) check_error(what, dtype, count, gradient_rows(dtype, s, found), plain, exact);
    check_error_f64(what, s->rows, loss, plain_loss, exact_loss);
    for (int64_t i = 0; i < s->rows; i++)
        if (targets[i] < 0) cr_assert(loss[i] == 0, "%s: row %d does not count", what, (int)i);
    if (!gradient) check_same_bits(what, count * 4, logits, found);
}

Test(cuda_losses, cross_entropy_is_at_most_twice_as_wrong_as_the_plain_reference, .timeout = 120) {
    check_device_begin();
    for (int s = 0; s < SHAPES; s++)
        for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++)
            for (int gradient = 0; gradient < 2; gradient++) {
                try_shape(&shapes[s], dtype, dtype == SHERD_FP16 ? 64.0f : 0.01f, gradient);
                check_device_next();
            }
    check_device_end();
}

Test(cuda_losses, logits_that_are_no_numbers_spoil_their_rows_loss, .timeout = 60) {
    check_device_begin();
    float logits[3 * 5] = {1, 2, NAN, 3, 4, 1, 2, 3, INFINITY, 5, 1, 2, 3, 4, 5};
    const int32_t targets[3] = {1, 1, 1};
    const shd_math math = check_device_math(SHERD_FP32);
    double *loss = check_device_memory(24);
    shd_cuda_cross_entropy(&math, 3, 5, check_to_device(60, logits), check_to_device(12, targets), 1, true, loss);
    loss = check_from_device(24, loss);
    cr_assert(!isfinite(loss[0]) && !isfinite(loss[1]) && isfinite(loss[2]));
    check_device_end();
}

enum { ROWS = 37, COLUMNS = 300 };

static void try_square_error(sherd_dtype dtype, int64_t rows, int64_t columns) {
    const int64_t count = rows * columns;
    float *outputs = check_random(count, 1, 2), *targets = check_random(count, 2, 2), *there;
    if (count > 4) targets[3] = NAN;
    double *loss = check_doubles(count), *loss_there = check_device_memory(count * 8);
    const shd_math math = check_device_math(dtype);
    there = check_to_device(count * 4, outputs);
    shd_cuda_square_error(&math, rows, columns, there, check_to_device(count * 4, targets), 0.3f, true, loss_there);
    shd_op_square_error(&check_maths[dtype][0], rows, columns, outputs, targets, 0.3f, true, loss);
    check_same_bits("losses", count * 8, loss, check_from_device(count * 8, loss_there));
    const char *found = check_from_device(count * 4, there);
    for (int64_t row = 0; row < rows; row++)
        check_same_bits("gradients", columns * shd_dtype_bytes(dtype), outputs + row * columns,
                        found + row * columns * 4);
    shd_cuda_join_rows(&math, rows, columns, there);
    shd_op_join_rows(&check_maths[dtype][0], rows, columns, outputs);
    check_same_bits("rows brought together", count * shd_dtype_bytes(dtype), outputs,
                    check_from_device(count * shd_dtype_bytes(dtype), there));
}

Test(cuda_losses, squared_errors_and_their_rows_are_those_of_the_cpu, .timeout = 60) {
    check_begin();
    check_device_begin();
    for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
        try_square_error(dtype, ROWS, COLUMNS);
        try_square_error(dtype, 1, 1);
        try_square_error(dtype, 5, 1000);
        check_device_next();
    }
    check_device_end();
    check_end();
}

Test(cuda_losses, the_first_of_the_largest_logits_is_the_prediction, .timeout = 60) {
    check_device_begin();
    float *logits = check_random(ROWS * COLUMNS, 3, 1);
    int32_t targets[ROWS];
    double expected[ROWS];
    for (int i = 0; i < ROWS; i++) {
        float *row = logits + i * COLUMNS;
        int best = 0;
        for (int j = 1; j < COLUMNS; j++)
            if (row[j] > row[best]) best = j;
        if (i % 3 == 0 && best + 7 < COLUMNS) row[best + 7] = row[best];
        targets[i] = i % 5 == 4 ? -1 : i % 4 == 1 ? (best + 1) % COLUMNS : best;
        if (i % 6 == 2) row[11] = NAN;
        expected[i] = targets[i] == best && i % 6 != 2;
    }
    const shd_math math = check_device_math(SHERD_FP32);
    double *correct = check_device_memory(sizeof expected);
    shd_cuda_correct(&math, ROWS, COLUMNS, check_to_device(ROWS * COLUMNS * 4, logits),
                     check_to_device(sizeof targets, targets), correct);
    check_same_bits("predictions", sizeof expected, expected, check_from_device(sizeof expected, correct));
    check_device_end();
}

static void try_dropout(sherd_dtype dtype, int64_t rows, int64_t context, int64_t columns, double p, bool residual) {
    const int64_t count = rows * columns, bytes = count * shd_dtype_bytes(dtype);
    const shd_dropout mask = shd_dropout_make(p, 0x123456789abcdefu, 77);
    const void *x = check_stored(dtype, count, check_random_of(dtype, count, 1, 1));
    const void *added = residual ? check_stored(dtype, count, check_random_of(dtype, count, 2, 1)) : NULL;
    void *y = check_memory(bytes), *there = check_to_device(bytes, x);
    const shd_math math = check_device_math(dtype);
    shd_op_dropout(&check_maths[dtype][0], &mask, rows, context, columns, x, added, y);
    shd_cuda_dropout(&math, &mask, rows, context, columns, there, check_to_device(bytes, added), there);
    check_same_bits("dropout", bytes, y, check_from_device(bytes, there));
}

Test(cuda_losses, dropout_drops_what_it_drops_on_the_cpu, .timeout = 60) {
    check_begin();
    check_device_begin();
    for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
        try_dropout(dtype, 1, 1, 1, 0.5, false);
        try_dropout(dtype, 18, 9, 67, 0.1, true);
        try_dropout(dtype, 30, 10, 64, 0.9, false);
        check_device_next();
    }
    check_device_end();
    check_end();
}
