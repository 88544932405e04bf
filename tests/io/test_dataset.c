#include "io/dataset.h"
#include "runtime/base/memory.h"
#include "tests/io/make_job.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(dataset, .init = enter_fresh_folder, .fini = leave_fresh_folder);

enum { T = 3 };

/* `count` sequences whose tokens are all the sequence's number, `base` added. */
static void write_sequences(const char *path, int base, int count) {
    unsigned char bytes[256 * T + 1];
    for (int i = 0; i <= count * T; i++) bytes[i] = (unsigned char)(base + i / T);
    write_file(path, bytes, (size_t)(count * T + 1));
}

/* One file a source, a.txt, b.txt…, and its weight. */
static shd_dataset *open_mixture(const double *weights, int32_t count, uint64_t seed, bool shuffle) {
    static const char *paths[] = {"a.txt", "b.txt", "c.txt"};
    shd_job_data_source items[3];
    for (int32_t i = 0; i < count; i++)
        items[i] = (shd_job_data_source){.paths = &paths[i], .path_count = 1, .weight = weights[i]};
    const shd_job_sources sources = {.items = items, .count = count};
    const shd_dataset_config config = {.key = "data.train",
                                       .sources = &sources,
                                       .vocab_size = 256,
                                       .context = T,
                                       .ignored_token = -1,
                                       .separator = -1,
                                       .seed = seed,
                                       .shuffle = shuffle};
    shd_dataset *dataset = NULL;
    cr_assert_eq(shd_dataset_open(&config, &dataset), SHERD_OK, "%s", sherd_last_error());
    return dataset;
}

static int first_token(shd_dataset *dataset, int64_t q) {
    int32_t inputs[T], targets[T];
    int64_t counted;
    cr_assert_eq(shd_dataset_read(dataset, q, &(shd_example){.inputs = inputs, .targets = targets}, &counted), SHERD_OK,
                 "%s", sherd_last_error());
    return inputs[0];
}

