#include "runtime/base/dtype.h"
#include "runtime/base/random.h"
#include "runtime/ops/kernels/kernels.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/reference.h"

#include "check.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- what a mask is ----------------------------------------------------------------------------------------------- */

/* Random123's first known vector, key and counter 0, gives the words 6627e8d5 e169c58d bc57ac4c 9b00dbd8: so columns 0
 * to 7 of row 0 of sequence 0 have e8d5 6627 c58d e169 ac4c bc57 dbd8 9b00. */
Test(dropout, compares_the_halves_of_philox_words_in_order) {
    check_begin();
    const float x[8] = {1, 1, 1, 1, 1, 1, 1, 1}, expected[8] = {2, 0, 2, 2, 0, 2, 2, 0};
    float y[8];
    shd_dropout dropout = {.key = 0, .first_sequence = 0, .drop = 0xac4d, .scale = 2};
    shd_op_dropout(&check_maths[SHERD_FP32][0], &dropout, 1, 1, 8, x, NULL, y);
    check_same_bits("columns 0 to 7", sizeof y, y, expected);
    dropout.drop = 0xac4c; /* "below" */
    shd_op_dropout(&check_maths[SHERD_FP32][0], &dropout, 1, 1, 8, x, NULL, y);
    cr_assert_eq(y[4], 2);
    check_end();
}

/* Row, column and sequence stand where the header says, each in words of their own; the second vector is all ones. */
Test(dropout, counts_columns_rows_and_sequences_in_words_of_their_own) {
    for (int bit = 0; bit < 40; bit++) {
        const int64_t sequence = INT64_C(1) << bit, row = bit < 31 ? 1 << bit : 5,
                      column = (INT64_C(1) << bit % 30) + 3;
        uint32_t words[4];
        shd_philox(99, (uint64_t)(column / 8) + (uint64_t)row * 0x100000000u, (uint64_t)sequence, words);
        const uint32_t word = words[column % 8 / 2], number = column % 2 ? word >> 16 : word & 0xffff;
        const shd_dropout above = {.drop = number + 1}, at = {.drop = number};
        cr_assert(shd_reference_drops(&above, 99, sequence, row, column));
        cr_assert(!shd_reference_drops(&at, 99, sequence, row, column));
    }
}

Test(dropout, keeps_expectations_whatever_p_is_rounded_to) {
    static const struct {
        double p;
        uint32_t drop;
    } cases[] = {{0, 0},    {0.5, 32768},      {0.1, 6554},    {0.25, 16384}, {1.0 / 65536, 1},
                 {1e-9, 1}, {1 - 1e-9, 65535}, {0.999, 65470}, {0.2, 13107}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const shd_dropout made = shd_dropout_make(cases[i].p, 7, 9);
        cr_assert_eq(made.drop, cases[i].drop, "p %g: %u", cases[i].p, made.drop);
        const double expectation = (65536.0 - made.drop) / 65536 * (double)made.scale;
        cr_assert(fabs(expectation - 1) <= 0x1p-24, "p %g: expectation %.12g", cases[i].p, expectation);
        cr_assert(made.key == 7 && made.first_sequence == 9);
    }
    cr_assert_eq(shd_dropout_make(0, 0, 0).scale, 1);
    cr_assert_eq(shd_dropout_make(0.5, 0, 0).scale, 2);
}

/* --- every way to it ---------------------------------------------------------------------------------------------- */

