#include "runtime/base/dtype.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/reference.h"

#include "check_device.h"
#include "runtime/device/cuda.h"
#include "runtime/ops/cuda/cuda_ops.h"
#include "runtime/ops/cuda/products.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct shape {
    int64_t m, n, k;
    int64_t pad; /* added to every leading dimension */
} shape;

/* Single elements, odd sizes, long sums, several tiles each way with a ragged last one, nothing to sum. */
static const shape shapes[] = {
    {1, 1, 1, 0},      {1, 17, 3, 2},     {17, 1, 257, 1},   {17, 257, 5, 3},  {257, 17, 129, 7},  {64, 64, 64, 0},
    {33, 100, 700, 4}, {300, 200, 33, 5}, {257, 521, 65, 9}, {600, 96, 16, 0}, {5, 1100, 1000, 1}, {3, 4, 0, 1},
};
enum { SHAPES = sizeof shapes / sizeof *shapes, VARIANTS = 128 };

/* The bits of a variant: transposes, accumulate, bias, residual of its own, residual in place, c in fp32. */
enum { A_TRANSPOSED = 1, B_TRANSPOSED = 2, ACCUMULATE = 4, BIAS = 8, RESIDUAL = 16, IN_PLACE = 32, WIDE = 64 };

/* What ops.h allows; WIDE says nothing in fp32. */
static bool allowed(sherd_dtype dtype, int variant) {
    const bool residual = variant & (RESIDUAL | IN_PLACE);
    if ((variant & RESIDUAL) && (variant & IN_PLACE)) return false;
    if (dtype == SHERD_FP32) return !(variant & WIDE);
    return variant & WIDE ? !(variant & BIAS) && !residual : !(variant & ACCUMULATE) || !residual;
}

static void try_variant(const shape *s, sherd_dtype dtype, int variant) {
    char what[120];
    snprintf(what, sizeof what, "%dx%dx%d variant %d", (int)s->m, (int)s->n, (int)s->k, variant);
    const sherd_dtype c_dtype = variant & WIDE ? SHERD_FP32 : dtype;
    const bool ta = variant & A_TRANSPOSED, tb = variant & B_TRANSPOSED;
    const int64_t lda = (ta ? s->m : s->k) + s->pad + (s->k == 0), ldb = (tb ? s->k : s->n) + s->pad + (s->k == 0),
                  ldc = s->n + s->pad;
    const int64_t a_count = (ta ? s->k : s->m) * lda, b_count = (tb ? s->n : s->k) * ldb, c_count = s->m * ldc;
    const float *a = check_random_of(dtype, a_count, 1, 1), *b = check_random_of(dtype, b_count, 2, 1);
    const float *before = check_random_of(c_dtype, c_count, 4, 1), *bias = check_random_of(dtype, s->n, 3, 1);
    const float *residual = check_random_of(dtype, c_count, 5, 1);

    double *exact = check_widen(c_count, before);
    shd_reference_matmul_operands_f64 r64 = {
        s->m, s->n, s->k, check_widen(a_count, a), check_widen(b_count, b), exact, lda, ldb,
        ldc,  ta,   tb,   variant & ACCUMULATE};
    r64.bias = variant & BIAS ? check_widen(s->n, bias) : NULL;
    r64.residual = variant & IN_PLACE ? exact : variant & RESIDUAL ? check_widen(c_count, residual) : NULL;
    shd_reference_matmul_f64(&r64);

    float *plain = check_copy(c_count, before);
    shd_reference_matmul_operands_f32 r32 = {s->m, s->n, s->k, a,  b,  plain,
                                             lda,  ldb,  ldc,  ta, tb, variant & ACCUMULATE};
    r32.bias = variant & BIAS ? bias : NULL;
    r32.residual = variant & IN_PLACE ? plain : variant & RESIDUAL ? residual : NULL;
    shd_reference_matmul_f32(&r32);

    void *c = check_device_stored(c_dtype, c_count, before);
    const shd_matmul product = {
        .m = s->m,
        .n = s->n,
        .k = s->k,
        .a = check_device_stored(dtype, a_count, a),
        .b = check_device_stored(dtype, b_count, b),
        .c = c,
        .lda = lda,
        .ldb = ldb,
        .ldc = ldc,
        .a_transposed = ta,
        .b_transposed = tb,
        .accumulate = variant & ACCUMULATE,
        .wide_c = variant & WIDE,
        .bias = check_device_stored(dtype, s->n, r32.bias),
        .residual = variant & IN_PLACE   ? c
                    : variant & RESIDUAL ? check_device_stored(dtype, c_count, residual)
                                         : NULL,
    };
    const shd_math math = check_device_math(dtype);
    shd_cuda_matmul(&math, &product);
    const void *first = check_from_device(c_count * shd_dtype_bytes(c_dtype), c);
    check_error_of(what, c_dtype, 2, c_count, first, plain,
                   exact); /* gaps between rows included: they must be as before */
}

