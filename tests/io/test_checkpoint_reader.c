#include "checkpoint_append.h"
#include "io/checkpoint_block.h"
#include "io/checkpoint_folder.h"
#include "runtime/base/arith.h"
#include "runtime/base/dtype.h"
#include "tests/io/files.h"
#include "tests/io/stored_job.h"

#include <criterion/criterion.h>
#include <sherd/status.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { GROUP = SHD_CODE_BLOCK_COUNT, WANTED_MAX = 64 };

static shd_reader *open_reader(const stored_job *job) {
    shd_reader *reader = NULL;
    shd_checkpoint_manifest manifest = stored_manifest(job);
    cr_assert_eq(shd_reader_open(job->path, &manifest, &reader), SHERD_OK, "%s", sherd_last_error());
    return reader;
}

static shd_checkpoint_slice want(int tensor, int state, int64_t first, int64_t count, sherd_dtype dtype) {
    int64_t bytes = shd_span_bytes(dtype, count);
    char *values = take((size_t)bytes + 2);
    memset(values, 0xaa, (size_t)bytes + 2);
    return (shd_checkpoint_slice){stored_tensors[tensor].name, stored_state(state), first, count, values, dtype};
}

/* Whether a slice has the job's values, and nothing was written behind them. */
static void expect_values(const stored_job *job, int tensor, int state, const shd_checkpoint_slice *slice) {
    void *mark = mark_taken();
    int64_t bytes = shd_span_bytes(slice->dtype, slice->count);
    const void *expected = stored_values(job, tensor, state, slice->first, slice->count, slice->dtype);
    cr_assert_eq(memcmp(slice->values, expected, (size_t)bytes), 0, "%s of %s from %lld on, %lld in %s", slice->state,
                 slice->tensor, (long long)slice->first, (long long)slice->count, shd_dtype_text(slice->dtype));
    cr_assert_eq(((unsigned char *)slice->values)[bytes], 0xaa);
    release_taken(mark);
}

typedef struct wanted_list {
    shd_checkpoint_slice slices[WANTED_MAX];
    int tensors[WANTED_MAX], states[WANTED_MAX];
    int count;
} wanted_list;

static void add(wanted_list *list, int tensor, int state, int64_t first, int64_t count, sherd_dtype dtype) {
    cr_assert_lt(list->count, WANTED_MAX);
    list->tensors[list->count] = tensor;
    list->states[list->count] = state;
    list->slices[list->count++] = want(tensor, state, first, count, dtype);
}

static void expect_read(const stored_job *job, const wanted_list *list, int32_t threads) {
    shd_reader *reader = open_reader(job);
    shd_reader_config config = stored_config(threads);
    cr_assert_eq(shd_reader_read(reader, list->slices, list->count, &config), SHERD_OK, "%s", sherd_last_error());
    for (int i = 0; i < list->count; i++)
        if (list->slices[i].values) expect_values(job, list->tensors[i], list->states[i], &list->slices[i]);
    cr_assert(stored_config_is_whole(&config));
    shd_reader_destroy(reader);
}

static void clean(const stored_job *job) {
    remove_folder(job->path);
    remove_folder(job->parent);
}

static void ignore(void *user, const shd_damage *damage, int64_t done_bytes, int64_t total_bytes) {
    (void)user, (void)damage, (void)done_bytes, (void)total_bytes;
}

/* All of every tensor, as `ranks` readers cut it, in the states' dtype. */
static void add_layout(wanted_list *list, const stored_job *job, int32_t ranks, int32_t rank) {
    for (int tensor = 0; tensor < STORED_TENSORS; tensor++)
        for (int state = 0; state <= STORED_STATES; state++) {
            int64_t count = stored_count(job, tensor), share = shd_round_up(shd_div_ceil(count, ranks), GROUP);
            int64_t first = shd_min(share * rank, count), end = shd_min(first + share, count);
            if (state > 0 && stored_tensors[tensor].frozen) continue;
            add(list, tensor, state, first, end - first, state ? job->state_dtype : SHERD_FP32);
        }
}

Test(checkpoint_reader, gives_any_layout_what_any_other_stored) {
    static const int32_t worlds[] = {1, 2, 3, 8};
    for (size_t w = 0; w < 4; w++)
        for (int compression = 0; compression <= 1; compression++) {
            void *mark = mark_taken();
            stored_job job = {
                .ranks = worlds[w], .compression = compression, .state_dtype = compression ? SHERD_INT8 : SHERD_FP32};
            store_job(&job);
            for (size_t r = 0; r < 4; r++)
                for (int32_t rank = 0; rank < worlds[r]; rank++) {
                    wanted_list list = {.count = 0};
                    add_layout(&list, &job, worlds[r], rank);
                    expect_read(&job, &list, 1 + rank % 3);
                }
            clean(&job);
            release_taken(mark);
        }
}

