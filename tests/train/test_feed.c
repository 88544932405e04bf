#include "io/order.h"
#include "runtime/base/memory.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/feed.h"
#include "tests/io/make_job.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

TestSuite(feed, .init = enter_fresh_folder, .fini = leave_fresh_folder);

enum { CONTEXT = 5, SEQUENCES = 37 };

/* Sequence j begins with token j, so that rows tell which sequence they are. */
static void write_sequences(void) {
    uint16_t tokens[SEQUENCES * CONTEXT + 1] = {0};
    for (int i = 0; i <= SEQUENCES * CONTEXT; i++)
        tokens[i] = (uint16_t)(i % CONTEXT ? 100 + i % CONTEXT : i / CONTEXT);
    write_file("tokens.u16", tokens, sizeof tokens);
}

static shd_dataset *open_data(bool shuffle) {
    const char *path = "tokens.u16";
    const shd_job_data_source file = {.paths = &path, .path_count = 1, .weight = 1};
    const shd_job_sources sources = {.items = &file, .count = 1};
    const shd_dataset_config config = {.key = "data.train",
                                       .sources = &sources,
                                       .vocab_size = 200,
                                       .context = CONTEXT,
                                       .ignored_token = -1,
                                       .separator = -1,
                                       .seed = 3,
                                       .shuffle = shuffle};
    shd_dataset *dataset = NULL;
    cr_assert_eq(shd_dataset_open(&config, &dataset), SHERD_OK, "%s", sherd_last_error());
    return dataset;
}

static shd_feed *open_feed_of_documents(shd_dataset *dataset, int64_t separator, int64_t micro_batch,
                                        int32_t micro_steps, shd_mesh mesh) {
    const shd_feed_config config = {.dataset = dataset,
                                    .context = CONTEXT,
                                    .separator = separator,
                                    .micro_batch = micro_batch,
                                    .micro_steps = micro_steps,
                                    .mesh = mesh};
    shd_feed *feed = NULL;
    cr_assert_eq(shd_feed_create(&config, &feed), SHERD_OK, "%s", sherd_last_error());
    return feed;
}

static shd_feed *open_feed(shd_dataset *dataset, int64_t micro_batch, int32_t micro_steps, int32_t rank,
                           int32_t world_size) {
    const shd_mesh mesh = {.rank = rank, .world_size = world_size, .replicas = 1};
    return open_feed_of_documents(dataset, -1, micro_batch, micro_steps, mesh);
}

/* The sequences of step `step`, in the order of the global batch, gathered from all ranks. */
enum { BATCH = 48, MICRO = 2, STEPS = 5 };
static void gather_batches(int32_t world, int64_t first, bool shuffle, int32_t out[STEPS][BATCH]) {
    int32_t micro_steps = BATCH / MICRO / world;
    for (int32_t r = 0; r < world; r++) {
        shd_dataset *dataset = open_data(shuffle);
        shd_feed *feed = open_feed(dataset, MICRO, micro_steps, r, world);
        cr_assert_eq(shd_feed_start(feed, first, STEPS), SHERD_OK);
        for (int step = 0; step < STEPS; step++) {
            int64_t counted = 0;
            int32_t ready = -1;
            cr_assert_eq(shd_feed_next(feed, &counted, &ready), SHERD_OK, "%s", sherd_last_error());
            cr_assert_eq(counted, (int64_t)micro_steps * MICRO * CONTEXT);
            cr_assert(ready >= 0 && ready <= SHD_FEED_AHEAD);
            for (int32_t k = 0; k < micro_steps; k++) {
                const int32_t at = (k * world + r) * MICRO;
                const shd_batch batch = shd_feed_batch(feed, k);
                cr_assert_eq(batch.first_sequence, first + step * BATCH + at);
                for (int32_t row = 0; row < MICRO; row++) out[step][at + row] = batch.inputs[row * CONTEXT];
            }
        }
        shd_feed_destroy(feed);
        shd_dataset_close(dataset);
    }
}