static void try_variants(sherd_dtype dtype) {
    check_device_begin();
    for (int s = 0; s < SHAPES; s++)
        for (int variant = 0; variant < VARIANTS; variant++) {
            const int rest = variant & ~(A_TRANSPOSED | B_TRANSPOSED);
            if (!allowed(dtype, variant)) continue;
            if (shapes[s].m * shapes[s].n * shapes[s].k > 1000000 && rest && rest != (BIAS | IN_PLACE) &&
                rest != (WIDE | ACCUMULATE))
                continue;
            try_variant(&shapes[s], dtype, variant);
            check_device_next();
        }
    check_device_end();
}

Test(cuda_products, every_shape_and_operand_matches_the_reference) { try_variants(SHERD_FP32); }
Test(cuda_products, every_shape_and_operand_matches_the_reference_in_bf16) { try_variants(SHERD_BF16); }
Test(cuda_products, every_shape_and_operand_matches_the_reference_in_fp16) { try_variants(SHERD_FP16); }

/* --- what goes with products -------------------------------------------------------------------------------------- */

static const shape sizes[] = {{.m = 1, .n = 1},    {.m = 1, .n = 300},  {.m = 511, .n = 33},  {.m = 512, .n = 32},
                              {.m = 513, .n = 65}, {.m = 2100, .n = 7}, {.m = 1500, .n = 129}};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Sums of columns in fp32 and in float64. */
static void sum_columns(int64_t rows, int64_t columns, const float *x, float *plain, double *exact) {
    shd_reference_column_sum_f32(rows, columns, x, plain);
    memset(exact, 0, (size_t)columns * sizeof *exact);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) exact[j] += x[i * columns + j];
}

Test(cuda_products, sums_of_columns_match_the_reference) {
    check_device_begin();
    for (int s = 0; s < SIZES; s++)
        for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
            const int64_t rows = sizes[s].m, columns = sizes[s].n;
            const shd_math math = check_device_math(dtype);
            float *x = check_random_of(dtype, rows * columns, 1, 1), *plain = check_floats(columns);
            double *exact = check_doubles(columns);
            sum_columns(rows, columns, x, plain, exact);
            float *sum = check_device_memory(columns * 4);
            shd_ops_device()->column_sum(&math, rows, columns, check_device_stored(dtype, rows * columns, x), sum);
            check_error("sums of columns", SHERD_FP32, columns, check_from_device(columns * 4, sum), plain, exact);
            check_device_next();
        }
    check_device_end();
}

/* From room for every part to room for less than one: an overrun is reported by the software device. */
Test(cuda_products, sums_of_columns_do_with_the_work_memory_that_there_is) {
    check_device_begin();
    for (int s = 0; s < SIZES; s++)
        for (int64_t parts = 0; parts <= 5; parts++) {
            const int64_t rows = sizes[s].m, columns = sizes[s].n, bytes = parts > 0 ? parts * columns * 4 : 2;
            const shd_math math = check_device_math(SHERD_FP32);
            float *x = check_random(rows * columns, 1, 1), *plain = check_floats(columns);
            double *exact = check_doubles(columns);
            sum_columns(rows, columns, x, plain, exact);
            float *sum = check_device_memory(columns * 4);
            cr_assert_eq(shd_launch_column_sum(shd_cuda_stream(math.stream), SHERD_FP32, rows, columns,
                                               check_to_device(rows * columns * 4, x), check_device_memory(bytes),
                                               bytes, sum),
                         cudaSuccess);
            check_error("sums of columns", SHERD_FP32, columns, check_from_device(columns * 4, sum), plain, exact);
            check_device_next();
        }
    check_device_end();
}

Test(cuda_products, biases_and_narrow_copies_have_the_bits_of_the_cpu) {
    check_device_begin();
    for (int s = 0; s < SIZES; s++)
        for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
            const int64_t rows = sizes[s].m, columns = sizes[s].n, count = rows * columns;
            const int64_t bytes = count * shd_dtype_bytes(dtype);
            const shd_math math = check_device_math(dtype);
            float *y = check_random(count, 1, 100), *bias = check_random_of(dtype, columns, 2, 1);
            float *there = check_to_device(count * 4, y);
            void *narrow = check_device_memory(bytes);
            shd_ops_device()->narrow(&math, count, there, narrow);
            shd_ops_device()->add_bias(&math, rows, columns, check_device_stored(dtype, columns, bias), there);
            check_same_bits("narrow copies", bytes, check_stored(dtype, count, y), check_from_device(bytes, narrow));
            for (int64_t i = 0; i < count; i++) y[i] += bias[i % columns];
            check_same_bits("biases", count * 4, y, check_from_device(count * 4, there));
            check_device_next();
        }
    check_device_end();
}
