#include "io/metrics.h"
#include "runtime/base/memory.h"
#include "tests/io/make_job.h"
#include "tests/support/file_limit.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(metrics, .init = enter_fresh_folder, .fini = leave_fresh_folder);

static const shd_metrics_row example = {.step = 0,
                                        .loss = 1.0 / 3,
                                        .grad_norm = 0.1,
                                        .lr = 1.0 / 3,
                                        .items = "tokens",
                                        .tokens = 4096,
                                        .tokens_seen = INT64_C(1) << 40,
                                        .data_ms = 0.12345678,
                                        .compute_ms = 101.98765432,
                                        .exposed_comm_ms = 3.3333333,
                                        .optimizer_ms = 7.7777777,
                                        .save_wait_ms = 0,
                                        .other_ms = 0.9999996,
                                        .peak_bytes = INT64_C(123456789012)};

static void write_rows(const char *dir, int64_t first, int64_t count) {
    shd_metrics *metrics = NULL;
    cr_assert_eq(shd_metrics_open(dir, first, &metrics), SHERD_OK, "%s", sherd_last_error());
    for (int64_t i = 0; i < count; i++) {
        shd_metrics_row row = example;
        row.step = first + i;
        cr_assert_eq(shd_metrics_write(metrics, &row), SHERD_OK);
    }
    shd_metrics_close(metrics);
}

/* The steps of the rows in `path`, strict JSON each; -1 behind the last. */
static void read_steps(const char *path, int64_t steps[64]) {
    size_t length;
    char *text = read_file(path, &length);
    int count = 0;
    for (char *line = text, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        cr_assert_not_null(end, "%s: the last line has no end", path);
        json_t *row = json_loadb(line, (size_t)(end - line), JSON_REJECT_DUPLICATES, NULL);
        cr_assert_not_null(row, "%s: no JSON: %.*s", path, (int)(end - line), line);
        steps[count++] = json_integer_value(json_object_get(row, "step"));
        json_decref(row);
    }
    steps[count] = -1;
    free(text);
}

static json_t *first_row(const char *path) {
    size_t length;
    char *text = read_file(path, &length);
    json_t *row = json_loads(text, JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK, NULL);
    cr_assert_not_null(row);
    free(text);
    return row;
}

static double real(const json_t *row, const char *key) { return json_number_value(json_object_get(row, key)); }

Test(metrics, write_rows_of_strict_json_with_every_figure) {
    write_rows("a/b/log", 0, 1);
    json_t *row = first_row("a/b/log/metrics.jsonl");
    static const char *const names[] = {"step",           "loss",
                                        "grad_norm",      "lr",
                                        "tokens",         "tokens_seen",
                                        "step_ms",        "data_ms",
                                        "compute_ms",     "exposed_comm_ms",
                                        "optimizer_ms",   "save_wait_ms",
                                        "other_ms",       "tokens_per_s",
                                        "peak_bytes",     "data_ready",
                                        "skipped",        "skipped_steps",
                                        "nonfinite_steps"};
    cr_assert_eq(json_object_size(row), sizeof names / sizeof *names);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        cr_expect_not_null(json_object_get(row, names[i]), "%s", names[i]);
    cr_assert_eq(real(row, "loss"), 1.0 / 3);
    cr_assert_eq(real(row, "grad_norm"), 0.1);
    cr_assert_eq(real(row, "lr"), 0.333333333);
    cr_assert_eq(json_integer_value(json_object_get(row, "tokens_seen")), INT64_C(1) << 40);
    cr_assert_eq(json_integer_value(json_object_get(row, "peak_bytes")), INT64_C(123456789012));
    cr_assert_float_eq(real(row, "tokens_per_s"), 4096 / 114.222e-3, 0.5);
    json_decref(row);
}

