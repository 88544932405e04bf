/* Products of 16-bit matrices, every path that runs on this processor, against sums in float64.
 *
 * Bound: a sum of k products in float32, in any order, is off by at most (k + 4)·2^-24·Σ|a·b|, what is added included,
 * and a 16-bit output by half its last place more. A single product left out or taken twice is far outside.
 * Every operand lies between pages that nobody may touch, scratch included. */
#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "runtime/ops/half/path.h"
#include "runtime/ops/ops.h"

#include "check.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, AREAS_MAX = 64 };

static struct {
    char *start;
    int64_t bytes;
} areas[AREAS_MAX];
static int area_count;

/* Memory that ends where a page ends that cannot be read; each byte is 0x7f. */
static void *guarded(int64_t bytes) {
    const int64_t inner = shd_round_up(shd_max(bytes, 1), PAGE);
    char *start = mmap(NULL, (size_t)inner + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(start != MAP_FAILED && area_count < AREAS_MAX);
    cr_assert_eq(mprotect(start + PAGE, (size_t)inner, PROT_READ | PROT_WRITE), 0);
    areas[area_count].start = start;
    areas[area_count++].bytes = inner + 2 * PAGE;
    memset(start + PAGE, 0x7f, (size_t)inner);
    return start + PAGE + inner - bytes;
}

/* Frees all areas but the first `kept`. */
static void release_areas(int kept) {
    while (area_count > kept) {
        area_count--;
        munmap(areas[area_count].start, (size_t)areas[area_count].bytes);
    }
}

/* runtime/ops/half/amx.c over the model of its instructions, built for any processor and for AVX-512. */
extern const shd_half_path shd_half_amx_model_plain, shd_half_amx_model_avx512;

/* The paths that this processor can take, each with memory of its own. */
enum { PATHS_MAX = 8 };
static struct {
    const shd_half_path *path;
    void *scratch;
} paths[PATHS_MAX];
static int path_count;

static void add_path(const shd_half_path *path) {
    for (int p = 0; p < path_count; p++)
        if (paths[p].path == path) return;
    paths[path_count].path = path;
    paths[path_count++].scratch = guarded(path->scratch_bytes);
}

static void begin(void) {
    shd_ops_init();
    path_count = 0;
    add_path(&shd_half_widening);
    add_path(&shd_half_amx_model_plain);
#ifdef __x86_64__
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (avx512) add_path(&shd_half_amx_model_avx512);
    if (avx512 && __builtin_cpu_supports("avx512bf16")) add_path(&shd_half_avx512_bf16);
    if (strcmp(shd_half_product_name(SHERD_BF16), shd_half_amx.name) == 0) add_path(&shd_half_amx);
#endif
}

static void end(void) {
    release_areas(0);
    check_free();
}

/* Normal numbers in `dtype`, `rows` rows of `columns` with leading dimension `stride`; guarded. */
static uint16_t *random_matrix(sherd_dtype dtype, int64_t rows, int64_t columns, int64_t stride, uint64_t seed) {
    uint16_t *x = guarded(rows ? ((rows - 1) * stride + columns) * 2 : 0);
    float *values = check_random(rows * columns, seed, 1);
    for (int64_t i = 0; i < rows; i++) shd_round(dtype, columns, values + i * columns, x + i * stride);
    return x;
}

static uint16_t *transposed(const uint16_t *x, int64_t rows, int64_t columns, int64_t stride, int64_t new_stride) {
    uint16_t *y = guarded(columns ? ((columns - 1) * new_stride + rows) * 2 : 0);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) y[j * new_stride + i] = x[i * stride + j];
    return y;
}

static float widen(sherd_dtype dtype, const void *x, int64_t index) {
    float value;
    shd_widen(dtype, 1, (const char *)x + index * shd_dtype_bytes(dtype), &value);
    return value;
}

/* A product, its operands both ways round, and what comes out: exactly, and how large the addends are. */
typedef struct problem {
    sherd_dtype dtype;
    int64_t m, n, k, pad;
    const uint16_t *a[2], *b[2], *bias, *residual; /* [transposed] */
    int64_t lda[2], ldb[2], ldc;
    double *sums, *sizes;
} problem;

