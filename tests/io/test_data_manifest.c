#include "io/data_manifest.h"
#include "tests/io/make_job.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <xxhash.h>

TestSuite(data_manifest, .init = enter_fresh_folder, .fini = leave_fresh_folder);

static const char job_text[] =
    "name: tiny\n"
    "model: {family: gpt2, vocab_size: 256, context: 8, d_model: 8, n_layer: 1, n_head: 1}\n"
    "data: {train: [{path: b.txt, weight: 1}, {path: 'a*.txt', weight: 2}], validation: v.txt}\n"
    "train: {steps: 1, global_batch: 1, micro_batch: 1}\n"
    "optimizer: {lr: 1.0e-3}\n";

/* Reads of files come here first (the linker's --wrap), where storage may be slow. */
enum { NAP_MS = 50, BUDGET_MS = 500 };
static bool slow;
static int read_count;
sherd_status __real_shd_file_read(int descriptor, const char *path, int64_t offset, void *out, int64_t bytes);
sherd_status __wrap_shd_file_read(int descriptor, const char *path, int64_t offset, void *out, int64_t bytes);
sherd_status __wrap_shd_file_read(int descriptor, const char *path, int64_t offset, void *out, int64_t bytes) {
    const struct timespec nap = {.tv_nsec = NAP_MS * 1000 * 1000};
    read_count++;
    if (slow) nanosleep(&nap, NULL);
    return __real_shd_file_read(descriptor, path, offset, out, bytes);
}

static unsigned char *write_random(const char *path, size_t bytes) {
    unsigned char *content = malloc(bytes + 1);
    uint32_t state = (uint32_t)bytes + 7;
    for (size_t i = 0; i < bytes; i++) content[i] = (unsigned char)((state = state * 1664525u + 1013904223u) >> 24);
    write_file(path, content, bytes);
    return content;
}

static json_t *make(const shd_manifest_limits *limits, sherd_status expected) {
    static const char *const none[3] = {0};
    shd_job *job;
    json_t *list = NULL;
    cr_assert_eq(load_job(job_text, none, &job), SHERD_OK, "%s", sherd_last_error());
    sherd_status status = shd_data_manifest(job, limits, &list);
    cr_assert_eq(status, expected, "%s", sherd_last_error());
    shd_job_destroy(job);
    return list;
}

static const char *text_at(const json_t *list, size_t i, const char *key) {
    return json_string_value(json_object_get(json_array_get(list, i), key));
}

static const char *hex(uint64_t hash) {
    static char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
    return text;
}

Test(data_manifest, lists_every_file_in_the_jobs_order_with_its_sum) {
    shd_manifest_limits limits = SHD_MANIFEST_LIMITS;
    limits.budget_ms = INFINITY;
    static const char *const names[] = {"b.txt", "a1.txt", "a2.txt", "v.txt"};
    static const char *const keys[] = {"data.train", "data.train", "data.train", "data.validation"};
    static const int sources[] = {0, 1, 1, 0};
    static const size_t sizes[] = {100000, 17, 16384, 0};
    unsigned char *contents[4];
    for (int i = 0; i < 4; i++) contents[i] = write_random(names[i], sizes[i]);
    json_t *list = make(&limits, SHERD_OK);
    cr_assert_eq(json_array_size(list), 4u);
    for (size_t i = 0; i < 4; i++) {
        const json_t *entry = json_array_get(list, i);
        struct stat about;
        stat(names[i], &about);
        const char *slash = strrchr(text_at(list, i, "path"), '/');
        cr_expect_str_eq(slash + 1, names[i]);
        cr_expect_eq(text_at(list, i, "path")[0], '/');
        cr_expect_str_eq(text_at(list, i, "key"), keys[i]);
        cr_expect_eq(json_integer_value(json_object_get(entry, "source")), sources[i]);
        cr_expect_eq(json_integer_value(json_object_get(entry, "bytes")), (json_int_t)sizes[i]);
        cr_expect_eq(json_integer_value(json_object_get(entry, "modified")), about.st_mtim.tv_sec);
        cr_expect_str_eq(text_at(list, i, "xxh3"), hex(XXH3_64bits(contents[i], sizes[i])));
        cr_expect_null(text_at(list, i, "xxh3_sampled"));
        free(contents[i]);
    }
    json_decref(list);
}