Test(feed, gives_the_ranks_the_same_micro_batches_in_data_order_whatever_their_number) {
    static const int32_t worlds[] = {1, 2, 3, 4, 8};
    write_sequences();
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        const shd_order order = {.seed = 3, .sequence_count = SEQUENCES, .shuffle = shuffle};
        for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
            int32_t batches[STEPS][BATCH];
            /* From number 30 on, over the ends of epochs. */
            gather_batches(worlds[w], 30, shuffle, batches);
            for (int b = 0; b < STEPS * BATCH; b++)
                cr_assert_eq(batches[b / BATCH][b % BATCH], shd_order_index(&order, 30 + b));
        }
    }
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

/* Written by hand: 48 sequences in micro-batches of two, on two replicas of three ranks: rank 4 is place 1 of replica 1. */
Test(feed, gives_a_replica_a_block_of_neighbouring_micro_batches) {
    static const int32_t expected[4][MICRO] = {{26, 27}, {32, 33}, {38, 39}, {44, 45}};
    write_sequences();
    shd_dataset *dataset = open_data(false);
    shd_feed *feed = open_feed_of_documents(dataset, -1, MICRO, 4, (shd_mesh){4, 6, 2});
    int64_t counted;
    int32_t ready;
    cr_assert_eq(shd_feed_start(feed, 0, 1), SHERD_OK);
    cr_assert_eq(shd_feed_next(feed, &counted, &ready), SHERD_OK);
    sherd_options options = SHERD_OPTIONS_INIT;
    options.rank = 4, options.world_size = 6, options.replicas = 2, options.micro_steps = 4;
    for (int32_t k = 0; k < 4; k++) {
        const int32_t *inputs = shd_feed_batch(feed, k).inputs;
        cr_assert(inputs[0] == expected[k][0] % SEQUENCES && inputs[CONTEXT] == expected[k][1] % SEQUENCES);
        cr_assert_eq(sherd_micro_batch(&options, k), expected[k][0] / MICRO);
    }
    shd_feed_destroy(feed);
    shd_dataset_close(dataset);
}

Test(feed, fills_the_last_evaluation_micro_batch_with_ignored_targets) {
    write_sequences();
    shd_dataset *dataset = open_data(false);
    shd_feed *feed = open_feed(dataset, 4, 1, 0, 1);
    int64_t counted = 0;
    cr_assert_eq(shd_feed_read_padded(feed, 2, 10, &counted), SHERD_OK); /* sequences 8 and 9, in file order */
    cr_assert_eq(counted, 2 * CONTEXT);
    shd_batch batch = shd_feed_batch(feed, 0);
    cr_assert(batch.inputs[0] == 8 && batch.inputs[CONTEXT] == 9);
    for (int i = 2 * CONTEXT; i < 4 * CONTEXT; i++) cr_assert(batch.inputs[i] == 0 && batch.targets[i] == -1);
    shd_feed_destroy(feed);
    shd_dataset_close(dataset);
}

/* By hand. Sequences are j 101 102 103 104: 102 ends a document in each, 8 one at the very start of sequence 8. */
Test(feed, says_where_the_document_of_every_token_begins) {
    write_sequences();
    shd_dataset *dataset = open_data(false);
    static const int64_t separators[] = {102, 8};
    static const shd_mesh alone = {.rank = 0, .world_size = 1, .replicas = 1};
    static const int32_t expected[2][4][CONTEXT] = {{{0, 0, 0, 3, 3}, {0, 0, 0, 3, 3}, {0}, {0}},
                                                    {{0, 1, 1, 1, 1}, {0}, {0}, {0}}};
    for (int i = 0; i < 2; i++) {
        shd_feed *feed = open_feed_of_documents(dataset, separators[i], 4, 1, alone);
        int64_t counted;
        cr_assert_eq(shd_feed_read_padded(feed, 0, 10, &counted), SHERD_OK); /* overwritten by what follows */
        cr_assert_eq(shd_feed_read_padded(feed, 2, 10, &counted), SHERD_OK); /* 8, 9, and two that are filled in */
        cr_assert_arr_eq(shd_feed_batch(feed, 0).document_starts, expected[i], sizeof expected[i]);
        shd_feed_destroy(feed);
    }
    shd_feed *feed = open_feed(dataset, 4, 1, 0, 1);
    cr_assert_null(shd_feed_batch(feed, 0).document_starts);
    shd_feed_destroy(feed);
    shd_dataset_close(dataset);
}