Test(checkpoint_reader, reads_tensors_of_several_blocks_with_several_threads, .timeout = 60) {
    stored_job job = {.ranks = 2, .compression = 1, .state_dtype = SHERD_FP32, .large = true};
    store_job(&job);
    int64_t count = stored_count(&job, 0);
    for (int32_t threads = 1; threads <= 4; threads *= 2) {
        void *mark = mark_taken();
        wanted_list list = {.count = 0};
        add(&list, 0, 0, 0, count, SHERD_FP32); /* whole blocks, in place */
        add(&list, 0, 1, 5, count - 9, SHERD_FP32);
        add(&list, 0, 0, 77, 3, SHERD_FP32); /* of a block that others want too */
        add(&list, 0, 0, count / 2 - 50, 1000, SHERD_FP32);
        add(&list, 0, 0, 0, count, SHERD_BF16);
        add(&list, 0, 0, 100, 1 << 20, SHERD_FP16);
        add(&list, 0, 1, 256, count - 256, SHERD_INT8);
        add(&list, 0, 1, 512, 1 << 20, SHERD_INT8);
        add(&list, 1, 0, 0, 0, SHERD_FP32);
        add(&list, 1, 0, 1, 5, SHERD_FP32);
        list.slices[list.count - 1].values = NULL;
        expect_read(&job, &list, threads);
        list.slices[0].values = (char *)list.slices[0].values; /* again, through the page cache */
        shd_reader *reader = open_reader(&job);
        shd_reader_config config = stored_config(threads);
        config.cached = true;
        memset(list.slices[0].values, 0, (size_t)count * 4);
        cr_assert_eq(shd_reader_read(reader, list.slices, 1, &config), SHERD_OK);
        expect_values(&job, 0, 0, &list.slices[0]);
        shd_reader_destroy(reader);
        release_taken(mark);
    }
    clean(&job);
}

Test(checkpoint_reader, turns_every_type_into_every_other) {
    for (int codes = 0; codes <= 1; codes++) {
        stored_job job = {.ranks = 3, .compression = 1, .state_dtype = codes ? SHERD_INT8 : SHERD_FP32, .large = codes};
        store_job(&job);
        wanted_list list = {.count = 0};
        for (sherd_dtype dtype = SHERD_FP32; dtype <= SHERD_FP16; dtype++) {
            add(&list, 4, 0, 3, 515, dtype); /* stored as bf16 */
            add(&list, 1, 0, 1, 699, dtype);
        }
        static const int64_t firsts[] = {0, 1, 255, 256, 257, 700};
        for (size_t i = 0; i < sizeof firsts / sizeof *firsts; i++)
            add(&list, 0, 1, firsts[i], stored_count(&job, 0) - firsts[i] - (int64_t)i, SHERD_FP32);
        add(&list, 0, 1, 1024, 1024, SHERD_INT8);
        add(&list, 0, 1, 0, stored_count(&job, 0), SHERD_INT8);
        add(&list, 2, 1, 0, 1, SHERD_INT8);
        expect_read(&job, &list, 2);
        clean(&job);
    }
}

Test(checkpoint_reader, never_meets_blocks_of_codes_that_end_within_one) {
    static const sherd_tensor tensor = {.name = "w", .dim_count = 1, .shape = {600}};
    char *parent = make_folder(), partial[SHD_PATH_BYTES];
    float *values = take(600 * sizeof *values);
    void *codes = take(3 * SHD_CODE_BLOCK_BYTES);
    memset(values, 0, 600 * sizeof *values), memset(codes, 0, 3 * SHD_CODE_BLOCK_BYTES);
    shd_appender *appender = NULL;
    int entered;
    shd_checkpoint_manifest manifest = {.step = 3,
                                        .world_size = 1,
                                        .replicas = 1,
                                        .optimizer = "lion",
                                        .state_count = 1,
                                        .state_names = {"exp_avg"},
                                        .state_dtype = SHERD_INT8,
                                        .tensor_count = 1,
                                        .tensors = &tensor};
    cr_assert_eq(shd_checkpoint_partial_path(partial, parent, 3, 1), SHERD_OK);
    cr_assert_eq(shd_checkpoint_partial_enter(partial, &entered), SHERD_OK);
    cr_assert_eq(shd_appender_create(partial, 3, 0, 0, &appender), SHERD_OK);
    cr_assert_eq(shd_appender_add(appender, "w", "parameter", 0, 600, SHERD_FP32, values), SHERD_OK);
    cr_assert_eq(shd_appender_add(appender, "w", "exp_avg", 0, 300, SHERD_INT8, codes), SHERD_OK);
    cr_assert_eq(shd_appender_add(appender, "w", "exp_avg", 256, 344, SHERD_INT8, codes), SHERD_OK);
    cr_assert_eq(shd_appender_finish(appender), SHERD_OK);
    shd_appender_destroy(appender);
    cr_assert_eq(shd_checkpoint_commit(parent, 1, &manifest), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(), "up to element 300, within a block of codes"), "%s", sherd_last_error());
    shd_file_close(entered);
    remove_folder(partial);
    remove_folder(parent);
}

