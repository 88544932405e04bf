#include "runtime/base/dtype.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/reference.h"

#include "check.h"
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

    void *first = NULL;
    const void *residual_stored = variant & RESIDUAL ? check_stored(dtype, c_count, residual) : NULL;
    for (int p = 0; p < CHECK_POOLS; p++) {
        void *c = check_stored(c_dtype, c_count, before);
        const shd_matmul product = {
            .m = s->m,
            .n = s->n,
            .k = s->k,
            .a = check_stored(dtype, a_count, a),
            .b = check_stored(dtype, b_count, b),
            .c = c,
            .lda = lda,
            .ldb = ldb,
            .ldc = ldc,
            .a_transposed = ta,
            .b_transposed = tb,
            .accumulate = variant & ACCUMULATE,
            .wide_c = variant & WIDE,
            .bias = check_stored(dtype, s->n, r32.bias),
            .residual = variant & IN_PLACE ? c : residual_stored,
        };
        shd_op_matmul(&check_maths[dtype][p], &product);
        if (!first) first = c;
        check_same_bits(what, c_count * shd_dtype_bytes(c_dtype), first, c);
    }
    check_error(what, c_dtype, c_count, first, plain, exact); /* gaps between rows included: they must be as before */
}

static void try_variants(sherd_dtype dtype) {
    for (int s = 0; s < SHAPES; s++)
        for (int variant = 0; variant < VARIANTS; variant++) {
            const int rest = variant & ~(A_TRANSPOSED | B_TRANSPOSED);
            if (!allowed(dtype, variant)) continue;
            if (shapes[s].m * shapes[s].n * shapes[s].k > 1000000 && rest && rest != (BIAS | IN_PLACE) &&
                rest != (WIDE | ACCUMULATE))
                continue;
            check_begin();
            try_variant(&shapes[s], dtype, variant);
            check_end();
        }
}

Test(matmul, every_shape_and_operand_matches_the_reference) { try_variants(SHERD_FP32); }
Test(matmul, every_shape_and_operand_matches_the_reference_in_bf16) { try_variants(SHERD_BF16); }
Test(matmul, every_shape_and_operand_matches_the_reference_in_fp16) { try_variants(SHERD_FP16); }

/* A sum that 16 bits cannot hold is infinite; operands that are infinite or no number spoil their row or column. */
Test(matmul, overflow_infinity_and_nan_show) {
    enum { N = 33 };
    for (sherd_dtype dtype = SHERD_BF16; dtype <= SHERD_FP16; dtype++)
        for (int i = 0; i < 3; i++) {
            check_begin();
            float a[N * N], b[N * N];
            for (int e = 0; e < N * N; e++) a[e] = b[e] = 1;
            a[5 * N + 7] = i == 0 ? INFINITY : i == 1 ? NAN : dtype == SHERD_BF16 ? 3e38f : 6e4f;
            b[7 * N + 9] = i == 0 ? 1 : 8;
            void *c = check_floats(N * N);
            const shd_matmul product = {.m = N,
                                        .n = N,
                                        .k = N,
                                        .a = check_stored(dtype, N * N, a),
                                        .b = check_stored(dtype, N * N, b),
                                        .c = c,
                                        .lda = N,
                                        .ldb = N,
                                        .ldc = N};
            shd_op_matmul(&check_maths[dtype][1], &product);
            const float *y = check_loaded(dtype, N * N, c);
            cr_assert(!isfinite(y[5 * N + 9]) && isnan(y[5 * N + 9]) == (i == 1));
            cr_assert_eq(y[4 * N + 8], N);
            check_end();
        }
}

Test(matmul, empty_outputs_touch_nothing) {
    check_begin();
    float c = 7;
    shd_op_matmul(&check_maths[SHERD_FP32][1],
                  &(shd_matmul){.m = 0, .n = 5, .k = 3, .lda = 3, .ldb = 5, .ldc = 5, .c = &c});
    shd_op_matmul(&check_maths[SHERD_FP32][1],
                  &(shd_matmul){.m = 5, .n = 0, .k = 3, .lda = 3, .ldb = 1, .ldc = 1, .c = &c});
    cr_assert_eq(c, 7);
    check_end();
}

Test(matmul, counts_its_operations_and_time) {
    check_begin();
    shd_ops_init();
    shd_matmul_stats stats;
    shd_matmul_stats_reset();
    shd_matmul product = {.m = 100, .n = 200, .k = 300, .lda = 300, .ldb = 200, .ldc = 200};
    product.a = check_random(100 * 300, 1, 1);
    product.b = check_random(300 * 200, 2, 1);
    product.c = check_floats(100 * 200);
    shd_op_matmul(&check_maths[SHERD_FP32][1], &product);
    shd_op_matmul(&check_maths[SHERD_FP32][0], &product);
    shd_matmul_stats_get(&stats);
    cr_assert_eq(stats.flop, 2.0 * 2 * 100 * 200 * 300);
    cr_assert_gt(stats.ms, 0);
    shd_matmul_stats_reset();
    shd_matmul_stats_get(&stats);
    cr_assert(stats.flop == 0 && stats.ms == 0);
    check_end();
}