Test(feed, reads_without_allocating) {
    write_sequences();
    shd_dataset *dataset = open_data(true);
    shd_feed *feed = open_feed(dataset, 2, 3, 1, 2);
    cr_assert_eq(shd_feed_start(feed, 0, 20), SHERD_OK);
    int64_t counted = 0, calls = shd_memory_calls();
    int32_t ready;
    for (int s = 0; s < 20; s++) cr_assert_eq(shd_feed_next(feed, &counted, &ready), SHERD_OK);
    cr_assert_eq(shd_memory_calls(), calls);
    cr_assert_eq(shd_feed_next(feed, &counted, &ready), SHERD_ARGUMENT);
    shd_feed_destroy(feed);
    shd_dataset_close(dataset);
}

Test(feed, reads_ahead_as_far_as_it_may_and_keeps_the_current_step, .timeout = 20) {
    write_sequences();
    shd_dataset *dataset = open_data(false);
    shd_feed *feed = open_feed(dataset, 1, 1, 0, 1);
    cr_assert_eq(shd_feed_start(feed, 0, 30), SHERD_OK);
    int64_t counted;
    int32_t ready = 0;
    for (int step = 0; step < 30; step++) {
        cr_assert_eq(shd_feed_next(feed, &counted, &ready), SHERD_OK);
        /* Time enough to overwrite what must stay, were there no bound. */
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        cr_assert_leq(ready, SHD_FEED_AHEAD);
        cr_assert_eq(shd_feed_batch(feed, 0).inputs[0], step);
    }
    /* It slept while the thread read: at the end nothing had to be waited for. */
    cr_assert_gt(ready, 0);
    shd_feed_destroy(feed);
    shd_dataset_close(dataset);
}

Test(feed, fails_at_the_step_of_a_bad_token_and_names_file_and_byte, .timeout = 20) {
    write_sequences();
    shd_dataset *dataset = open_data(false);
    int file = open("tokens.u16", O_WRONLY);
    const uint16_t bad = 200;
    cr_assert_eq(pwrite(file, &bad, 2, 2 * (7 * CONTEXT + 3)), 2); /* in sequence 7, after opening */
    close(file);
    shd_feed *feed = open_feed(dataset, 1, 2, 0, 1);
    cr_assert_eq(shd_feed_start(feed, 0, 18), SHERD_OK);
    int64_t counted;
    int32_t ready;
    for (int step = 0; step < 3; step++) cr_assert_eq(shd_feed_next(feed, &counted, &ready), SHERD_OK);
    for (int again = 0; again < 2; again++) {
        cr_assert_eq(shd_feed_next(feed, &counted, &ready), SHERD_DATA);
        cr_assert_str_eq(sherd_last_error(), "tokens.u16: token 200 at byte 76 is not below model.vocab_size 200");
    }
    shd_feed_destroy(feed);
    shd_dataset_close(dataset);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

Test(feed, ends_whenever_it_is_told_to, .timeout = 20) {
    write_sequences();
    for (int taken = 0; taken < 6; taken++)
        for (int pause_us = 0; pause_us < 1000; pause_us += 300) {
            shd_dataset *dataset = open_data(true);
            shd_feed *feed = open_feed(dataset, 3, 4, 0, 1);
            cr_assert_eq(shd_feed_start(feed, 0, 6), SHERD_OK);
            int64_t counted;
            int32_t ready;
            for (int step = 0; step < taken; step++) cr_assert_eq(shd_feed_next(feed, &counted, &ready), SHERD_OK);
            nanosleep(&(struct timespec){.tv_nsec = 1000 * pause_us}, NULL);
            shd_feed_destroy(feed);
            shd_dataset_close(dataset);
        }
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
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