static problem make_problem(sherd_dtype dtype, int64_t m, int64_t n, int64_t k, int64_t pad) {
    problem s = {.dtype = dtype, .m = m, .n = n, .k = k, .pad = pad};
    s.lda[0] = k + pad, s.lda[1] = m + pad, s.ldb[0] = n + pad, s.ldb[1] = k + pad, s.ldc = n + pad;
    s.a[0] = random_matrix(dtype, m, k, s.lda[0], 1), s.b[0] = random_matrix(dtype, k, n, s.ldb[0], 2);
    s.a[1] = transposed(s.a[0], m, k, s.lda[0], s.lda[1]), s.b[1] = transposed(s.b[0], k, n, s.ldb[0], s.ldb[1]);
    s.bias = random_matrix(dtype, 1, n, n, 3), s.residual = random_matrix(dtype, m, n, s.ldc, 4);
    s.sums = check_doubles(m * n), s.sizes = check_doubles(m * n);
    double *row = check_doubles(n);
    memset(s.sums, 0, sizeof(double) * (size_t)(m * n)), memset(s.sizes, 0, sizeof(double) * (size_t)(m * n));
    for (int64_t l = 0; l < k; l++) {
        for (int64_t j = 0; j < n; j++) row[j] = (double)widen(dtype, s.b[0], l * s.ldb[0] + j);
        for (int64_t i = 0; i < m; i++) {
            const double factor = (double)widen(dtype, s.a[0], i * s.lda[0] + l);
            for (int64_t j = 0; j < n; j++) {
                s.sums[i * n + j] += factor * row[j];
                s.sizes[i * n + j] += fabs(factor * row[j]);
            }
        }
    }
    return s;
}

/* The bits of a variant. */
enum {
    A_TRANSPOSED = 1,
    B_TRANSPOSED = 2,
    NARROW = 4,
    ADD_C = 8,
    BIAS = 16,
    RESIDUAL = 32,
    IN_PLACE = 64,
    VARIANTS = 128
};

static bool possible(int variant) {
    if ((variant & NARROW) && (variant & ADD_C)) return false;
    return !(variant & IN_PLACE) || ((variant & NARROW) && (variant & RESIDUAL));
}

static shd_half_product call_of(const problem *s, int variant, void *c, void *scratch) {
    const int ta = !!(variant & A_TRANSPOSED), tb = !!(variant & B_TRANSPOSED);
    return (shd_half_product){
        .dtype = s->dtype,
        .a_transposed = ta,
        .b_transposed = tb,
        .m = s->m,
        .n = s->n,
        .k = s->k,
        .a = s->a[ta],
        .lda = s->lda[ta],
        .b = s->b[tb],
        .ldb = s->ldb[tb],
        .c_dtype = variant & NARROW ? s->dtype : SHERD_FP32,
        .c = c,
        .ldc = s->ldc,
        .accumulate = variant & ADD_C,
        .bias = variant & BIAS ? s->bias : NULL,
        .residual = variant & IN_PLACE   ? c
                    : variant & RESIDUAL ? s->residual
                                         : NULL,
        .scratch = scratch,
    };
}

static double rounding_unit(sherd_dtype dtype) {
    return dtype == SHERD_BF16 ? 0x1p-8 : dtype == SHERD_FP16 ? 0x1p-11 : 0;
}

/* Half the last place of its subnormal numbers. */
static double smallest(sherd_dtype dtype) { return dtype == SHERD_FP16 ? 0x1p-25 : 0; }

