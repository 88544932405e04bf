#include "io/order.h"

#include <criterion/criterion.h>
#include <stdlib.h>

/* Every sequence once an epoch. */
static void check_epoch(const shd_order *order, int64_t epoch) {
    char *seen = calloc((size_t)order->sequence_count, 1);
    for (int64_t i = 0; i < order->sequence_count; i++) {
        int64_t index = shd_order_index(order, epoch * order->sequence_count + i);
        cr_assert(index >= 0 && index < order->sequence_count);
        cr_assert_eq(seen[index]++, 0, "sequence %lld twice in epoch %lld", (long long)index, (long long)epoch);
    }
    free(seen);
}

Test(order, takes_every_sequence_once_an_epoch) {
    static const int64_t sizes[] = {1, 2, 3, 17, 256, 257, 17 * 257};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const shd_order order = {.seed = 5, .sequence_count = sizes[i], .shuffle = true};
        for (int64_t epoch = 0; epoch < 4; epoch++) check_epoch(&order, epoch);
        check_epoch(&order, INT64_MAX / sizes[i] - 1);
    }
}

static int64_t count_equal(const shd_order *a, int64_t a_first, const shd_order *b, int64_t b_first) {
    int64_t equal = 0;
    for (int64_t i = 0; i < a->sequence_count; i++)
        equal += shd_order_index(a, a_first + i) == shd_order_index(b, b_first + i);
    return equal;
}

Test(order, differs_between_epochs_and_seeds_and_from_the_file) {
    const shd_order one = {.seed = 1, .sequence_count = 1000, .shuffle = true};
    const shd_order two = {.seed = 2, .sequence_count = 1000, .shuffle = true};
    const shd_order file = {.seed = 1, .sequence_count = 1000, .shuffle = false};
    /* Two random orders of 1000 agree in one place on average; in 10 or more with probability 1e-7. */
    cr_assert_lt(count_equal(&one, 0, &one, 1000), 10);
    cr_assert_lt(count_equal(&one, 0, &two, 0), 10);
    cr_assert_lt(count_equal(&one, 0, &file, 0), 10);
    cr_assert_eq(count_equal(&one, 5000, &one, 5000), 1000);
}

Test(order, is_the_files_when_nothing_is_shuffled) {
    const shd_order order = {.seed = 1, .sequence_count = 7, .shuffle = false};
    for (int64_t q = 0; q < 50; q++) cr_assert_eq(shd_order_index(&order, q), q % 7);
}
