/* Every allocation of io's objects fails once: an error, and nothing left behind. */
#include "io/dataset.h"
#include "io/metrics.h"
#include "io/token_pack.h"
#include "runtime/base/memory.h"
#include "tests/io/bad_jobs.h"
#include "tests/io/make_job.h"
#include "tests/io/npy_files.h"
#include "tests/support/failing_memory.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(io_memory, .init = enter_fresh_folder, .fini = leave_fresh_folder);

/* Makes something and gives it back. */
typedef sherd_status (*attempt)(void *user);

/* Lets allocation 0, 1, 2, … fail until the attempt succeeds; returns how many there are. */
static int64_t fail_each(attempt make, void *user) {
    int64_t before = failing_memory_live();
    for (int64_t failing = 0;; failing++) {
        failing_memory_after(failing);
        sherd_status status = make(user);
        failing_memory_after(INT64_MAX);
        cr_assert_eq(failing_memory_live(), before, "allocation %ld leaks", (long)failing);
        if (status == SHERD_OK) return failing;
        cr_assert_eq(status, SHERD_MEMORY, "allocation %ld: status %d, %s", (long)failing, status, sherd_last_error());
    }
}

static sherd_status load(void *user) {
    (void)user;
    const shd_job_setting settings[] = {{.text = "model.frozen=[\"a\", \"b\"]"},
                                        {.text = "data.train=[{path: [a, b*], weight: 2}, {path: c}]"},
                                        {.text = "optimizer.decay=[a, b]"},
                                        {.text = "optimizer.groups=[{match: a, lr_factor: 2}, {match: b}]"}};
    shd_job *job = NULL;
    sherd_status status = shd_job_load("job.yaml", settings, 4, &job);
    shd_job_destroy(job);
    return status;
}

static sherd_status resolve(void *job) {
    char *text = NULL;
    sherd_status status = shd_job_resolved_json(job, &text);
    shd_job_text_free(text);
    return status;
}

static sherd_status explain(void *job) {
    char *text = NULL;
    sherd_status status = shd_job_explain(job, &text);
    shd_job_text_free(text);
    return status;
}

static sherd_status open_dataset(void *user) {
    const char *one[] = {"tokens.txt", "t*.txt"}, *two[] = {"more.txt"};
    const shd_job_data_source items[] = {{.paths = one, .path_count = 2, .weight = 1},
                                         {.paths = two, .path_count = 1, .weight = 2}};
    const shd_job_sources sources = {.items = items, .count = 2};
    const shd_dataset_config config = {.key = "data.train",
                                       .sources = &sources,
                                       .vocab_size = 256,
                                       .context = 4,
                                       .ignored_token = -1,
                                       .separator = *(const int64_t *)user};
    shd_dataset *dataset = NULL;
    sherd_status status = shd_dataset_open(&config, &dataset);
    shd_dataset_close(dataset);
    return status;
}

/* Inputs and targets in one file, and in two. */
static sherd_status open_arrays(void *user) {
    (void)user;
    const char *both[] = {"both.safetensors"}, *inputs[] = {"x*.npy"}, *targets[] = {"y.npy"};
    const shd_job_data_source items[] = {
        {.paths = both, .path_count = 1, .weight = 1},
        {.paths = inputs, .path_count = 1, .target_paths = targets, .target_path_count = 1, .weight = 2}};
    const shd_job_sources sources = {.items = items, .count = 2};
    const shd_sample_shape shape = {
        .input_count = 2, .output_count = 3, .classes = true, .ignored_label = INT64_MIN, .input_scale = 1};
    const shd_dataset_config config = {.key = "data.train", .sources = &sources, .samples = &shape};
    shd_dataset *dataset = NULL;
    sherd_status status = shd_dataset_open(&config, &dataset);
    if (status == SHERD_OK) status = shd_dataset_sample(dataset);
    shd_dataset_close(dataset);
    return status;
}

static void ignore_shard(void *user, const char *path, int64_t token_count, uint64_t checksum) {
    (void)user, (void)path, (void)token_count, (void)checksum;
}

static sherd_status pack(void *user) {
    (void)user;
    const char *texts[] = {"tokens.txt"};
    const shd_token_pack packing = {
        .texts = texts, .text_count = 1, .to = "packed.bin", .separator = -1, .shard_tokens = 100};
    return shd_token_pack_run(&packing, ignore_shard, NULL);
}

static sherd_status open_metrics(void *user) {
    (void)user;
    shd_metrics *metrics = NULL;
    sherd_status status = shd_metrics_open("log", 0, &metrics);
    shd_metrics_close(metrics);
    return status;
}

Test(io_memory, is_given_back_whichever_allocation_of_a_job_fails) {
    write_text("job.yaml", good_job);
    cr_assert_gt(fail_each(load, NULL), 50);
    shd_job *job = NULL;
    cr_assert_eq(shd_job_load("job.yaml", NULL, 0, &job), SHERD_OK);
    cr_assert_geq(fail_each(resolve, job), 1);
    cr_assert_geq(fail_each(explain, job), 50);
    shd_job_destroy(job);
}

Test(io_memory, is_given_back_whichever_allocation_of_data_and_metrics_fails) {
    write_text("tokens.txt", "some text");
    write_text("more.txt", "some more text");
    for (int64_t separator = -1; separator < 2; separator += 2) cr_assert_gt(fail_each(open_dataset, &separator), 8);
    static const char header[] = "{\"inputs\":{\"dtype\":\"U8\",\"shape\":[1,2],\"data_offsets\":[0,2]},"
                                 "\"targets\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}";
    char both[8 + sizeof header + 3] = {(char)(sizeof header - 1)};
    memcpy(both + 8, header, sizeof header - 1);
    memcpy(both + 8 + sizeof header - 1, "ab\2", 3);
    write_file("both.safetensors", both, 8 + sizeof header - 1 + 3);
    write_npy("x1.npy", "|u1", "(2, 2)", "abcd", 4);
    write_npy("y.npy", "|u1", "(2,)", "\1\2", 2);
    cr_assert_gt(fail_each(open_arrays, NULL), 8);
    cr_assert_eq(fail_each(pack, NULL), 3);
    cr_assert_eq(fail_each(open_metrics, NULL), 1);
}