Test(metrics, of_classes_count_samples_and_have_accuracies) {
    int64_t step[2] = {3, 4}, seen[2] = {5, 6};
    shd_metrics *metrics = NULL;
    cr_assert_eq(shd_metrics_open("log", 0, &metrics), SHERD_OK);
    shd_metrics_row row = example;
    row.items = "samples";
    row.classified = row.validated = true;
    row.accuracy = 2.0 / 3;
    row.validation_accuracy = 1.0 / 7;
    row.source_count = 2;
    row.source_tokens = step;
    row.source_tokens_seen = seen;
    cr_assert_eq(shd_metrics_write(metrics, &row), SHERD_OK);
    shd_metrics_close(metrics);
    json_t *json = first_row("log/metrics.jsonl");
    static const char *const names[] = {"samples_per_s", "source_samples", "source_samples_seen", "validation_loss"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        cr_expect_not_null(json_object_get(json, names[i]), "%s", names[i]);
    cr_assert_eq(real(json, "samples"), 4096);
    cr_assert_eq(real(json, "samples_seen"), 0x1p40);
    cr_assert_eq(real(json, "accuracy"), 2.0 / 3);
    cr_assert_eq(real(json, "validation_accuracy"), 1.0 / 7);
    cr_assert_null(json_object_get(json, "tokens"));
    json_decref(json);
}

/* A row with everything that a row can have. */
static shd_metrics_row full_row(const shd_metrics_usage *usage) {
    shd_metrics_row row = example;
    row.has_param_norm = row.compared = true;
    row.param_norm = 2.0 / 3;
    row.rank_step_ms = (shd_metrics_spread){1.5, 2.5, 3.5};
    row.rank_wait_ms = (shd_metrics_spread){0.25, 0.5, 0.75};
    row.slowest_rank = 3;
    row.skipped_steps = 4;
    row.nonfinite_steps = 2;
    row.model_flop = 1e9;
    row.peak_flop_per_s = 1e12;
    row.usage = usage;
    return row;
}

static const char *const memory_names[] = {"parameters", "optimizer"};
static const int64_t memory_bytes[] = {INT64_C(1) << 33, 77};
static const shd_metrics_usage example_usage = {.cpu_cores = 1.5,
                                                .host_cpu_share = 0.75,
                                                .read_bytes_per_s = 0,
                                                .write_bytes_per_s = 12345,
                                                .network_in_bytes_per_s = 2,
                                                .network_out_bytes_per_s = NAN,
                                                .resident_bytes = 1 << 20,
                                                .memory_names = memory_names,
                                                .memory_bytes = memory_bytes,
                                                .memory_count = 2};

static json_t *write_and_read(const shd_metrics_row *row) {
    shd_metrics *metrics = NULL;
    cr_assert_eq(shd_metrics_open("log", row->step, &metrics), SHERD_OK);
    cr_assert_eq(shd_metrics_write(metrics, row), SHERD_OK);
    shd_metrics_close(metrics);
    return first_row("log/metrics.jsonl");
}

Test(metrics, tell_ranks_norms_and_use_of_the_machine) {
    const shd_metrics_row row = full_row(&example_usage);
    json_t *read = write_and_read(&row);
    const struct {
        const char *name;
        double value;
    } expected[] = {{"param_norm", 2.0 / 3},    {"rank_step_ms_min", 1.5},    {"rank_step_ms_median", 2.5},
                    {"rank_step_ms_max", 3.5},  {"rank_wait_ms_min", 0.25},   {"rank_wait_ms_median", 0.5},
                    {"rank_wait_ms_max", 0.75}, {"slowest_rank", 3},          {"skipped_steps", 4},
                    {"nonfinite_steps", 2},     {"cpu_cores", 1.5},           {"host_cpu_share", 0.75},
                    {"read_bytes_per_s", 0},    {"write_bytes_per_s", 12345}, {"network_in_bytes_per_s", 2},
                    {"resident_bytes", 1 << 20}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        cr_expect_not_null(json_object_get(read, expected[i].name), "%s", expected[i].name);
        cr_expect_eq(real(read, expected[i].name), expected[i].value, "%s", expected[i].name);
    }
    cr_assert_null(json_object_get(read, "network_out_bytes_per_s"), "the machine does not tell it");
    /* 10^9 operations in 114.222 ms, of at most 10^12 a second. */
    cr_assert_float_eq(real(read, "model_tflop_per_s"), 1e9 / 114.222e-3 / 1e12, 1e-8);
    cr_assert_float_eq(real(read, "mfu"), 1e9 / 114.222e-3 / 1e12, 1e-8);
    const json_t *memory = json_object_get(read, "memory_bytes");
    cr_assert_eq(json_object_size(memory), 2u);
    cr_assert_eq(json_integer_value(json_object_get(memory, "parameters")), INT64_C(1) << 33);
    json_decref(read);
}

Test(metrics, have_no_utilisation_of_a_machine_whose_peak_is_not_known) {
    shd_metrics_row row = full_row(NULL);
    row.peak_flop_per_s = 0;
    json_t *read = write_and_read(&row);
    cr_assert_null(json_object_get(read, "mfu"));
    cr_assert_not_null(json_object_get(read, "model_tflop_per_s"));
    cr_assert_null(json_object_get(read, "memory_bytes"));
    json_decref(read);
}

Test(metrics, of_every_figure_at_its_longest_are_found_whole_again) {
    const shd_metrics_usage usage = {
        -1.23456789e-300, -1.23456789e-300, -1.23456789e-300, -1.23456789e-300, -1.23456789e-300,
        -1.23456789e-300, INT64_MIN,        memory_names,     memory_bytes,     2};
    int64_t lists[64];
    for (int i = 0; i < 64; i++) lists[i] = INT64_MIN;
    shd_metrics_row row = full_row(&usage);
    row.items = "samples";
    row.loss = row.grad_norm = row.lr = row.param_norm = -1.2345678901234567e-300;
    row.loss_scale = row.accuracy = row.validation_loss = row.validation_accuracy = 1.2345678901234567e-300;
    row.classified = row.validated = true;
    row.tokens = row.tokens_seen = row.peak_bytes = row.skipped_steps = row.nonfinite_steps = INT64_MIN;
    row.source_count = 64;
    row.source_tokens = row.source_tokens_seen = lists;
    json_decref(write_and_read(&row));
    int64_t steps[64];
    write_rows("log", 1, 1);
    read_steps("log/metrics.jsonl", steps);
    cr_assert(steps[0] == 0 && steps[1] == 1 && steps[2] == -1);
}

Test(metrics, go_on_counting_where_the_last_row_that_stays_was) {
    shd_metrics *metrics = NULL;
    cr_assert_eq(shd_metrics_open("log", 0, &metrics), SHERD_OK);
    for (int64_t step = 0; step < 5; step++) {
        shd_metrics_row row = full_row(NULL);
        row.step = step;
        row.skipped_steps = 10 + step;
        row.nonfinite_steps = step / 2;
        cr_assert_eq(shd_metrics_write(metrics, &row), SHERD_OK);
    }
    shd_metrics_close(metrics);
    cr_assert_eq(shd_metrics_open("log", 4, &metrics), SHERD_OK);
    cr_assert_eq(shd_metrics_counted(metrics).skipped_steps, 13);
    cr_assert_eq(shd_metrics_counted(metrics).nonfinite_steps, 1);
    shd_metrics_close(metrics);
    cr_assert_eq(shd_metrics_open("log", 0, &metrics), SHERD_OK);
    cr_assert_eq(shd_metrics_counted(metrics).skipped_steps, 0);
    shd_metrics_close(metrics);
}

/* Nothing is read but the rows that go: what stays may have become anything meanwhile. */
Test(metrics, of_steps_that_are_taken_back_go_aside_without_a_look_at_the_others) {
    int64_t steps[64];
    shd_metrics *metrics = NULL;
    cr_assert_eq(shd_metrics_open("log", 0, &metrics), SHERD_OK);
    for (int64_t step = 0; step < 20; step++) {
        shd_metrics_row row = full_row(step % 3 ? &example_usage : NULL);
        row.step = step;
        row.skipped_steps = 10 + step;
        cr_assert_eq(shd_metrics_write(metrics, &row), SHERD_OK);
    }
    FILE *file = fopen("log/metrics.jsonl", "r+");
    fputs("[      ", file);
    fclose(file);
    cr_assert_eq(shd_metrics_go_back(metrics, 7), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_metrics_counted(metrics).skipped_steps, 16);
    shd_metrics_row row = example;
    row.step = 7;
    cr_assert_eq(shd_metrics_write(metrics, &row), SHERD_OK);
    file = fopen("log/metrics.jsonl", "r+");
    fputs("{\"step\"", file);
    fclose(file);
    read_steps("log/metrics.jsonl", steps);
    for (int64_t step = 0; step < 8; step++) cr_assert_eq(steps[step], step);
    cr_assert_eq(steps[8], -1);
    read_steps("log/metrics.jsonl.1", steps);
    for (int64_t step = 7; step < 20; step++) cr_assert_eq(steps[step - 7], step);
    cr_assert_eq(steps[13], -1);
    /* To the very start, and when there is nothing to take back. */
    cr_assert_eq(shd_metrics_go_back(metrics, 8), SHERD_OK);
    cr_assert_eq(access("log/metrics.jsonl.2", F_OK), -1);
    cr_assert_eq(shd_metrics_go_back(metrics, 0), SHERD_OK);
    cr_assert_eq(shd_metrics_go_back(metrics, 0), SHERD_OK);
    cr_assert_eq(shd_metrics_counted(metrics).skipped_steps, 0);
    shd_metrics_close(metrics);
    read_steps("log/metrics.jsonl", steps);
    cr_assert_eq(steps[0], -1);
    read_steps("log/metrics.jsonl.2", steps);
    cr_assert(steps[0] == 0 && steps[7] == 7 && steps[8] == -1);
}

/* What logrotate's copytruncate does, and then a row: what is there is what counts. */
Test(metrics, of_steps_that_are_taken_back_may_have_been_cut_off_meanwhile) {
    int64_t steps[64];
    shd_metrics *metrics = NULL;
    cr_assert_eq(shd_metrics_open("log", 0, &metrics), SHERD_OK);
    shd_metrics_row row = example;
    row.skipped_steps = 3;
    for (row.step = 0; row.step < 8; row.step++) cr_assert_eq(shd_metrics_write(metrics, &row), SHERD_OK);
    cr_assert_eq(truncate("log/metrics.jsonl", 0), 0);
    cr_assert_eq(shd_metrics_write(metrics, &row), SHERD_OK);
    cr_assert_eq(shd_metrics_go_back(metrics, 8), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_metrics_counted(metrics).skipped_steps, 0);
    cr_assert_eq(shd_metrics_write(metrics, &row), SHERD_OK);
    row.step++;
    cr_assert_eq(shd_metrics_write(metrics, &row), SHERD_OK);
    cr_assert_eq(shd_metrics_go_back(metrics, 9), SHERD_OK);
    cr_assert_eq(shd_metrics_counted(metrics).skipped_steps, 3);
    shd_metrics_close(metrics);
    read_steps("log/metrics.jsonl", steps);
    cr_assert(steps[0] == 8 && steps[1] == -1);
    read_steps("log/metrics.jsonl.1", steps);
    cr_assert(steps[0] == 8 && steps[1] == -1);
    read_steps("log/metrics.jsonl.2", steps);
    cr_assert(steps[0] == 9 && steps[1] == -1);
}

/* Rows as version 0.1.0 wrote them before there were counters. */
Test(metrics, of_older_versions_are_gone_on_from) {
    int64_t steps[64];
    mkdir("log", 0777);
    write_text("log/metrics.jsonl", "{\"step\":0,\"loss\":5.5,\"grad_norm\":1,\"lr\":0.1,\"tokens\":8}\n"
                                    "{\"step\":1,\"loss\":\"nan\",\"loss_scale\":2,\"skipped\":true}\n");
    write_rows("log", 2, 1);
    read_steps("log/metrics.jsonl", steps);
    cr_assert(steps[0] == 0 && steps[1] == 1 && steps[2] == 2 && steps[3] == -1);
}

Test(metrics, tell_the_loss_scale_and_skipped_steps_where_there_is_one) {
    shd_metrics *metrics = NULL;
    cr_assert_eq(shd_metrics_open("log", 0, &metrics), SHERD_OK);
    shd_metrics_row row = example;
    row.loss_scale = 32768;
    row.skipped = true;
    cr_assert_eq(shd_metrics_write(metrics, &row), SHERD_OK);
    shd_metrics_close(metrics);
    json_t *read = first_row("log/metrics.jsonl");
    cr_assert_eq(real(read, "loss_scale"), 32768);
    cr_assert(json_is_true(json_object_get(read, "skipped")));
    json_decref(read);
}

Test(metrics, list_the_sources_of_a_mixture_as_many_as_there_can_be) {
    enum { SOURCES = 64 };
    int64_t step[SOURCES], seen[SOURCES];
    for (int i = 0; i < SOURCES; i++) step[i] = INT64_MAX - i, seen[i] = INT64_MAX - 100 - i;
    shd_metrics *metrics = NULL;
    cr_assert_eq(shd_metrics_open("log", 0, &metrics), SHERD_OK);
    shd_metrics_row row = example;
    row.data_ready = 2;
    row.source_count = SOURCES;
    row.source_tokens = step;
    row.source_tokens_seen = seen;
    cr_assert_eq(shd_metrics_write(metrics, &row), SHERD_OK);
    shd_metrics_close(metrics);
    /* Opened again, the row is found to be whole. */
    cr_assert_eq(shd_metrics_open("log", 1, &metrics), SHERD_OK);
    shd_metrics_close(metrics);
    json_t *json = first_row("log/metrics.jsonl");
    cr_assert_eq(json_integer_value(json_object_get(json, "data_ready")), 2);
    for (size_t i = 0; i < SOURCES; i++) {
        cr_assert_eq(json_integer_value(json_array_get(json_object_get(json, "source_tokens"), i)), step[i]);
        cr_assert_eq(json_integer_value(json_array_get(json_object_get(json, "source_tokens_seen"), i)), seen[i]);
    }
    cr_assert_eq(json_array_size(json_object_get(json, "source_tokens")), SOURCES);
    json_decref(json);
}

Test(metrics, have_a_step_time_that_is_the_sum_of_its_parts) {
    static const double scales[] = {1e-6, 1, 37.77, 1e4, 1e7, 3e9};
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
        shd_metrics *metrics = NULL;
        shd_metrics_row row = example;
        row.data_ms *= scales[s], row.compute_ms *= scales[s], row.exposed_comm_ms *= scales[s];
        row.optimizer_ms *= scales[s], row.other_ms *= scales[s], row.save_wait_ms = scales[s] / 3;
        cr_assert_eq(shd_metrics_open(".", 0, &metrics), SHERD_OK);
        cr_assert_eq(shd_metrics_write(metrics, &row), SHERD_OK);
        shd_metrics_close(metrics);
        json_t *read = first_row("metrics.jsonl");
        double sum = real(read, "data_ms") + real(read, "compute_ms") + real(read, "exposed_comm_ms") +
                     real(read, "optimizer_ms") + real(read, "save_wait_ms") + real(read, "other_ms");
        cr_expect(fabs(sum - real(read, "step_ms")) <= 1e-12 * sum, "%.17g and %.17g", sum, real(read, "step_ms"));
        cr_expect_eq(real(read, "step_ms"), shd_metrics_step_ms(&row));
        json_decref(read);
    }
}