Test(checkpoint_reader, needs_few_descriptors_however_many_ranks_wrote, .timeout = 60) {
    struct rlimit few = {.rlim_cur = 40, .rlim_max = 40};
    stored_job job = {.ranks = 300, .state_dtype = SHERD_FP32};
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    store_job(&job);
    wanted_list list = {.count = 0};
    add(&list, 0, 0, 0, stored_count(&job, 0), SHERD_FP32);
    add(&list, 0, 1, 300, 2000, SHERD_BF16);
    expect_read(&job, &list, 2);
    int64_t damaged = -1;
    cr_assert_eq(shd_checkpoint_verify(job.path, ignore, NULL, &damaged), SHERD_OK);
    cr_assert_eq(damaged, 0);
    clean(&job);
}

static void expect_refused(const stored_job *job, const shd_checkpoint_slice *wanted, const shd_reader_config *config,
                           const char *cause) {
    shd_reader *reader = open_reader(job);
    cr_assert_eq(shd_reader_read(reader, wanted, 1, config), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(), cause), "%s", sherd_last_error());
    shd_reader_destroy(reader);
}

Test(checkpoint_reader, refuses_what_cannot_be_had) {
    stored_job job = {.ranks = 2, .state_dtype = SHERD_INT8}, plain = {.ranks = 2, .state_dtype = SHERD_FP32};
    store_job(&job);
    store_job(&plain);
    shd_reader_config config = stored_config(2), without = config;
    without.convert.run = NULL;
    shd_checkpoint_slice codes = want(1, 1, 0, 512, SHERD_INT8), floats = want(1, 1, 0, 512, SHERD_FP32),
                         half = want(1, 1, 0, 512, SHERD_BF16), parameter = want(1, 0, 0, 512, SHERD_INT8),
                         unknown = want(1, 0, 0, 5, SHERD_FP32), frozen = want(4, 1, 0, 5, SHERD_FP32),
                         behind = want(1, 0, 690, 11, SHERD_FP32);
    unknown.tensor = "wpe";
    expect_refused(&job, &floats, &without, "stored as int8, and cannot be had as fp32");
    expect_refused(&plain, &codes, &without, "stored as fp32, and cannot be had as int8");
    expect_refused(&job, &half, &config, "stored as int8, and cannot be had as bf16");
    cr_assert_eq(config.convert.run(NULL, "parameter", SHERD_FP32, NULL, SHERD_INT8, 0, NULL), SHERD_INTERNAL);
    expect_refused(&job, &unknown, &config, "no file holds elements 0 to 5 of parameter of tensor wpe");
    expect_refused(&job, &frozen, &config, "no file holds elements 0 to 5 of exp_avg of tensor h.bias");
    expect_refused(&job, &behind, &config, "no file holds elements 700 to 701 of parameter of tensor h.weight");
    cr_assert(strstr(sherd_last_error(), job.path), "%s", sherd_last_error());
    shd_reader *reader = open_reader(&job);
    cr_assert_eq(shd_reader_read(reader, &parameter, 1, &config), SHERD_INTERNAL, "what convert says is passed on");
    shd_reader_destroy(reader);
    clean(&job);
    clean(&plain);
}

Test(checkpoint_reader, refuses_a_damaged_block_and_reads_all_others) {
    stored_job job = {.ranks = 2, .state_dtype = SHERD_FP32, .large = true};
    store_job(&job);
    /* Rank 1's file begins with h.bias, then h.weight and wte.weight. */
    flip_stored(&job, "rank-00001.bin", 2 * 4096 + 17, 2);
    for (int32_t threads = 1; threads <= 4; threads++) {
        shd_reader_config config = stored_config(threads);
        shd_checkpoint_slice bad = want(1, 0, 0, 700, SHERD_FP32);
        expect_refused(&job, &bad, &config,
                       "rank-00001.bin is damaged: parameter of tensor h.weight, elements 353 to 700");
        wanted_list list = {.count = 0};
        add(&list, 1, 0, 0, 353, SHERD_FP32);
        add(&list, 0, 0, 0, stored_count(&job, 0), SHERD_FP32);
        add(&list, 4, 0, 0, 523, SHERD_FP32);
        expect_read(&job, &list, threads);
    }
    clean(&job);
}