/* Checks c, which was `before`, at every place: those between the rows must be untouched. */
static void check_output(const char *what, const problem *s, int variant, const void *before, const void *c) {
    const sherd_dtype type = variant & NARROW ? s->dtype : SHERD_FP32;
    const int64_t bytes = shd_dtype_bytes(type);
    for (int64_t i = 0; i < s->m; i++) {
        for (int64_t j = 0; j < s->n; j++) {
            const int64_t at = i * s->ldc + j;
            double exact = s->sums[i * s->n + j], size = s->sizes[i * s->n + j];
            const double added[] = {
                variant & ADD_C ? (double)widen(type, before, at) : 0,
                variant & BIAS ? (double)widen(s->dtype, s->bias, j) : 0,
                variant & IN_PLACE   ? (double)widen(type, before, at)
                : variant & RESIDUAL ? (double)widen(s->dtype, s->residual, at)
                                     : 0,
            };
            for (int t = 0; t < 3; t++) exact += added[t], size += fabs(added[t]);
            const double error = fabs((double)widen(type, c, at) - exact);
            const double bound = (double)(s->k + 4) * 0x1p-24 * size;
            cr_assert(error <= bound + rounding_unit(type) * (fabs(exact) + bound) + smallest(type),
                      "%s: c[%d,%d] is %.9g, not %.9g; off by %.3g of %.3g", what, (int)i, (int)j,
                      (double)widen(type, c, at), exact, error, bound);
        }
        if (i + 1 < s->m)
            cr_assert_eq(memcmp((const char *)c + (i * s->ldc + s->n) * bytes,
                                (const char *)before + (i * s->ldc + s->n) * bytes, (size_t)(s->ldc - s->n) * bytes),
                         0, "%s: written past row %d", what, (int)i);
    }
}

static void *fresh_output(const problem *s, int variant, void **before) {
    const sherd_dtype type = variant & NARROW ? s->dtype : SHERD_FP32;
    const int64_t count = s->m ? (s->m - 1) * s->ldc + s->n : 0;
    float *values = check_random(count, 5, 1);
    void *c = guarded(count * shd_dtype_bytes(type));
    *before = check_memory(count * shd_dtype_bytes(type));
    shd_round(type, count, values, c);
    memcpy(*before, c, (size_t)(count * shd_dtype_bytes(type)));
    return c;
}

static void try_variant(const shd_half_path *path, const problem *s, int variant, void *scratch) {
    char what[120];
    snprintf(what, sizeof what, "%s %s %dx%dx%d variant %d", path->name, shd_dtype_text(s->dtype), (int)s->m, (int)s->n,
             (int)s->k, variant);
    const int areas_before = area_count;
    void *before, *c = fresh_output(s, variant, &before);
    const shd_half_product call = call_of(s, variant, c, scratch);
    if (s->m && s->n) path->run(&call);
    check_output(what, s, variant, before, c);
    release_areas(areas_before);
}

static bool takes(const shd_half_path *path, sherd_dtype dtype) {
    return dtype == SHERD_BF16 || path == &shd_half_widening;
}

/* Every path on one problem: all variants, or for each transposition one that `pick` chooses. */
static void try_problem(sherd_dtype dtype, int64_t m, int64_t n, int64_t k, int64_t pad, bool all, int *pick) {
    const int areas_before = area_count;
    const problem s = make_problem(dtype, m, n, k, pad);
    for (int p = 0; p < path_count; p++) {
        if (!takes(paths[p].path, dtype)) continue;
        /* Without vectors the model is slow. */
        if (paths[p].path == &shd_half_amx_model_plain && m * n * k > 50000 && !all) continue;
        for (int variant = 0; variant < VARIANTS; variant++)
            if (all && possible(variant)) try_variant(paths[p].path, &s, variant, paths[p].scratch);
        for (int turn = 0; turn < 4 && !all; turn++) {
            do *pick = (*pick + 37) % VARIANTS;
            while (!possible(*pick));
            try_variant(paths[p].path, &s, (*pick & ~3) | turn, paths[p].scratch);
        }
    }
    release_areas(areas_before);
    check_free();
}

static const int64_t lengths[] = {1, 2, 3, 15, 16, 17, 31, 33, 64, 100, 257};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

static void try_all_lengths(sherd_dtype dtype) {
    int pick = 0;
    begin();
    for (int m = 0; m < LENGTHS; m++)
        for (int n = 0; n < LENGTHS; n++)
            for (int k = 0; k < LENGTHS; k++)
                try_problem(dtype, lengths[m], lengths[n], lengths[k], (m + n + k) % 4, false, &pick);
    end();
}

Test(half_product, matches_float64_in_bf16_at_every_length_and_transposition) { try_all_lengths(SHERD_BF16); }
Test(half_product, matches_float64_in_fp16_at_every_length_and_transposition) { try_all_lengths(SHERD_FP16); }

Test(half_product, adds_what_it_is_told_and_rounds_once) {
    begin();
    try_problem(SHERD_BF16, 37, 53, 45, 3, true, NULL);
    try_problem(SHERD_FP16, 37, 53, 45, 3, true, NULL);
    end();
}

