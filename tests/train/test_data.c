/* What a job trains on: with lr 0 the weights stay, so that the loss of a step is a fingerprint of its sequences. */
#include "io/checkpoint_manifest.h"
#include "io/file.h"
#include "runtime/base/memory.h"
#include "tests/io/make_job.h"
#include "tests/train/run_job.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <sherd/log.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTEXT = 8, SEQUENCES = 20, EPOCHS = 3 };

static void prepare(void) {
    enter_fresh_folder();
    make_tokens("tokens.u16", SEQUENCES * CONTEXT + 1, 1);
    make_tokens("a.u16", 30 * CONTEXT + 4, 3);
    make_tokens("b.u16", 7 * CONTEXT + 1, 4);
    make_tokens("c.u16", 11 * CONTEXT + 8, 5);
    make_tokens("short.u16", CONTEXT, 6);
}

TestSuite(data, .init = prepare, .fini = leave_fresh_folder, .timeout = 120);

#define SET(...) ((const char *const[]){__VA_ARGS__, NULL})
#define STILL    "optimizer.lr=0", "optimizer.warmup_steps=0", "checkpoint.resume=never"
#define MIXTURE  "data.train=[{path: [a.u16, short.u16], weight: 3}, {path: b.u16}, {path: 'c*.u16', weight: 2}]"

static void expect_ok(const job_result *result) {
    for (int r = 0; r < MAX_RANKS; r++)
        cr_assert_eq(result->status[r], SHERD_OK, "rank %d: status %d; %s", r, result->status[r], result->cause);
}

