#include "optim/update_kernels.h"
#include "runtime/base/random.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = SHD_CODE_BLOCK_COUNT, NO_CODE = 128 };

static shd_codebook books[2]; /* with signs, and of roots */

static void make_books(void) {
    for (int root = 0; root < 2; root++) shd_codebook_init(&books[root], root);
}

TestSuite(codebook, .init = make_books);

/* Each test goes over all instruction sets. */
#define FOR_EACH_SET(set)                                                                                              \
    const shd_optim_kernels *sets[SHD_OPTIM_KERNELS_MAX];                                                              \
    const int32_t set_count = shd_optim_kernels_list(sets);                                                            \
    for (const shd_optim_kernels **set = sets; set < sets + set_count; set++)

static double to_share(bool root, double value) { return root ? sqrt(value) : value; }
static float of_share(bool root, float share) { return root ? share * share : share; }

/* From the definition, decade by decade from the top: the middles of n equal intervals of [0.1, 1], shrunk. */
Test(codebook, its_shares_are_those_of_the_formula) {
    for (int root = 0; root < 2; root++) {
        const float *shares = books[root].shares;
        int code = root ? 255 : 127;
        cr_assert_eq(shares[0], 0);
        cr_assert_eq(shares[code--], 1);
        double top = 1;
        for (int intervals = root ? 128 : 64; intervals > 1; intervals /= 2, top /= 10)
            for (int i = intervals; i > 0; i--, code--) {
                double low = 0.1 + 0.9 * (i - 1) / intervals, high = 0.1 + 0.9 * i / intervals;
                cr_assert_float_eq(shares[code], top * (low + high) / 2, 1e-7 * top);
            }
        cr_assert_eq(code, 0);
    }
    cr_assert(isnan(books[0].shares[NO_CODE]));
    for (int code = 1; code < 128; code++) cr_assert_eq(books[0].shares[256 - code], -books[0].shares[code]);
}

/* The known ends of the published table of values with signs, and of the one without. */
Test(codebook, its_shares_are_those_published) {
    cr_assert_float_eq(books[0].shares[126], 0.9929687, 1e-6);
    cr_assert_float_eq(books[0].shares[125], 0.9789062, 1e-6);
    cr_assert_float_eq(books[0].shares[1], 3.25e-6, 1e-10);
    cr_assert_float_eq(books[1].shares[254], 0.99648438, 1e-6);
    cr_assert_float_eq(books[1].shares[1], 3.25e-7, 1e-11);
}

Test(codebook, every_code_comes_back_from_what_it_stands_for) {
    static const float scales[] = {1, 3e-5f, 0.7f, 1e-12f, 4e18f};
    FOR_EACH_SET(set)
    for (int root = 0; root < 2; root++)
        for (int s = 0; s < 5; s++) {
            shd_code_block block = {.scale = scales[s]}, again, third;
            float values[BLOCK];
            for (int i = 0; i < BLOCK; i++) block.codes[i] = (uint8_t)(!root && i == NO_CODE ? 127 : i);
            (*set)->dequantize(&books[root], &block, 1, values);
            for (int i = 0; i < BLOCK; i++)
                cr_assert_eq(values[i], of_share(root, books[root].shares[block.codes[i]] * scales[s]));
            (*set)->quantize(&books[root], values, 1, &again);
            cr_assert_eq(memcmp(&again, &block, sizeof block), 0, "%s, root %d, scale %g", (*set)->name, root,
                         scales[s]);
            (*set)->dequantize(&books[root], &again, 1, values);
            (*set)->quantize(&books[root], values, 1, &third);
            cr_assert_eq(memcmp(&third, &block, sizeof block), 0);
        }
}

/* The code of the share nearest to `share`, of two as near the smaller; above zero never 0 in a book of roots. */
static int find_nearest(const shd_codebook *book, double share) {
    int nearest = 0;
    for (int code = 1; code < (book->root ? 256 : 128); code++)
        if (fabs(book->shares[code] - share) < fabs(book->shares[nearest] - share)) nearest = code;
    return book->root && share > 0 && nearest == 0 ? 1 : nearest;
}

/* Values whose block has the scale 1: all around every border, and everywhere else. */
static void draw_values(const shd_codebook *book, int block, float values[BLOCK]) {
    float normal[BLOCK];
    shd_random_normal(7, block * BLOCK, BLOCK, 1, normal);
    for (int i = 0; i < BLOCK; i++) {
        float border = i < (book->root ? 255 : 127) ? book->borders[i] : 0.5f;
        float share = block == 0   ? border
                      : block == 1 ? nextafterf(border, 1)
                      : block == 2 ? nextafterf(border, 0)
                      : block == 3 ? ((float)i + 0.5f) / BLOCK
                                   : (float)pow(10, -3 * fabs(normal[i]));
        values[i] = of_share(book->root, share) * (!book->root && i % 3 == 0 ? -1 : 1);
    }
    values[BLOCK - 1] = 1;
}