Test(half_product, matches_float64_over_several_blocks) {
    static const int64_t shapes[][3] = {
        {33, 1100, 1200}, {600, 40, 1030}, {1, 520, 1500}, {513, 70, 513}, {64, 2100, 65}};
    int pick = 0;
    begin();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        try_problem(SHERD_BF16, shapes[i][0], shapes[i][1], shapes[i][2], 1, false, &pick);
        try_problem(SHERD_FP16, shapes[i][0], shapes[i][1], shapes[i][2], 1, false, &pick);
    }
    end();
}

Test(half_product, nothing_to_sum_leaves_what_is_added) {
    begin();
    try_problem(SHERD_BF16, 5, 19, 0, 2, true, NULL);
    try_problem(SHERD_FP16, 5, 19, 0, 2, true, NULL);
    end();
}

Test(half_product, empty_outputs_touch_nothing) {
    begin();
    void *scratch = guarded(shd_half_product_scratch_bytes());
    float c = 7;
    shd_half_product call = {.dtype = SHERD_BF16, .k = 3, .lda = 3, .ldb = 5, .c = &c, .ldc = 5, .scratch = scratch};
    call.n = 5;
    shd_half_product_run(&call);
    call.n = 0, call.m = 5;
    shd_half_product_run(&call);
    cr_assert_eq(c, 7);
    end();
}

/* One call for the whole, and calls for pieces cut at the borders the header names, rows and columns. */
static void try_cuts(const shd_half_path *path, void *scratch, int variant) {
    const int64_t m = 2 * SHD_HALF_ROWS + 40, n = SHD_HALF_COLUMNS + 50, k = 70;
    const int areas_before = area_count;
    const problem s = make_problem(SHERD_BF16, m, n, k, 1);
    void *before;
    float *whole = fresh_output(&s, variant, &before), *pieces = fresh_output(&s, variant, &before);
    const shd_half_product call = call_of(&s, variant, whole, scratch);
    path->run(&call);
    for (int64_t row = 0; row < m; row += SHD_HALF_ROWS)
        for (int64_t column = 0; column < n; column += SHD_HALF_COLUMNS) {
            shd_half_product piece = call_of(&s, variant, pieces + row * s.ldc + column, scratch);
            piece.m = shd_min(SHD_HALF_ROWS, m - row), piece.n = shd_min(SHD_HALF_COLUMNS, n - column);
            piece.a += call.a_transposed ? row : row * call.lda;
            piece.b += call.b_transposed ? column * call.ldb : column;
            path->run(&piece);
        }
    check_same_bits(path->name, ((m - 1) * s.ldc + n) * (int64_t)sizeof(float), whole, pieces);
    release_areas(areas_before);
    check_free();
}

/* One call for the whole, and calls of single rows and of odd columns. */
static void try_free_cuts(const shd_half_path *path, void *scratch, int variant) {
    enum { M = 35, N = 111, K = 1601, PIECE = 37 };
    const int areas_before = area_count;
    const problem s = make_problem(SHERD_BF16, M, N, K, 1);
    void *before;
    uint16_t *whole = fresh_output(&s, variant | NARROW, &before),
             *pieces = fresh_output(&s, variant | NARROW, &before);
    const shd_half_product call = call_of(&s, variant | NARROW, whole, scratch);
    path->run(&call);
    for (int64_t row = 0; row < M; row++)
        for (int64_t column = 0; column < N; column += PIECE) {
            shd_half_product piece = call_of(&s, variant | NARROW, pieces + row * s.ldc + column, scratch);
            piece.m = 1, piece.n = PIECE;
            piece.a += call.a_transposed ? row : row * call.lda;
            piece.b += call.b_transposed ? column * call.ldb : column;
            path->run(&piece);
        }
    check_same_bits(path->name, ((M - 1) * s.ldc + N) * (int64_t)sizeof *whole, whole, pieces);
    release_areas(areas_before);
    check_free();
}

Test(half_product, paths_that_may_be_cut_anywhere_give_the_same_bits) {
    begin();
    for (int p = 0; p < path_count; p++)
        for (int variant = 0; variant < 4 && paths[p].path->cuts_freely; variant++)
            try_free_cuts(paths[p].path, paths[p].scratch, variant);
    end();
}