Test(metrics, write_numbers_that_are_not_finite_as_texts) {
    shd_metrics *metrics = NULL;
    shd_metrics_row row = example;
    row.loss = NAN, row.grad_norm = INFINITY, row.lr = -INFINITY;
    row.validated = true, row.validation_loss = 2.5;
    cr_assert_eq(shd_metrics_open(".", 0, &metrics), SHERD_OK);
    cr_assert_eq(shd_metrics_write(metrics, &row), SHERD_OK);
    shd_metrics_close(metrics);
    json_t *read = first_row("metrics.jsonl");
    cr_assert_str_eq(json_string_value(json_object_get(read, "loss")), "nan");
    cr_assert_str_eq(json_string_value(json_object_get(read, "grad_norm")), "inf");
    cr_assert_str_eq(json_string_value(json_object_get(read, "lr")), "-inf");
    cr_assert_eq(real(read, "validation_loss"), 2.5);
    json_decref(read);
}

Test(metrics, move_rows_of_an_abandoned_run_aside) {
    int64_t steps[64];
    write_rows("log", 0, 6);
    write_rows("log", 4, 3);
    read_steps("log/metrics.jsonl", steps);
    for (int i = 0; i < 7; i++) cr_assert_eq(steps[i], i);
    cr_assert_eq(steps[7], -1);
    read_steps("log/metrics.jsonl.1", steps);
    cr_assert(steps[0] == 4 && steps[1] == 5 && steps[2] == -1);
    write_rows("log", 7, 1); /* nothing to move */
    cr_assert_neq(access("log/metrics.jsonl.2", F_OK), 0);
    write_rows("log", 0, 1);
    read_steps("log/metrics.jsonl", steps);
    cr_assert(steps[0] == 0 && steps[1] == -1);
    read_steps("log/metrics.jsonl.2", steps);
    for (int i = 0; i < 8; i++) cr_assert_eq(steps[i], i);
}