Test(codebook, values_go_to_the_nearest_share) {
    enum { BLOCKS = 40 };
    FOR_EACH_SET(set)
    for (int root = 0; root < 2; root++)
        for (int b = 0; b < BLOCKS; b++) {
            float values[BLOCK];
            shd_code_block block;
            draw_values(&books[root], b, values);
            (*set)->quantize(&books[root], values, 1, &block);
            cr_assert_eq(block.scale, 1);
            for (int i = 0; i < BLOCK; i++) {
                int code = find_nearest(&books[root], root ? (double)sqrtf(values[i]) : fabs(values[i]));
                int signed_code = values[i] < 0 ? (256 - code) % 256 : code;
                cr_assert_eq(block.codes[i], signed_code, "%s, root %d, block %d: %.9g has code %d, not %d",
                             (*set)->name, root, b, values[i], block.codes[i], signed_code);
            }
        }
}

/* In a decade of n intervals, each 0.9/n wide, a share is wrong by half an interval at most, which counts most at the upper
 * end of the lowest one, and by 0.3 intervals where it lies between two decades. n is 64 or 128 at the top, and half as
 * much in each decade below. What lies under all decades is wrong by half the smallest share, or, of a root that is not
 * zero, becomes the smallest share. */
static double bound_error(double intervals) { return fmax(4.5 / (intervals + 9), 2.7 / (intervals + 1.8)); }

Test(codebook, the_error_is_bounded_by_the_magnitude) {
    double worst[2][7] = {0};
    for (int root = 0; root < 2; root++)
        for (int b = 0; b < 200; b++) {
            float values[BLOCK], restored[BLOCK];
            shd_code_block block;
            draw_values(&books[root], b, values);
            float scale = ldexpf(1.37f, b % 50 - 25);
            for (int i = 0; i < BLOCK; i++) values[i] *= of_share(root, scale);
            shd_optim_kernels_best()->quantize(&books[root], values, 1, &block);
            shd_optim_kernels_best()->dequantize(&books[root], &block, 1, restored);
            cr_assert_float_eq(block.scale, scale, 1e-6 * scale);
            for (int i = 0; i < BLOCK; i++) {
                double share = fabs(to_share(root, values[i])) / scale;
                double error = fabs(to_share(root, restored[i]) - to_share(root, values[i])) / scale;
                int decade = 0;
                double intervals = root ? 128 : 64;
                for (double low = 0.1; share < low && decade < 6 && intervals > 2; low /= 10, intervals /= 2) decade++;
                double bound = fmax(bound_error(intervals) * share, root ? 3.25e-7 : 1.625e-6);
                if (share > 1e-5) worst[root][decade] = fmax(worst[root][decade], error / share);
                cr_assert_leq(error, bound * 1.0001 + 1e-7 * share, "root %d: share %g is wrong by %g", root, share,
                              error);
                if (root) cr_assert_eq(values[i] > 0, restored[i] > 0);
                if (!root) cr_assert(restored[i] == 0 || (values[i] < 0) == (restored[i] < 0));
            }
        }
    /* The bounds are reached, so they say what the error is. */
    for (int root = 0; root < 2; root++)
        for (int decade = 0; decade < 4; decade++)
            cr_assert_gt(worst[root][decade], 0.95 * bound_error((root ? 128 : 64) >> decade), "root %d, decade %d: %g",
                         root, decade, worst[root][decade]);
}

Test(codebook, zero_bytes_are_zeros) {
    static const float zeros[BLOCK];
    static const shd_code_block empty;
    FOR_EACH_SET(set)
    for (int root = 0; root < 2; root++) {
        shd_code_block block;
        float values[BLOCK];
        memset(&block, 0x55, sizeof block);
        (*set)->quantize(&books[root], zeros, 1, &block);
        cr_assert_eq(memcmp(&block, &empty, sizeof block), 0);
        (*set)->dequantize(&books[root], &empty, 1, values);
        cr_assert_eq(memcmp(values, zeros, sizeof zeros), 0);
    }
}

Test(codebook, a_huge_value_is_exact_and_leaves_the_others_zero_or_the_least_share) {
    for (int root = 0; root < 2; root++) {
        float values[BLOCK], restored[BLOCK];
        shd_code_block block;
        for (int i = 0; i < BLOCK; i++) values[i] = i % 2 ? 1e-12f : 0;
        values[77] = root ? 3e30f : -3e30f;
        shd_optim_kernels_best()->quantize(&books[root], values, 1, &block);
        shd_optim_kernels_best()->dequantize(&books[root], &block, 1, restored);
        cr_assert_float_eq(restored[77], values[77], 1e24);
        cr_assert_eq(block.codes[77], root ? 255 : 129);
        for (int i = 0; i < BLOCK; i++)
            if (i != 77) cr_assert_eq(block.codes[i], root && i % 2, "element %d has code %d", i, block.codes[i]);
    }
}