/* Pieces as the header defines them, taken from the content in memory. */
static uint64_t sampled(const unsigned char *content, int64_t bytes) {
    unsigned char *all = malloc((size_t)SHD_MANIFEST_PIECES * SHD_MANIFEST_PIECE_BYTES);
    for (int64_t i = 0; i < SHD_MANIFEST_PIECES; i++)
        memcpy(all + i * SHD_MANIFEST_PIECE_BYTES,
               content + i * (bytes - SHD_MANIFEST_PIECE_BYTES) / (SHD_MANIFEST_PIECES - 1), SHD_MANIFEST_PIECE_BYTES);
    uint64_t hash = XXH3_64bits(all, (size_t)SHD_MANIFEST_PIECES * SHD_MANIFEST_PIECE_BYTES);
    free(all);
    return hash;
}

Test(data_manifest, samples_what_is_long_and_sums_nothing_beyond_its_budget) {
    /* b.txt is too long to be summed in full; its pieces take 1 MiB of the budget, a1.txt the rest but 1000 bytes. */
    const int64_t long_bytes = 3000001;
    const shd_manifest_limits limits = {
        .whole_bytes = 2 << 20, .budget_bytes = (1 << 20) + 1500, .budget_ms = INFINITY};
    unsigned char *content = write_random("b.txt", (size_t)long_bytes);
    free(write_random("a1.txt", 500));
    free(write_random("a2.txt", 1001));
    free(write_random("v.txt", 1000));
    json_t *list = make(&limits, SHERD_OK);
    cr_assert_str_eq(text_at(list, 0, "xxh3_sampled"), hex(sampled(content, long_bytes)));
    cr_assert_null(text_at(list, 0, "xxh3"));
    cr_assert_not_null(text_at(list, 1, "xxh3"));
    cr_assert_null(text_at(list, 2, "xxh3"));
    cr_assert_null(text_at(list, 2, "xxh3_sampled"));
    cr_assert_not_null(text_at(list, 3, "xxh3"));
    json_decref(list);
    /* The last byte is in the last piece. */
    content[long_bytes - 1] ^= 1;
    write_file("b.txt", content, (size_t)long_bytes);
    list = make(&limits, SHERD_OK);
    cr_assert_str_eq(text_at(list, 0, "xxh3_sampled"), hex(sampled(content, long_bytes)));
    json_decref(list);
    free(content);
}

/* Each read takes at least a nap, so that the time allows so many of them and no more; all is listed nevertheless. */
static void check_slow(int64_t whole_bytes) {
    const shd_manifest_limits limits = {.whole_bytes = whole_bytes, .budget_bytes = INT64_MAX, .budget_ms = BUDGET_MS};
    read_count = 0;
    json_t *list = make(&limits, SHERD_OK);
    cr_assert_geq(read_count, 1);
    cr_assert_leq(read_count, BUDGET_MS / NAP_MS);
    cr_assert_eq(json_array_size(list), 4u);
    for (size_t i = 0; i < 4; i++) {
        cr_assert_gt(json_integer_value(json_object_get(json_array_get(list, i), "bytes")), 0);
        cr_assert(!text_at(list, i, "xxh3") && !text_at(list, i, "xxh3_sampled"), "file %zu", i);
    }
    json_decref(list);
}

Test(data_manifest, sums_nothing_that_slow_storage_does_not_give_in_time) {
    free(write_random("b.txt", 3000001));
    free(write_random("a1.txt", 500));
    free(write_random("a2.txt", 16385));
    free(write_random("v.txt", 1));
    slow = true;
    check_slow(INT64_MAX);
    check_slow(1 << 20);
}

Test(data_manifest, a_path_that_is_no_text_is_told_as_far_as_it_is_one) {
    const shd_manifest_limits limits = SHD_MANIFEST_LIMITS;
    free(write_random("b.txt", 10));
    free(write_random("a\xff\xc3\xa9\xc3.txt", 10));
    free(write_random("v.txt", 10));
    json_t *list = make(&limits, SHERD_OK);
    const char *path = text_at(list, 1, "path");
    cr_assert(path && !strcmp(strrchr(path, '/'), "/a?\xc3\xa9?.txt"), "%s", path);
    json_decref(list);
}

Test(data_manifest, names_a_file_that_is_gone) {
    const shd_manifest_limits limits = SHD_MANIFEST_LIMITS;
    write_text("a1.txt", "text");
    write_text("v.txt", "text");
    make(&limits, SHERD_IO);
    cr_assert_not_null(strstr(sherd_last_error(), "b.txt"), "%s", sherd_last_error());
}