Test(half_product, bits_do_not_depend_on_cuts_at_the_borders) {
    begin();
    for (int p = 0; p < path_count; p++)
        for (int variant = 0; variant < 4; variant++) try_cuts(paths[p].path, paths[p].scratch, variant);
    end();
}

/* NaN and infinity in one place of a reach the row, and nothing else. */
Test(half_product, infinities_and_nan_propagate) {
    enum { M = 20, N = 40, K = 70 };
    static const uint16_t one = 0x3f80, infinity = 0x7f80, no_number = 0x7fc1;
    begin();
    uint16_t *a = guarded(M * K * 2), *b = guarded(K * N * 2), *c = guarded(M * N * 2);
    for (int i = 0; i < M * K; i++) a[i] = one;
    for (int i = 0; i < K * N; i++) b[i] = one;
    a[3 * K + 69] = infinity, a[5 * K + 2] = no_number, a[6 * K] = infinity, a[6 * K + 1] = infinity | 0x8000u;
    shd_half_product call = {.dtype = SHERD_BF16, .m = M, .n = N, .k = K, .a = a, .lda = K, .b = b, .ldb = N};
    call.c_dtype = SHERD_BF16, call.c = c, call.ldc = N;
    for (int p = 0; p < path_count; p++) {
        call.scratch = paths[p].scratch;
        paths[p].path->run(&call);
        for (int i = 0; i < M * N; i++) {
            const float got = shd_bf16_widen(c[i]);
            const char *name = paths[p].path->name;
            if (i / N == 5 || i / N == 6)
                cr_assert(isnan(got), "%s: row %d", name, i / N);
            else
                cr_assert_eq(got, i / N == 3 ? INFINITY : 70, "%s: row %d is %g", name, i / N, (double)got);
        }
    }
    end();
}

/* The product of a row and a column of bf16 numbers. */
static float dot(int p, int64_t k, const uint16_t *a, const uint16_t *b) {
    float c = 7;
    const shd_half_product call = {.dtype = SHERD_BF16,
                                   .m = 1,
                                   .n = 1,
                                   .k = k,
                                   .a = a,
                                   .lda = k,
                                   .b = b,
                                   .ldb = 1,
                                   .c = &c,
                                   .ldc = 1,
                                   .scratch = paths[p].scratch};
    paths[p].path->run(&call);
    return c;
}

Test(half_product, subnormal_numbers_are_kept_by_widening_and_zero_to_bf16_instructions) {
    begin();
    for (int p = 0; p < path_count; p++) {
        const uint16_t a[] = {shd_bf16_round(0x1p-130f), shd_bf16_round(0x1p-100f)};
        const uint16_t large[] = {shd_bf16_round(0x1p100f), 0}, small[] = {0, shd_bf16_round(0x1p-40f)};
        const bool widened = paths[p].path == &shd_half_widening;
        cr_assert_eq(dot(p, 2, a, large), widened ? 0x1p-30f : 0, "%s: input", paths[p].path->name);
        cr_assert_eq(dot(p, 2, a, small), widened ? 0x1p-140f : 0, "%s: sum", paths[p].path->name);
    }
    end();
}

/* 2^24 swallows a 1 that is added to it alone, but not two that come together. */
Test(half_product, tiles_add_even_and_odd_places_apart) {
    begin();
    for (int p = 0; p < path_count; p++) {
        if (strncmp(paths[p].path->name, "amx", 3) != 0) continue;
        const uint16_t one = shd_bf16_round(1), big = shd_bf16_round(0x1p24f);
        const uint16_t apart[] = {big, one, one, one}, together[] = {big, 0, one, 0, one, 0},
                       ones[] = {one, one, one, one, one, one};
        cr_assert_eq(dot(p, 4, apart, ones), 0x1p24f + 2);
        cr_assert_eq(dot(p, 6, together, ones), 0x1p24f);
    }
    end();
}

Test(half_product, the_paths_have_names_for_the_log) {
    cr_assert_str_eq(shd_half_product_name(SHERD_FP16), "widening");
    cr_assert_not_null(shd_half_product_name(SHERD_BF16));
}