Test(checkpoint_reader, refuses_to_open_what_the_manifest_was_not_made_for) {
    stored_job job = {.ranks = 2, .state_dtype = SHERD_FP32},
               other = {.ranks = 2, .state_dtype = SHERD_FP32, .compression = 1};
    store_job(&job);
    store_job(&other);
    shd_checkpoint_manifest manifest = stored_manifest(&job);
    shd_reader *reader = NULL;
    char *mine = path_in(job.path, "rank-00000.bin");
    cr_assert_eq(rename(path_in(other.path, "rank-00000.bin"), mine), 0);
    cr_assert_eq(shd_reader_open(job.path, &manifest, &reader), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(), mine), "%s", sherd_last_error());
    unlink(mine);
    cr_assert_eq(shd_reader_open(job.path, &manifest, &reader), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(), mine) && strstr(sherd_last_error(), "No such file"), "%s", sherd_last_error());
    write_whole(mine, "cut", 3);
    cr_assert_eq(shd_reader_open(job.path, &manifest, &reader), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(), "it has 3 bytes, the manifest says"), "%s", sherd_last_error());
    clean(&job);
    clean(&other);
}

/* What a sink got. */
typedef struct received {
    float *values;
    int64_t count, most;
    int64_t fail_at; /* -1: never */
} received;

static sherd_status receive(void *user, const float *values, int64_t count) {
    received *to = user;
    cr_assert_gt(count, 0);
    if (to->fail_at >= 0 && to->count + count > to->fail_at) return SHERD_UNSUPPORTED;
    memcpy(to->values + to->count, values, (size_t)count * sizeof *values);
    to->count += count;
    to->most = shd_max(to->most, count);
    return SHERD_OK;
}

Test(checkpoint_reader, streams_each_element_once_and_in_order) {
    for (int codes = 0; codes <= 1; codes++) {
        stored_job job = {.ranks = 3, .compression = 1, .state_dtype = codes ? SHERD_INT8 : SHERD_FP32, .large = true};
        store_job(&job);
        shd_reader *reader = open_reader(&job);
        for (int tensor = 0; tensor < STORED_TENSORS; tensor++)
            for (int state = 0; state <= (stored_tensors[tensor].frozen ? 0 : 1); state++)
                for (int64_t first = 0; first < 3; first++) {
                    void *mark = mark_taken();
                    int64_t count = shd_max(stored_count(&job, tensor) - 2 * first, 0);
                    received got = {.values = take((size_t)count * sizeof(float) + 1), .fail_at = -1};
                    cr_assert_eq(shd_reader_stream(reader, stored_tensors[tensor].name, stored_state(state), first,
                                                   count, &stored_convert, receive, &got),
                                 SHERD_OK, "%s", sherd_last_error());
                    cr_assert_eq(got.count, count);
                    cr_assert_leq(got.most, SHD_BLOCK_RAW_BYTES_MAX / 4);
                    for (int64_t i = 0; i < count; i++)
                        cr_assert_eq(got.values[i], stored_value(tensor, state, first + i), "%lld", (long long)i);
                    release_taken(mark);
                }
        shd_reader_destroy(reader);
        clean(&job);
    }
}

Test(checkpoint_reader, ends_a_stream_where_the_sink_or_a_block_fails) {
    stored_job job = {.ranks = 2, .state_dtype = SHERD_FP32, .large = true};
    store_job(&job);
    int64_t count = stored_count(&job, 0);
    received got = {.values = take((size_t)count * sizeof(float)), .fail_at = 1 << 20};
    shd_reader *reader = open_reader(&job);
    cr_assert_eq(shd_reader_stream(reader, "wte.weight", "parameter", 0, count, NULL, receive, &got),
                 SHERD_UNSUPPORTED);
    cr_assert_lt(got.count, count / 2 + 5);
    flip_stored(&job, "rank-00001.bin", 3 * 4096 + 5, 0); /* the first of the second rank's */
    got = (received){.values = got.values, .fail_at = -1};
    cr_assert_eq(shd_reader_stream(reader, "wte.weight", "parameter", 0, count, NULL, receive, &got), SHERD_DATA);
    cr_assert_eq(got.count, count / 2 + 3, "all before the damaged block, and nothing of it");
    shd_reader_destroy(reader);
    clean(&job);
}