Test(codebook, the_smallest_numbers_survive) {
    for (int root = 0; root < 2; root++) {
        float values[BLOCK] = {0}, restored[BLOCK];
        shd_code_block block;
        values[3] = 0x1p-149f, values[4] = 0x1p-148f, values[5] = -0.0f;
        shd_optim_kernels_best()->quantize(&books[root], values, 1, &block);
        shd_optim_kernels_best()->dequantize(&books[root], &block, 1, restored);
        cr_assert_eq(restored[4], values[4]);
        cr_assert_eq(restored[3], values[3]);
        cr_assert_eq(restored[5], 0);
        cr_assert_eq(block.codes[0], 0);
    }
}

Test(codebook, a_number_that_is_not_finite_makes_its_block_nan) {
    static const float bad[] = {NAN, INFINITY, -INFINITY, -NAN};
    FOR_EACH_SET(set)
    for (int root = 0; root < 2; root++)
        for (int b = 0; b < 4; b++)
            for (int at = 0; at < BLOCK; at += 51) {
                float values[2 * BLOCK], restored[2 * BLOCK];
                shd_code_block blocks[2], again[2];
                for (int i = 0; i < 2 * BLOCK; i++) values[i] = i % 5 ? 0.25f : 0;
                values[at] = bad[b];
                (*set)->quantize(&books[root], values, 2, blocks);
                (*set)->dequantize(&books[root], blocks, 2, restored);
                for (int i = 0; i < BLOCK; i++) cr_assert(isnan(restored[i]));
                for (int i = BLOCK; i < 2 * BLOCK; i++) cr_assert_eq(restored[i], values[i]);
                (*set)->quantize(&books[root], restored, 2, again);
                cr_assert_eq(memcmp(again, blocks, sizeof blocks), 0);
            }
}

Test(codebook, gives_the_same_bits_on_every_instruction_set) {
    enum { BLOCKS = 64 };
    static float values[BLOCKS * BLOCK], expected[BLOCKS * BLOCK], restored[BLOCKS * BLOCK];
    static shd_code_block first[BLOCKS], blocks[BLOCKS];
    for (int root = 0; root < 2; root++) {
        shd_random_normal(3, 0, BLOCKS * BLOCK, 1, values);
        for (int i = 0; i < BLOCKS * BLOCK; i++)
            values[i] = (root ? values[i] * values[i] : values[i]) * (float)(i % 7);
        FOR_EACH_SET(set) {
            (*set)->quantize(&books[root], values, BLOCKS, blocks);
            (*set)->dequantize(&books[root], blocks, BLOCKS, restored);
            if (set == sets) memcpy(first, blocks, sizeof first), memcpy(expected, restored, sizeof expected);
            cr_assert_eq(memcmp(blocks, first, sizeof first), 0, "%s", (*set)->name);
            cr_assert_eq(memcmp(restored, expected, sizeof expected), 0, "%s", (*set)->name);
        }
    }
}

/* Codes of any number of values: whole blocks, the last one filled up with zeros; they are codes of their own values. */
Test(codebook, encodes_and_decodes_any_number_of_values) {
    static const int64_t counts[] = {0, 1, 17, 256, 257, 17 * 257};
    for (int root = 0; root <= 1; root++) {
        shd_codebook book;
        shd_codebook_init(&book, root);
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            int64_t count = counts[c], blocks = (count + SHD_CODE_BLOCK_COUNT - 1) / SHD_CODE_BLOCK_COUNT;
            float *values = calloc((size_t)count + 1, sizeof *values), *read = calloc((size_t)count + 1, sizeof *read);
            shd_code_block *codes = calloc((size_t)blocks + 1, sizeof *codes);
            shd_code_block *again = calloc((size_t)blocks + 1, sizeof *again);
            for (int64_t i = 0; i < count; i++) values[i] = (float)((i * 37 % 101) - (root ? 0 : 50)) / 64.0f;
            values[count] = read[count] = 7;
            shd_codes_encode(&book, values, count, codes);
            shd_codes_decode(&book, codes, count, read);
            cr_assert(read[count] == 7 && codes[blocks].scale == 0, "nothing behind the end is touched");
            for (int64_t i = 0; i < count; i++)
                cr_assert_float_eq(read[i], values[i],
                                   0.05 * codes[i / SHD_CODE_BLOCK_COUNT].scale *
                                       (root ? codes[i / SHD_CODE_BLOCK_COUNT].scale : 1));
            for (int64_t i = count; i < blocks * SHD_CODE_BLOCK_COUNT; i++)
                cr_assert_eq(codes[i / SHD_CODE_BLOCK_COUNT].codes[i % SHD_CODE_BLOCK_COUNT], 0);
            shd_codes_encode(&book, read, count, again);
            cr_assert_eq(memcmp(codes, again, (size_t)blocks * sizeof *codes), 0, "root %d, %ld values", root,
                         (long)count);
            free(values), free(read), free(codes), free(again);
        }
    }
}