static int compare_losses(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* The losses of every sequence of EPOCHS epochs, one a step. */
static void run_epochs(const char *seed, double out[EPOCHS][SEQUENCES]) {
    job_result result;
    run_job(small_job, SET(STILL, "train.steps=60", "train.global_batch=1", seed), &result);
    expect_ok(&result);
    cr_assert_eq(result.step_count, EPOCHS * SEQUENCES);
    for (int i = 0; i < EPOCHS * SEQUENCES; i++) out[i / SEQUENCES][i % SEQUENCES] = result.steps[i].loss;
}

/* --- epochs ------------------------------------------------------------------------------------------------------- */

Test(data, is_met_once_an_epoch_in_orders_that_differ_and_repeat_with_the_seed) {
    double first[EPOCHS][SEQUENCES], again[EPOCHS][SEQUENCES], other[EPOCHS][SEQUENCES], sorted[EPOCHS][SEQUENCES];
    run_epochs("train.seed=1", first);
    run_epochs("train.seed=1", again);
    cr_assert_arr_eq(first, again, sizeof first);
    memcpy(sorted, first, sizeof sorted);
    for (int e = 0; e < EPOCHS; e++) {
        qsort(sorted[e], SEQUENCES, sizeof **sorted, compare_losses);
        cr_assert_arr_eq(sorted[e], sorted[0], sizeof sorted[0], "epoch %d holds other sequences", e);
        for (int i = 1; i < SEQUENCES; i++)
            cr_assert_lt(sorted[e][i - 1], sorted[e][i], "two sequences of one loss: the test tells nothing");
        for (int f = 0; f < e; f++) cr_assert_arr_neq(first[e], first[f], sizeof first[0]);
    }
    /* The seed sets the first weights too: compare the order alone, by rank among the losses. */
    run_epochs("train.seed=2", other);
    cr_assert_arr_neq(first[0], other[0], sizeof first[0]);
}

/* 20 sequences in batches of 12: epochs end inside a batch, on every number of ranks alike. */
Test(data, is_the_same_in_every_epoch_on_any_number_of_ranks) {
    static const char *const ranks[] = {"run.ranks=1", "run.ranks=2", "run.ranks=3", "run.ranks=4"};
    static const char *const data[] = {"data.train=tokens.u16", MIXTURE};
    double apart[EPOCHS][SEQUENCES], epoch = 0;
    run_epochs("train.seed=1", apart);
    for (int i = 0; i < SEQUENCES; i++) epoch += apart[0][i];
    for (int d = 0; d < 2; d++) {
        job_result first, other;
        for (int i = 0; i < 4; i++) {
            run_job(small_job, SET(STILL, "train.steps=5", data[d], ranks[i]), i ? &other : &first);
            expect_ok(i ? &other : &first);
            for (int s = 0; i && s < 5; s++) cr_assert_eq(first.steps[s].loss, other.steps[s].loss, "%s", ranks[i]);
        }
        double all = 0;
        for (int s = 0; s < 5; s++) all += 12 * first.steps[s].loss;
        if (d == 0) cr_assert_float_eq(all, EPOCHS * epoch, 1e-9);
    }
}

/* --- mixtures ----------------------------------------------------------------------------------------------------- */

/* Checks the rows of metrics.jsonl of a run of MIXTURE in steps of 12 sequences. */
static void check_rows(const char *path, int64_t steps) {
    static const double shares[3] = {0.5, 1.0 / 6, 1.0 / 3};
    size_t length;
    char *rows = read_file(path, &length), *line = rows;
    int64_t seen[3] = {0};
    for (int64_t s = 0; s < steps; s++, line = strchr(line, '\n') + 1) {
        json_t *row = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
        const json_t *step = json_object_get(row, "source_tokens"), *all = json_object_get(row, "source_tokens_seen");
        int64_t tokens = 0;
        cr_assert_eq(json_array_size(step), 3);
        for (size_t i = 0; i < 3; i++) {
            tokens += json_integer_value(json_array_get(step, i));
            seen[i] += json_integer_value(json_array_get(step, i));
            cr_assert_eq(json_integer_value(json_array_get(all, i)), seen[i]);
            cr_assert_leq(fabs((double)seen[i] / CONTEXT - shares[i] * 12 * (double)(s + 1)), 1.0);
        }
        cr_assert_eq(tokens, json_integer_value(json_object_get(row, "tokens")));
        int64_t ready = json_integer_value(json_object_get(row, "data_ready"));
        cr_assert(ready >= 0 && ready <= 2);
        json_decref(row);
    }
    cr_assert_eq(*line, 0);
    free(rows);
}

Test(data, of_a_mixture_goes_on_after_a_stop_as_if_there_had_been_none) {
    job_result whole, part;
    run_job(small_job, SET(MIXTURE, "checkpoint.resume=never", "run.ranks=2"), &whole);
    expect_ok(&whole);
    check_rows("log/metrics.jsonl", 12);
    run_job_stopping(small_job, SET(MIXTURE, "checkpoint.dir=again", "log.dir=again", "checkpoint.every=5"), 0, 7,
                     &part);
    expect_ok(&part);
    run_job(small_job, SET(MIXTURE, "checkpoint.dir=again", "log.dir=again", "checkpoint.every=5"), &part);
    expect_ok(&part);
    cr_assert_eq(part.summary.first_step, 8);
    for (int s = 0; s < 4; s++) cr_assert_eq(part.steps[s].loss, whole.steps[8 + s].loss);
    check_rows("again/metrics.jsonl", 12);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

Test(data, of_a_mixture_is_not_changed_between_two_runs) {
    job_result result;
    run_job(small_job, SET(MIXTURE, "train.steps=4"), &result);
    expect_ok(&result);
    const struct {
        const char *setting, *says;
    } cases[] = {
        {"data.train=[{path: [a.u16, short.u16], weight: 3}, {path: b.u16}, {path: c.u16, weight: 1}]",
         "the first difference is in data.train[2]"},
        {"data.train=[{path: a.u16, weight: 3}, {path: b.u16}, {path: c.u16, weight: 2}]",
         "the first difference is in data.train[0]"},
        {"data.train=[{path: [a.u16, short.u16], weight: 3}, {path: c.u16, weight: 2}, {path: b.u16}]",
         "the first difference is in data.train[1]"},
        {"data.train=[a.u16, short.u16, b.u16, c.u16]", "data.train has changed: it was "},
        {"data.document_separator=0", "data.document_separator was null and is 0 now"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_eq(check_job(small_job, SET(MIXTURE, cases[i].setting)), SHERD_DATA, "%s", cases[i].setting);
        cr_expect_not_null(strstr(sherd_last_error(), cases[i].says), "%s: %s", cases[i].setting, sherd_last_error());
    }
    /* Long values are cut, and nothing else stands there. */
    cr_assert_eq(check_job(small_job, SET(MIXTURE, "data.train=[a.u16, a.u16, a.u16, a.u16, a.u16, a.u16, a.u16, "
                                                   "a.u16, a.u16, a.u16, a.u16, a.u16, a.u16, a.u16, b.u16]")),
                 SHERD_DATA);
    const char *said = sherd_last_error();
    cr_assert(strstr(said, "2.0}] with 405 tokens (") && strstr(said, "… with 3473 ("), "%s", said);
    for (; *said; said++) cr_assert((unsigned char)*said >= ' ', "byte %d", *said);
    /* The same files by other names, and the same shares by other weights that are multiples. */
    cr_assert_eq(check_job(small_job, SET(MIXTURE)), SHERD_OK, "%s", sherd_last_error());
    make_tokens("b.u16", 7 * CONTEXT + 1, 99);
    cr_assert_eq(check_job(small_job, SET(MIXTURE)), SHERD_DATA);
    cr_assert_not_null(strstr(sherd_last_error(), "the first difference is in data.train[1]"), "%s",
                       sherd_last_error());
}

/* --- documents ---------------------------------------------------------------------------------------------------- */

#define PACKED "data.train=[a.u16, short.u16, b.u16]", "data.document_separator=5"

Test(data, of_documents_apart_gives_the_same_bits_on_any_number_of_ranks_and_threads) {
    static const char *const runs[][2] = {{"run.ranks=1", "run.threads=1"},
                                          {"run.ranks=1", "run.threads=2"},
                                          {"run.ranks=2", "run.threads=1"},
                                          {"run.ranks=3", "shard.gather=copy"},
                                          {"run.ranks=4", "shard.stage=1"}};
    job_result first, other;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        job_result *result = i ? &other : &first;
        run_job(small_job,
                SET(PACKED, "data.attend_across_documents=false", "data.validation=c.u16", "train.evaluate_every=4",
                    "checkpoint.resume=never", runs[i][0], runs[i][1]),
                result);
        expect_ok(result);
        for (int s = 0; i && s < 12; s++) {
            cr_assert_eq(first.steps[s].loss, other.steps[s].loss, "%s %s", runs[i][0], runs[i][1]);
            if (s % 4 == 3) cr_assert_eq(first.steps[s].validation_loss, other.steps[s].validation_loss);
        }
    }
    run_job(small_job, SET(PACKED, "data.validation=c.u16", "train.evaluate_every=4", "checkpoint.resume=never"),
            &other);
    expect_ok(&other);
    cr_assert_neq(first.steps[11].loss, other.steps[11].loss);
    cr_assert_neq(first.steps[11].validation_loss, other.steps[11].validation_loss);
}

/* --- notes -------------------------------------------------------------------------------------------------------- */

/* Takes the keys about documents out of the note, as if sherd had not known them yet. */
static void make_note_old(const char *folder) {
    shd_keep *keep = shd_keep_create();
    shd_checkpoint_manifest manifest;
    cr_assert_eq(shd_manifest_read(folder, keep, &manifest), SHERD_OK, "%s", sherd_last_error());
    json_t *note = json_loads(manifest.note, 0, NULL), *data = json_object_get(note, "data");
    json_t *keys = json_object_get(json_object_get(note, "job"), "data");
    cr_assert(json_object_del(keys, "document_separator") == 0 &&
              json_object_del(keys, "attend_across_documents") == 0);
    cr_assert(json_is_string(json_object_get(json_object_get(json_object_get(note, "job"), "data"), "train")));
    cr_assert(json_object_size(data) == 2 && json_object_get(data, "tokens") && json_object_get(data, "fingerprint"));
    char *text = json_dumps(note, JSON_COMPACT);
    manifest.note = text;
    cr_assert_eq(shd_manifest_write(folder, &manifest), SHERD_OK, "%s", sherd_last_error());
    json_decref(note);
    free(text);
    shd_keep_destroy(keep);
}

Test(data, of_one_file_has_a_note_that_older_checkpoints_have_too) {
    job_result result;
    run_job(small_job, SET("train.steps=4"), &result);
    expect_ok(&result);
    make_note_old("ckpt/step-00000004");
    cr_assert_eq(check_job(small_job, SET("data.document_separator=3")), SHERD_DATA);
    cr_assert_not_null(strstr(sherd_last_error(), "data.document_separator was not set and is 3 now"), "%s",
                       sherd_last_error());
    run_job(small_job, NULL, &result);
    expect_ok(&result);
    cr_assert_eq(result.summary.first_step, 4);
}

/* --- sizes -------------------------------------------------------------------------------------------------------- */

/* The line of the log about the data, of the run that follows. */
static char data_line[1200];
static void take_line(void *user, sherd_log_level level, const char *line) {
    (void)user, (void)level;
    if (strncmp(line, "data.train", 10) == 0 && !*data_line) snprintf(data_line, sizeof data_line, "%s", line);
}

Test(data, too_short_is_refused_and_what_tails_leave_is_said) {
    make_tokens("zero.u16", 0, 1);
    make_tokens("one.u16", 1, 1);
    make_tokens("enough.u16", CONTEXT + 1, 1);
    const struct {
        const char *setting, *says;
    } refused[] = {
        {"data.train=zero.u16", "zero.u16: empty: 0 tokens are too few; model.context 8 needs at least 9"},
        {"data.train=one.u16", "one.u16: 1 tokens are too few; model.context 8 needs at least 9"},
        {"data.train=short.u16", "short.u16: 8 tokens are too few; model.context 8 needs at least 9"},
        {"data.train=[zero.u16, one.u16, short.u16]",
         "data.train: none of its 3 files, 9 tokens in all, holds a sequence"},
        {"data.train=[{path: enough.u16}, {path: [one.u16, zero.u16]}]",
         "data.train[1]: none of its 2 files, 1 tokens in all, holds a sequence"},
        {"data.train=no*.u16", "data.train: no file matches "},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        cr_expect_eq(check_job(small_job, SET(refused[i].setting)), SHERD_DATA, "%s", refused[i].setting);
        cr_expect_not_null(strstr(sherd_last_error(), refused[i].says), "%s: %s", refused[i].setting,
                           sherd_last_error());
    }
    const struct {
        const char *setting, *says;
    } taken[] = {
        {"data.train=enough.u16", "data.train: 9 tokens in 1 file, 1 sequence of 8; 0 tokens are left out at ends"},
        {"data.train=[zero.u16, a.u16, short.u16, one.u16]",
         "data.train: 253 tokens in 4 files, 30 sequences of 8; 12 tokens are left out at ends, among them all of 3 "
         "files shorter than a sequence"},
        {"data.train=[{path: a.u16, weight: 3}, {path: enough.u16}]",
         "data.train[0]: 244 tokens in 1 file, 30 sequences of 8, 75% of the mixture; 3 tokens are left out at ends"},
    };
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        job_result result;
        *data_line = 0;
        sherd_log_set(take_line, NULL, SHERD_LOG_INFO);
        run_job(small_job, SET(taken[i].setting, "train.steps=3", "checkpoint.resume=never"), &result);
        sherd_log_set(NULL, NULL, SHERD_LOG_ERROR);
        expect_ok(&result);
        cr_expect_str_eq(data_line, taken[i].says);
    }
}