static void try_rows(sherd_dtype dtype, int64_t rows, int64_t context, int64_t columns, double p, bool added) {
    char what[100];
    snprintf(what, sizeof what, "dropout of %dx%d, p %g%s, type %d", (int)rows, (int)columns, p, added ? ", added" : "",
             (int)dtype);
    const int64_t count = rows * columns, bytes = count * shd_dtype_bytes(dtype);
    const shd_dropout dropout = shd_dropout_make(p, 42, 1000);
    const float *x = check_random_of(dtype, count, 1, 1), *z = added ? check_random_of(dtype, count, 2, 1) : NULL;
    const void *x_stored = check_stored(dtype, count, x), *z_stored = check_stored(dtype, count, z);
    float *plain = check_floats(count);
    double *exact = check_doubles(count);
    void *fast[CHECK_POOLS];
    shd_reference_dropout_f32(&dropout, rows, context, columns, x, z, plain);
    shd_reference_dropout_f64(&dropout, rows, context, columns, check_widen(count, x), z ? check_widen(count, z) : NULL,
                              exact);
    for (int i = 0; i < CHECK_POOLS; i++) {
        fast[i] = check_memory(bytes);
        shd_op_dropout(&check_maths[dtype][i], &dropout, rows, context, columns, x_stored, z_stored, fast[i]);
        check_same_bits(what, bytes, fast[0], fast[i]);
    }
    check_error(what, dtype, count, fast[0], plain, exact);
    void *in_place = check_stored(dtype, count, x);
    shd_op_dropout(&check_maths[dtype][1], &dropout, rows, context, columns, in_place, z_stored, in_place);
    check_same_bits(what, bytes, fast[0], in_place);
    if (!added) return;
    in_place = check_stored(dtype, count, z);
    shd_op_dropout(&check_maths[dtype][1], &dropout, rows, context, columns, x_stored, in_place, in_place);
    check_same_bits(what, bytes, fast[0], in_place);
}

Test(dropout, of_rows_is_the_references_with_any_number_of_threads_and_in_place) {
    static const int64_t shapes[][3] = {{0, 1, 5},    {1, 1, 1}, {3, 1, 17},    {17, 17, 257},
                                        {34, 17, 64}, {6, 3, 0}, {5, 5, 40000}, {600, 8, 96}};
    static const double ps[] = {0, 0.1, 0.5, 0.999};
    for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int p = 0; p < 4; p++) {
                check_begin();
                try_rows(dtype, shapes[s][0], shapes[s][1], shapes[s][2], ps[p], false);
                try_rows(dtype, shapes[s][0], shapes[s][1], shapes[s][2], ps[p], true);
                check_end();
            }
}

/* What is dropped shows too when it is no number: nothing overflows unseen. */
Test(dropout, passes_infinity_and_nan_on) {
    check_begin();
    const float bad[2] = {INFINITY, NAN};
    const shd_dropout dropout = {.key = 1, .drop = 65535, .scale = 65536};
    for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
        void *y = check_stored(dtype, 2, bad);
        shd_op_dropout(&check_maths[dtype][0], &dropout, 1, 1, 2, y, NULL, y);
        const float *loaded = check_loaded(dtype, 2, y);
        cr_assert(!isfinite(loaded[0]) && isnan(loaded[1]), "type %d", (int)dtype);
    }
    check_end();
}

/* A micro-batch cut elsewhere has the same masks. */
Test(dropout, of_a_sequence_depends_on_its_number_alone) {
    enum { SEQUENCES = 6, CONTEXT = 5, COLUMNS = 70, SEQUENCE = CONTEXT * COLUMNS };
    check_begin();
    const float *x = check_random(SEQUENCES * SEQUENCE, 3, 1);
    float *whole = check_floats(SEQUENCES * SEQUENCE), *part = check_floats(SEQUENCES * SEQUENCE);
    const shd_dropout all = shd_dropout_make(0.3, 5, 12);
    shd_op_dropout(&check_maths[SHERD_FP32][0], &all, SEQUENCES * CONTEXT, CONTEXT, COLUMNS, x, NULL, whole);
    for (int size = 1; size <= 3; size++)
        for (int first = 0; first < SEQUENCES; first += size) {
            const shd_dropout some = shd_dropout_make(0.3, 5, 12 + first);
            const int64_t at = first * SEQUENCE;
            shd_op_dropout(&check_maths[SHERD_FP32][2], &some, size * CONTEXT, CONTEXT, COLUMNS, x + at, NULL,
                           part + at);
            check_same_bits("a part of the sequences", size * SEQUENCE * 4, whole + at, part + at);
        }
    check_end();
}

/* --- statistics --------------------------------------------------------------------------------------------------- */

enum { GRID = 256, KEYS = 4 };
typedef struct mask_grid {
    bool gone[KEYS][GRID][GRID]; /* site or sequence, row, column */
} mask_grid;
static mask_grid grids[2]; /* [0]: one sequence at four sites; [1]: four sequences at one */