/* Sources of 5, 7 and 11 sequences: each runs through its own epochs, whatever the others do. */
Test(dataset, lets_every_source_of_a_mixture_have_epochs_and_orders_of_its_own) {
    static const double weights[3] = {1, 2, 5};
    static const int sizes[3] = {5, 7, 11}, bases[3] = {0, 50, 100};
    write_sequences("a.txt", 0, 5);
    write_sequences("b.txt", 50, 7);
    write_sequences("c.txt", 100, 11);
    shd_dataset *dataset = open_mixture(weights, 3, 1, true);
    cr_assert_eq(shd_dataset_sequence_count(dataset), 23);
    int drawn[3] = {0}, seen[3][11] = {{0}}, moved = 0;
    for (int64_t q = 0; q < 800; q++) {
        int token = first_token(dataset, q), source = token / 50;
        cr_assert_eq(shd_dataset_drawn(dataset, source, q), drawn[source]);
        int place = drawn[source]++ % sizes[source];
        moved += token - bases[source] != place;
        /* Once an epoch each. */
        cr_assert_eq(seen[source][token - bases[source]]++, (drawn[source] - 1) / sizes[source]);
    }
    cr_assert(drawn[0] == 100 && drawn[1] == 200 && drawn[2] == 500);
    cr_assert_gt(moved, 400);
    shd_dataset_close(dataset);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

Test(dataset, orders_sources_of_one_size_differently) {
    static const double weights[2] = {1, 1};
    write_sequences("a.txt", 0, 100);
    write_sequences("b.txt", 0, 100);
    shd_dataset *dataset = open_mixture(weights, 2, 1, true);
    int equal = 0;
    for (int64_t k = 0; k < 100; k++) equal += first_token(dataset, 2 * k) == first_token(dataset, 2 * k + 1);
    cr_assert_lt(equal, 10); /* one on average */
    shd_dataset_close(dataset);
}

Test(dataset, repeats_with_the_seed_and_differs_without) {
    static const double weights[2] = {3, 1};
    write_sequences("a.txt", 0, 100);
    write_sequences("b.txt", 100, 100);
    shd_dataset *one = open_mixture(weights, 2, 1, true), *again = open_mixture(weights, 2, 1, true);
    shd_dataset *two = open_mixture(weights, 2, 2, true), *file = open_mixture(weights, 2, 1, false);
    int differing = 0, taken = 0;
    for (int64_t q = 0; q < 400; q++) {
        cr_assert_eq(first_token(one, q), first_token(again, q));
        differing += first_token(one, q) != first_token(two, q);
        int token = first_token(file, q);
        if (token < 100) cr_assert_eq(token, taken++ % 100);
    }
    cr_assert_gt(differing, 350);
    cr_assert_eq(taken, 300);
    shd_dataset_close(one);
    shd_dataset_close(again);
    shd_dataset_close(two);
    shd_dataset_close(file);
}

Test(dataset, has_a_fingerprint_of_sources_weights_and_their_order) {
    static const double weights[][3] = {{1, 2}, {2, 4}, {2, 1}, {1, 2, 1}, {1}};
    static const int counts[] = {2, 2, 2, 3, 1};
    uint64_t prints[5];
    write_sequences("a.txt", 0, 10);
    write_sequences("b.txt", 20, 10);
    write_sequences("c.txt", 40, 10);
    for (int i = 0; i < 5; i++) {
        shd_dataset *dataset = open_mixture(weights[i], counts[i], 1, true);
        prints[i] = shd_dataset_fingerprint(dataset);
        if (counts[i] == 1) cr_assert_eq(prints[i], shd_dataset_source(dataset, 0).fingerprint);
        shd_dataset_close(dataset);
    }
    cr_assert_eq(prints[0], prints[1]); /* the same mixture */
    for (int i = 2; i < 5; i++)
        for (int j = 0; j < i; j++) cr_assert_neq(prints[i], prints[j]);
}

/* --- where sequences lie ------------------------------------------------------------------------------------------ */

/* `count` bytes above 0. */
static void write_bytes(const char *path, int count, uint32_t seed) {
    unsigned char bytes[512];
    for (int i = 0; i < count; i++)
        bytes[i] = (unsigned char)(1 + ((seed = seed * 1664525u + 1013904223u) >> 16) % 255);
    write_file(path, bytes, (size_t)count);
}

/* What is read of sequence q is what its file has at its place; a separator between texts is at none's. */
static void expect_at_place(shd_dataset *dataset, int64_t q, bool packed) {
    int32_t inputs[T], targets[T];
    int64_t counted;
    size_t length;
    const shd_example into = {.inputs = inputs, .targets = targets};
    cr_assert_eq(shd_dataset_read(dataset, q, &into, &counted), SHERD_OK, "%s", sherd_last_error());
    const shd_source_place place = shd_dataset_locate(dataset, q);
    char *bytes = read_file(place.file, &length);
    cr_assert(place.token >= 0 && place.token <= (int64_t)length, "%s, token %d", place.file, (int)place.token);
    if (place.token == (int64_t)length) cr_assert(packed && inputs[0] == 0);
    for (int64_t i = 0; i < T && place.token + i < (int64_t)length; i++)
        cr_assert_eq(inputs[i], (unsigned char)bytes[place.token + i], "q %d, %s, token %d", (int)q, place.file,
                     (int)place.token);
    if (!packed) cr_assert_eq(place.token, place.index * T);
    free(bytes);
}

static shd_dataset *open_files(const char **paths, int32_t count, int64_t separator) {
    const shd_job_data_source item = {.paths = paths, .path_count = count, .weight = 1};
    const shd_job_sources sources = {.items = &item, .count = 1};
    const shd_dataset_config config = {.key = "data.train",
                                       .sources = &sources,
                                       .vocab_size = 256,
                                       .context = T,
                                       .ignored_token = -1,
                                       .separator = separator,
                                       .seed = 3,
                                       .shuffle = separator < 0};
    shd_dataset *dataset = NULL;
    cr_assert_eq(shd_dataset_open(&config, &dataset), SHERD_OK, "%s", sherd_last_error());
    return dataset;
}

Test(dataset, tells_where_every_sequence_lies) {
    static const double weights[3] = {1, 2, 5};
    const char *paths[] = {"a.txt", "b.txt", "c.txt"};
    write_bytes("a.txt", 40, 1);
    write_bytes("b.txt", 77, 2);
    write_bytes("c.txt", 101, 3);
    shd_dataset *mixture = open_mixture(weights, 3, 1, true);
    for (int64_t q = 0; q < 300; q++) expect_at_place(mixture, q, false);
    shd_dataset_close(mixture);
    for (int packed = 0; packed <= 1; packed++) {
        shd_dataset *dataset = open_files(paths, 3, packed ? 0 : -1);
        int64_t count = shd_dataset_sequence_count(dataset);
        for (int64_t q = 0; q < 2 * count; q++) expect_at_place(dataset, q, packed);
        shd_dataset_close(dataset);
    }
}

/* By hand: 40 tokens are 13 sequences of 3, 77 are 25; number 15 is the third of the second file. */
Test(dataset, counts_sequences_in_their_own_file) {
    const char *paths[] = {"a.txt", "b.txt"};
    write_bytes("a.txt", 40, 1);
    write_bytes("b.txt", 77, 2);
    const shd_job_data_source item = {.paths = paths, .path_count = 2, .weight = 1};
    const shd_job_sources sources = {.items = &item, .count = 1};
    const shd_dataset_config config = {.key = "data.train",
                                       .sources = &sources,
                                       .vocab_size = 256,
                                       .context = T,
                                       .ignored_token = -1,
                                       .separator = -1};
    shd_dataset *dataset = NULL;
    cr_assert_eq(shd_dataset_open(&config, &dataset), SHERD_OK, "%s", sherd_last_error());
    const shd_source_place first = shd_dataset_locate(dataset, 12), third = shd_dataset_locate(dataset, 15),
                           again = shd_dataset_locate(dataset, 38 + 12);
    cr_assert(strcmp(first.file, "a.txt") == 0 && first.index == 12 && first.token == 36);
    cr_assert(strcmp(third.file, "b.txt") == 0 && third.index == 2 && third.token == 6);
    cr_assert(strcmp(again.file, "a.txt") == 0 && again.index == 12, "the next epoch");
    shd_dataset_close(dataset);
}
