#include "optim/optimizer.h"
#include "optim/update_kernels.h"
#include "runtime/base/random.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 256, BLOCKS = 301, COUNT = BLOCK * BLOCKS };

static float *make_values(void) {
    float *values = malloc(COUNT * sizeof *values);
    shd_random_normal(5, 0, COUNT, 1, values);
    for (int i = 0; i < COUNT; i += 7) values[i] *= 1e-12f;
    for (int i = 3; i < COUNT; i += 1111) values[i] *= 1e9f;
    return values;
}

static double square_sum(int32_t threads, const float *values, int64_t span) {
    static double partials[BLOCKS];
    shd_pool *pool = NULL;
    cr_assert_eq(shd_pool_create(threads, &pool), SHERD_OK);
    shd_exact_sum sum;
    shd_exact_sum_clear(&sum);
    for (int64_t first = 0; first < COUNT; first += span)
        shd_square_sum(pool, values + first, first + span < COUNT ? span : COUNT - first, partials, &sum);
    shd_pool_destroy(pool);
    return shd_exact_sum_value(&sum);
}

Test(square_sum, is_the_sum_of_squares) {
    float *values = make_values();
    long double expected = 0;
    for (int i = 0; i < COUNT; i++) expected += (long double)values[i] * values[i];
    double sum = square_sum(1, values, COUNT);
    cr_assert_float_eq(sum / expected, 1, 1e-15, "%.17g, not %.17Lg", sum, expected);
    free(values);
}

Test(square_sum, does_not_depend_on_shards_or_threads) {
    float *values = make_values();
    double expected = square_sum(1, values, COUNT);
    for (int32_t threads = 1; threads <= 3; threads++)
        for (int64_t blocks = 1; blocks < 2 * BLOCKS; blocks = blocks * 3 + 2)
            cr_assert_eq(square_sum(threads, values, blocks * BLOCK), expected, "%d threads, %ld blocks", threads,
                         (long)blocks);
    free(values);
}

/* Element by element: lane i mod 16, lanes in order. */
Test(square_sum, adds_sixteen_lanes_in_order_on_every_instruction_set) {
    float *values = make_values();
    static double partials[BLOCKS];
    const shd_optim_kernels *list[SHD_OPTIM_KERNELS_MAX];
    int32_t available = shd_optim_kernels_list(list);
    for (int32_t set = 0; set < available; set++) {
        list[set]->square_sums(values, BLOCKS, partials);
        for (int block = 0; block < BLOCKS; block++) {
            double expected = 0;
            for (int lane = 0; lane < 16; lane++) {
                double sum = 0;
                for (int i = lane; i < BLOCK; i += 16)
                    sum += (double)values[block * BLOCK + i] * values[block * BLOCK + i];
                expected += sum;
            }
            cr_assert_eq(partials[block], expected, "%s, block %d", list[set]->name, block);
        }
    }
    free(values);
}

Test(square_sum, of_nothing_adds_nothing) {
    shd_pool *pool = NULL;
    cr_assert_eq(shd_pool_create(2, &pool), SHERD_OK);
    shd_exact_sum sum;
    shd_exact_sum_clear(&sum);
    shd_exact_sum_add(&sum, 3);
    shd_square_sum(pool, NULL, 0, NULL, &sum);
    cr_assert_eq(shd_exact_sum_value(&sum), 3);
    shd_pool_destroy(pool);
}

Test(square_sum, shows_what_is_not_finite) {
    static float values[2 * BLOCK];
    double partials[2];
    shd_pool *pool = NULL;
    cr_assert_eq(shd_pool_create(1, &pool), SHERD_OK);
    shd_exact_sum sum;
    shd_exact_sum_clear(&sum);
    values[300] = -INFINITY;
    shd_square_sum(pool, values, 2 * BLOCK, partials, &sum);
    cr_assert_eq(shd_exact_sum_value(&sum), INFINITY);
    values[0] = NAN;
    shd_square_sum(pool, values, 2 * BLOCK, partials, &sum);
    cr_assert(isnan(shd_exact_sum_value(&sum)));
    shd_pool_destroy(pool);
}
