/* Each instruction set's kernels that this processor can run, not only those it would choose. */
#include "runtime/ops/kernels/kernels.h"
#include "runtime/ops/reference.h"

#include "check.h"
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#define TABLES(set)                                                                                                    \
    extern const shd_kernels shd_kernels_##set##_fp32, shd_kernels_##set##_bf16, shd_kernels_##set##_fp16;             \
    static const shd_kernels *const set[] = {                                                                          \
        [SHERD_FP32] = &shd_kernels_##set##_fp32,                                                                      \
        [SHERD_BF16] = &shd_kernels_##set##_bf16,                                                                      \
        [SHERD_FP16] = &shd_kernels_##set##_fp16,                                                                      \
    };
TABLES(baseline)
#ifdef __x86_64__
TABLES(avx2)
TABLES(avx512)
#endif

/* The tables up to the chosen one, in order of width: what it has, narrower ones have too. */
static int runnable(sherd_dtype dtype, const shd_kernels *tables[3]) {
    int count = 0;
    tables[count++] = baseline[dtype];
#ifdef __x86_64__
    if (shd_kernels_get(dtype) != baseline[dtype]) tables[count++] = avx2[dtype];
    if (shd_kernels_get(dtype) == avx512[dtype]) tables[count++] = avx512[dtype];
#endif
    return count;
}

Test(kernels, the_chosen_set_is_named) {
    for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
        const shd_kernels *tables[3];
        const int count = runnable(dtype, tables);
        cr_assert_eq(shd_kernels_get(dtype), tables[count - 1]);
        for (int i = 0; i < count; i++) cr_assert(strlen(tables[i]->name) > 0);
    }
}

/* exp against libm in double, over its whole domain and at its edges. */
Test(kernels, exp_is_accurate_to_a_few_ulp_in_every_set) {
    enum { COUNT = 100003 };
    const shd_kernels *tables[3];
    const int sets = runnable(SHERD_FP32, tables);
    check_begin();
    float *x = check_floats(COUNT), *y = check_floats(COUNT);
    for (int i = 0; i < COUNT; i++) x[i] = -87.3f * (float)i / COUNT;
    for (int s = 0; s < sets; s++) {
        double worst = 0, sum = 0;
        const double total = tables[s]->exp_sum(COUNT, x, 0, y);
        for (int i = 0; i < COUNT; i++) {
            const double exact = exp((double)x[i]), error = fabs((double)y[i] - exact) / exact;
            worst = error > worst ? error : worst;
            sum += exact;
        }
        cr_assert(worst < 2e-7, "%s: relative error %g", tables[s]->name, worst);
        cr_assert(fabs(total - sum) < 1e-7 * sum, "%s: sum %.9g, not %.9g", tables[s]->name, total, sum);
        float edge[] = {0, -INFINITY, -1e30f, -87.4f, NAN};
        tables[s]->exp_sum(5, edge, 0, edge);
        cr_assert(edge[0] == 1 && edge[1] == 0 && edge[2] == 0 && edge[3] == 0 && isnan(edge[4]));
    }
    check_end();
}

static double largest_difference(int64_t count, const float *a, const float *b) {
    double largest = 0;
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs((double)a[i] - (double)b[i]));
    return largest;
}

Test(kernels, sets_agree_up_to_rounding) {
    enum { COUNT = 1003 };
    const shd_kernels *tables[3];
    const int sets = runnable(SHERD_FP32, tables);
    check_begin();
    const float *x = check_random(COUNT, 1, 2), *z = check_random(COUNT, 2, 2), *w = check_random(COUNT, 3, 1);
    float *first = check_floats(COUNT), *y = check_floats(COUNT), mean, rstd, first_mean = 0;
    for (int s = 0; s < sets; s++) {
        tables[s]->layernorm(COUNT, 1e-5f, x, w, z, y, &mean, &rstd);
        if (!s) memcpy(first, y, COUNT * 4), first_mean = mean;
        cr_assert_lt(largest_difference(COUNT, y, first), 1e-5);
        cr_assert_float_eq(mean, first_mean, 1e-6);
        cr_assert_eq(tables[s]->max(COUNT, x), tables[0]->max(COUNT, x));
        cr_assert_float_eq(tables[s]->dot(COUNT, x, z), tables[0]->dot(COUNT, x, z), 1e-2);
    }
    for (int s = 0; s < sets; s++) {
        tables[s]->gelu_backward(COUNT, x, z, y);
        if (!s) memcpy(first, y, COUNT * 4);
        cr_assert_lt(largest_difference(COUNT, y, first), 1e-5);
    }
    check_end();
}

Test(kernels, max_finds_the_largest_anywhere) {
    const shd_kernels *tables[3];
    const int sets = runnable(SHERD_FP32, tables);
    int wrong = 0;
    for (int s = 0; s < sets; s++)
        for (int count = 1; count < 50; count++)
            for (int at = 0; at < count; at++) {
                float x[50];
                for (int i = 0; i < count; i++) x[i] = -5.0f - (float)i;
                x[at] = -1;
                wrong += tables[s]->max(count, x) != -1;
            }
    cr_assert_eq(wrong, 0);
}

Test(kernels, draw_the_references_dropout_mask_in_every_set_from_any_column_on) {
    enum { COLUMNS = 300 };
    const shd_kernels *tables[3];
    const int sets = runnable(SHERD_FP32, tables);
    const shd_dropout dropout = {.key = 0x123456789abcdef0u, .first_sequence = INT64_C(5) << 32, .drop = 20000};
    const shd_mask_row mask = {.key = dropout.key, .sequence = UINT64_C(5) << 32, .row = 77, .drop = 20000, .scale = 3};
    int wrong = 0;
    for (int s = 0; s < sets; s++)
        for (int first = 0; first < 140; first++)
            for (int count = 0; first + count <= COLUMNS; count += 1 + count / 3) {
                float x[COLUMNS + 1];
                for (int i = 0; i <= count; i++) x[i] = (float)(i + 1);
                tables[s]->drop(&mask, first, count, x);
                for (int i = 0; i < count; i++) {
                    const bool drops = shd_reference_drops(&dropout, dropout.key, INT64_C(5) << 32, 77, first + i);
                    wrong += x[i] != (drops ? 0 : 3 * (float)(i + 1));
                }
                wrong += x[count] != (float)(count + 1);
            }
    cr_assert_eq(wrong, 0);
}