Test(metrics, drop_a_torn_last_line) {
    int64_t steps[64];
    write_rows(".", 0, 3);
    size_t length;
    char *text = read_file("metrics.jsonl", &length);
    for (size_t cut = 1; cut < 60; cut += 7) {
        write_file("metrics.jsonl", text, length - cut);
        write_rows(".", 3, 1);
        read_steps("metrics.jsonl", steps);
        cr_assert(steps[0] == 0 && steps[1] == 1 && steps[2] == 3 && steps[3] == -1);
        cr_assert_neq(access("metrics.jsonl.1", F_OK), 0);
    }
    free(text);
}

Test(metrics, move_what_follows_a_damaged_line_aside) {
    int64_t steps[64];
    write_rows(".", 0, 2);
    FILE *file = fopen("metrics.jsonl", "a");
    fprintf(file, "no row\n");
    fclose(file);
    write_rows(".", 2, 2);
    read_steps("metrics.jsonl", steps);
    for (int i = 0; i < 4; i++) cr_assert_eq(steps[i], i);
    size_t length;
    char *aside = read_file("metrics.jsonl.1", &length);
    cr_assert_str_eq(aside, "no row\n");
    free(aside);
}

/* As a file system may leave them where a row was, when the power went. */
Test(metrics, move_lines_with_zeros_aside) {
    static const char row[] = "{\"step\":0}\n";
    static const struct {
        const char *tail;
        size_t bytes, moved;
    } rows[] = {
        {"\0\0\0\n", 4, 4},
        {"\0{\"step\":1}\n", 12, 12},
        {"{\"step\":1}\0\n", 12, 12},
        {"{\"step\":1\0}\n\0\0", 14, 12},
        {"{\"step\":1}\n\0\0", 13, 0},
        {"\0\0\n{\"step\":1}\n", 14, 14},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char content[64];
        size_t begin = sizeof row - 1, kept, moved;
        memcpy(content, row, begin);
        memcpy(content + begin, rows[i].tail, rows[i].bytes);
        write_file("metrics.jsonl", content, begin + rows[i].bytes);
        unlink("metrics.jsonl.1");
        shd_metrics *metrics = NULL;
        cr_assert_eq(shd_metrics_open(".", 5, &metrics), SHERD_OK);
        shd_metrics_close(metrics);
        free(read_file("metrics.jsonl", &kept));
        cr_expect_eq(kept, begin + (rows[i].moved ? 0 : begin), "row %zu: %zu bytes kept", i, kept);
        if (rows[i].moved == 0) continue;
        char *aside = read_file("metrics.jsonl.1", &moved);
        cr_expect(moved == rows[i].moved && memcmp(aside, rows[i].tail, moved) == 0, "row %zu: %zu moved", i, moved);
        free(aside);
    }
}

