#include "runtime/base/memory.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/feed.h"
#include "tests/io/make_job.h"

#include <criterion/criterion.h>
#include <stdlib.h>

TestSuite(feed, .init = enter_fresh_folder, .fini = leave_fresh_folder);

enum { CONTEXT = 5, SEQUENCES = 37 };

/* Sequence j begins with token j, so that rows tell which sequence they are. */
static void write_sequences(void) {
    uint16_t tokens[SEQUENCES * CONTEXT + 1] = {0};
    for (int i = 0; i <= SEQUENCES * CONTEXT; i++)
        tokens[i] = (uint16_t)(i % CONTEXT ? 100 + i % CONTEXT : i / CONTEXT);
    write_file("tokens.u16", tokens, sizeof tokens);
}

static shd_feed *open_feed(int64_t micro_batch, int32_t micro_steps, int32_t rank, int32_t world_size, bool shuffle) {
    const shd_feed_config config = {
        .tokens = {.path = "tokens.u16", .vocab_size = 200, .context = CONTEXT, .ignored_token = -1},
        .seed = 3,
        .shuffle = shuffle,
        .micro_batch = micro_batch,
        .micro_steps = micro_steps,
        .rank = rank,
        .world_size = world_size};
    shd_feed *feed = NULL;
    cr_assert_eq(shd_feed_create(&config, &feed), SHERD_OK, "%s", sherd_last_error());
    return feed;
}

Test(feed, gives_the_ranks_the_same_micro_batches_in_data_order_whatever_their_number) {
    static const int32_t worlds[] = {1, 2, 3, 4, 8};
    enum { BATCH = 48, MICRO = 2 };
    write_sequences();
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        int32_t expected[BATCH];
        const shd_order order = {.seed = 3, .sequence_count = SEQUENCES, .shuffle = shuffle};
        /* From number 30 on, over the end of an epoch. */
        for (int b = 0; b < BATCH; b++) expected[b] = (int32_t)shd_order_index(&order, 30 + b);
        for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
            int32_t world = worlds[w], micro_steps = BATCH / MICRO / world;
            for (int32_t r = 0; r < world; r++) {
                shd_feed *feed = open_feed(MICRO, micro_steps, r, world, shuffle);
                int64_t counted = 0;
                cr_assert_eq(shd_feed_read_step(feed, 30, &counted), SHERD_OK);
                cr_assert_eq(counted, (int64_t)micro_steps * MICRO * CONTEXT);
                for (int32_t k = 0; k < micro_steps; k++)
                    for (int32_t row = 0; row < MICRO; row++)
                        cr_assert_eq(shd_feed_batch(feed, k).inputs[row * CONTEXT],
                                     expected[(k * world + r) * MICRO + row]);
                shd_feed_destroy(feed);
            }
        }
    }
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

Test(feed, fills_the_last_evaluation_micro_batch_with_ignored_targets) {
    write_sequences();
    shd_feed *feed = open_feed(4, 1, 0, 1, true);
    int64_t counted = 0;
    cr_assert_eq(shd_feed_read_padded(feed, 2, 10, &counted), SHERD_OK); /* sequences 8 and 9, in file order */
    cr_assert_eq(counted, 2 * CONTEXT);
    shd_batch batch = shd_feed_batch(feed, 0);
    cr_assert(batch.inputs[0] == 8 && batch.inputs[CONTEXT] == 9);
    for (int i = 2 * CONTEXT; i < 4 * CONTEXT; i++) cr_assert(batch.inputs[i] == 0 && batch.targets[i] == -1);
    shd_feed_destroy(feed);
}

Test(feed, reads_without_allocating) {
    write_sequences();
    shd_feed *feed = open_feed(2, 3, 1, 2, true);
    int64_t counted = 0, calls = shd_memory_calls();
    for (int s = 0; s < 20; s++) cr_assert_eq(shd_feed_read_step(feed, s * 12, &counted), SHERD_OK);
    cr_assert_eq(shd_memory_calls(), calls);
    shd_feed_destroy(feed);
}

Test(evaluation_plan, cuts_validation_into_portions_that_do_not_depend_on_the_ranks) {
    const struct {
        int64_t available, wanted, micro_batch;
        int32_t world_size;
        int64_t sequences, micro_batches;
        int32_t micro_steps;
    } cases[] = {
        {10, 0, 4, 1, 10, 3, 3},         {10, 0, 4, 2, 10, 3, 2},
        {10, 0, 4, 4, 10, 3, 1},         {10, 0, 4, 8, 10, 3, 1},
        {10, 7, 4, 1, 7, 2, 2},          {10, 99, 4, 1, 10, 3, 3},
        {1, 0, 4, 3, 1, 1, 1},           {1000, 0, 1, 1, 1000, 1000, 64},
        {1000, 0, 1, 3, 1000, 1000, 22}, {INT64_C(1) << 40, 0, 1, 64, INT64_C(1) << 40, INT64_C(1) << 40, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        shd_evaluation_plan plan =
            shd_evaluation_plan_make(cases[i].available, cases[i].wanted, cases[i].micro_batch, cases[i].world_size);
        cr_expect_eq(plan.sequence_count, cases[i].sequences);
        cr_expect_eq(plan.micro_batch_count, cases[i].micro_batches);
        cr_expect_eq(plan.micro_steps, cases[i].micro_steps, "case %zu: %d", i, plan.micro_steps);
    }
}