static void draw_grids(double p) {
    const shd_kernels *kernels = shd_kernels_get(SHERD_FP32);
    for (int g = 0; g < 2; g++)
        for (int k = 0; k < KEYS; k++)
            for (int row = 0; row < GRID; row++) {
                const shd_dropout made = shd_dropout_make(p, shd_random_subkey(2026, g ? 0 : (uint64_t)k), 0);
                const shd_mask_row mask = {made.key, g ? (uint64_t)k : 0, (uint32_t)row, made.drop, made.scale};
                float x[GRID];
                for (int i = 0; i < GRID; i++) x[i] = 1;
                kernels->drop(&mask, 0, GRID, x);
                for (int i = 0; i < GRID; i++) grids[g].gone[k][row][i] = x[i] == 0;
            }
}

/* Σ (seen - expected)²/expected over a table of `cells` counts of n trials each, for both outcomes: chi-square with
 * `cells` degrees of freedom, whose mean is `cells` and variance twice that. Five standard deviations. */
static void check_counts(const char *what, double p, int cells, const int *seen, double trials) {
    double chi_square = 0;
    for (int i = 0; i < cells; i++) {
        const double difference = seen[i] - trials * p;
        chi_square += difference * difference / (trials * p * (1 - p));
    }
    cr_assert(fabs(chi_square - cells) < 5 * sqrt(2.0 * cells) + 5, "%s, p %g: chi-square %g of %d cells", what, p,
              chi_square, cells);
}

static void check_uniform(const mask_grid *grid, double p) {
    int columns[GRID] = {0}, rows[GRID] = {0}, keys[KEYS] = {0}, whole = 0;
    for (int k = 0; k < KEYS; k++)
        for (int row = 0; row < GRID; row++)
            for (int i = 0; i < GRID; i++)
                if (grid->gone[k][row][i]) columns[i]++, rows[row]++, keys[k]++, whole++;
    check_counts("columns", p, GRID, columns, KEYS * GRID);
    check_counts("rows", p, GRID, rows, KEYS * GRID);
    check_counts("sites or sequences", p, KEYS, keys, GRID * GRID);
    check_counts("all", p, 1, &whole, KEYS * GRID * GRID);
}

/* How often an element and the one `dk` sites, `dr` rows and `dc` columns on both go: independent means p². */
static void check_pairs(const mask_grid *grid, double p, int dk, int dr, int dc) {
    char what[60];
    snprintf(what, sizeof what, "pairs %d, %d, %d apart", dk, dr, dc);
    int both = 0;
    for (int k = 0; k < KEYS - dk; k++)
        for (int row = 0; row < GRID - dr; row++)
            for (int i = 0; i < GRID - dc; i++) both += grid->gone[k][row][i] && grid->gone[k + dk][row + dr][i + dc];
    check_counts(what, p * p, 1, &both, (double)(KEYS - dk) * (GRID - dr) * (GRID - dc));
}

Test(dropout, masks_are_even_and_independent) {
    static const double ps[] = {0.02, 0.1, 0.5, 0.9};
    for (int i = 0; i < 4; i++) {
        const double p = shd_dropout_make(ps[i], 0, 0).drop / 65536.0;
        draw_grids(ps[i]);
        for (int g = 0; g < 2; g++) {
            check_uniform(&grids[g], p);
            for (int d = 1; d <= 64; d += d < 9 ? 1 : 11) {
                check_pairs(&grids[g], p, 0, 0, d);
                check_pairs(&grids[g], p, 0, d, 0);
            }
            for (int d = 1; d < KEYS; d++) check_pairs(&grids[g], p, d, 0, 0);
        }
        cr_assert(memcmp(grids[0].gone[0], grids[0].gone[1], sizeof grids[0].gone[0]) != 0);
        cr_assert(memcmp(grids[1].gone[0], grids[1].gone[1], sizeof grids[1].gone[0]) != 0);
        cr_assert_eq(memcmp(grids[0].gone[0], grids[1].gone[0], sizeof grids[0].gone[0]), 0);
    }
}