Test(metrics, leave_the_file_whole_when_the_disk_is_full) {
    int64_t steps[64];
    write_rows(".", 0, 2);
    shd_metrics *metrics = NULL;
    cr_assert_eq(shd_metrics_open(".", 2, &metrics), SHERD_OK);
    size_t length;
    free(read_file("metrics.jsonl", &length));
    limit_files((int)length + 100);
    sherd_status status = shd_metrics_write(metrics, &example);
    limit_files(-1);
    cr_assert_eq(status, SHERD_IO);
    shd_metrics_close(metrics);
    read_steps("metrics.jsonl", steps);
    cr_assert(steps[0] == 0 && steps[1] == 1 && steps[2] == -1);
}

Test(metrics, of_a_step_that_is_taken_back_need_no_room) {
    int64_t steps[64];
    write_rows(".", 0, 2);
    shd_metrics *metrics = NULL;
    cr_assert_eq(shd_metrics_open(".", 2, &metrics), SHERD_OK);
    size_t length;
    free(read_file("metrics.jsonl", &length));
    shd_metrics_row row = example;
    row.step = 2;
    limit_files((int)length + 100);
    sherd_status written = shd_metrics_write(metrics, &row), taken = shd_metrics_go_back(metrics, 2);
    limit_files(-1);
    cr_assert_eq(written, SHERD_IO);
    cr_assert_eq(taken, SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(shd_metrics_flush(metrics), SHERD_OK);
    cr_assert_eq(access("metrics.jsonl.1", F_OK), -1);
    read_steps("metrics.jsonl", steps);
    cr_assert(steps[0] == 0 && steps[1] == 1 && steps[2] == -1);
    shd_metrics_close(metrics);
}

Test(metrics, write_without_allocating) {
    shd_metrics *metrics = NULL;
    cr_assert_eq(shd_metrics_open(".", 0, &metrics), SHERD_OK);
    int64_t calls = shd_memory_calls();
    for (int i = 0; i < 10; i++) cr_assert_eq(shd_metrics_write(metrics, &example), SHERD_OK);
    cr_assert_eq(shd_memory_calls(), calls);
    shd_metrics_close(metrics);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

Test(metrics, say_which_folder_they_cannot_have) {
    write_text("file", "");
    shd_metrics *metrics = NULL;
    cr_assert_eq(shd_metrics_open("file/log", 0, &metrics), SHERD_IO);
    cr_assert_str_eq(sherd_last_error(), "cannot look at the folder file/log: Not a directory");
}
