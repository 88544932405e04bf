/* Updates a second, by optimizer and type of state, on one thread and two: the best of some runs over arrays that are
 * larger than any cache. */
#include "optim/optimizer.h"
#include "runtime/base/clock.h"
#include "runtime/base/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1 << 25, RUNS = 5 };

static const struct {
    const char *name;
    sherd_optimizer optimizer;
} cases[] = {
    {"adamw", {.kind = SHERD_ADAMW, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8}},
    {"lion", {.kind = SHERD_LION, .beta1 = 0.9, .beta2 = 0.99}},
    {"sgd", {.kind = SHERD_SGD, .momentum = 0.9}},
};

static double best_ms(const sherd_optimizer *optimizer, shd_pool *pool, shd_update *update) {
    double best = INFINITY;
    for (update->step = 0; update->step < RUNS; update->step++) {
        double since = shd_clock_ms();
        shd_optimizer_update(optimizer, pool, update);
        best = fmin(best, shd_clock_ms() - since);
    }
    return best;
}

int main(void) {
    float *arrays[4];
    shd_code_block *blocks[2];
    static shd_codebook books[2];
    for (int i = 0; i < 4; i++) arrays[i] = calloc(COUNT, sizeof(float));
    for (int i = 0; i < 2; i++) blocks[i] = calloc(COUNT / SHD_CODE_BLOCK_COUNT, sizeof(shd_code_block));
    for (int root = 0; root < 2; root++) shd_codebook_init(&books[root], root);
    shd_random_normal(1, 0, COUNT, 1e-3, arrays[1]);
    printf("%-8s %8s %16s %16s\n", "", "threads", "fp32 M/s", "int8 M/s");
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int32_t threads = 1; threads <= 2; threads++) {
            const sherd_optimizer *optimizer = &cases[c].optimizer;
            shd_pool *pool;
            if (shd_pool_create(threads, &pool) != SHERD_OK) return 1;
            shd_update update = {.parameters = arrays[0],
                                 .gradients = arrays[1],
                                 .states = {arrays[2], arrays[3]},
                                 .count = COUNT,
                                 .lr = 1e-3,
                                 .gradient_scale = 1};
            double floats = best_ms(optimizer, pool, &update);
            for (int32_t s = 0; s < shd_optimizer_state_count(optimizer); s++) {
                update.state_blocks[s] = blocks[s];
                update.codebooks[s] = &books[shd_optimizer_state_is_root(optimizer, s)];
            }
            double codes = best_ms(optimizer, pool, &update);
            printf("%-8s %8d %16.0f %16.0f\n", cases[c].name, threads, COUNT / floats / 1e3, COUNT / codes / 1e3);
            shd_pool_destroy(pool);
        }
    return 0;
}
