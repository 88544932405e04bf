/* Jobs of mlp models: against runs in float64 (tests/data/mlp), and with the promises that all jobs have. */
#include "tests/io/make_job.h"
#include "tests/io/npy_files.h"
#include "tests/train/run_job.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <sherd/log.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(mlp, .init = enter_fresh_folder, .fini = leave_fresh_folder, .timeout = 120);

#define SET(...) ((const char *const[]){__VA_ARGS__, NULL})

#define DATA(name)                                                                                                     \
    "data:\n  shuffle: false\n"                                                                                        \
    "  train: {inputs: " MLP_DIR "/" name "/inputs.npy, targets: " MLP_DIR "/" name "/targets.npy}\n"                  \
    "  validation: {inputs: " MLP_DIR "/" name "/inputs.npy, targets: " MLP_DIR "/" name "/targets.npy}\n"
#define TRAINING                                                                                                       \
    "train: {steps: 30, global_batch: 12, micro_batch: 1, clip: 1.0, evaluate_every: 30}\n"                            \
    "optimizer: {name: adamw, lr: 1.0e-2, min_lr: 1.0e-3, schedule: cosine, warmup_steps: 4, weight_decay: 0.1}\n"     \
    "run: {threads: 1, timeout_s: 60}\n"

static const char classes_job[] =
    "name: classes\n"
    "model: {family: mlp, inputs: 7, outputs: 4, hidden: 13, n_layer: 2,\n"
    "        init: " MLP_DIR
    "/classes/init.safetensors}\n" DATA("classes") "  ignored_label: -1\n  input_scale: 0.00392156862745098\n" TRAINING;
static const char numbers_job[] =
    "name: numbers\n"
    "model: {family: mlp, inputs: 5, outputs: 2, hidden: 17, n_layer: 3, activation: gelu,\n"
    "        loss: mse, init: " MLP_DIR "/numbers/init.safetensors}\n" DATA("numbers") TRAINING;

static void expect_ok(const job_result *result) {
    for (int r = 0; r < MAX_RANKS; r++)
        cr_assert_eq(result->status[r], SHERD_OK, "rank %d: status %d; %s", r, result->status[r], result->cause);
}

static void expect_same(const job_result *a, const job_result *b, const char *what) {
    cr_assert_eq(a->step_count, b->step_count);
    for (int64_t s = 0; s < a->step_count; s++) {
        const shd_train_step *left = &a->steps[s], *right = &b->steps[s];
        cr_assert(left->loss == right->loss && left->grad_norm == right->grad_norm, "%s: step %d: %.17g and %.17g",
                  what, (int)s, left->loss, right->loss);
        cr_assert(isnan(left->accuracy) ? isnan(right->accuracy) : left->accuracy == right->accuracy, "%s", what);
    }
    double left = a->summary.validation_loss, right = b->summary.validation_loss;
    cr_assert(left == right || (isnan(left) && isnan(right)), "%s", what);
}

/* --- runs in float64 ---------------------------------------------------------------------------------------------- */

static double figure(const json_t *expected, const char *key, int64_t step) {
    return json_number_value(json_array_get(json_object_get(expected, key), (size_t)step));
}

static void compare(const char *name, bool classes, const job_result *result) {
    char path[4096];
    snprintf(path, sizeof path, MLP_DIR "/%s/expected.json", name);
    json_t *expected = json_load_file(path, 0, NULL);
    cr_assert_not_null(expected);
    expect_ok(result);
    cr_assert_eq(result->step_count, 30);
    for (int64_t s = 0; s < result->step_count; s++) {
        const shd_train_step *step = &result->steps[s];
        double loss = figure(expected, "loss", s), norm = figure(expected, "grad_norm", s);
        cr_assert_float_eq(step->loss, loss, 2e-5, "step %d: loss %.9g, not %.9g", (int)s, step->loss, loss);
        cr_assert_float_eq(step->grad_norm, norm, 1e-4 * norm, "step %d: %.9g, not %.9g", (int)s, step->grad_norm,
                           norm);
        cr_assert_float_eq(step->lr, figure(expected, "lr", s), 1e-12);
        if (classes)
            cr_assert_float_eq(step->accuracy, figure(expected, "accuracy", s), 1e-12, "step %d", (int)s);
        else
            cr_assert(isnan(step->accuracy) && isnan(step->validation_accuracy));
    }
    const shd_train_step *last = &result->steps[29];
    cr_assert_float_eq(last->validation_loss, json_number_value(json_object_get(expected, "final_loss")), 2e-5);
    if (classes)
        cr_assert_float_eq(last->validation_accuracy, json_number_value(json_object_get(expected, "final_accuracy")),
                           1e-12);
    json_decref(expected);
}

static void check_reference(const char *name, const char *job, bool classes) {
    static job_result first, result;
    static const char *const ranks[] = {"run.ranks=1", "run.ranks=2", "run.ranks=3", "run.ranks=4"};
    static const char *const stages[] = {"shard.stage=0", "shard.stage=1", "shard.stage=2", "shard.stage=3"};
    run_job(job, SET("checkpoint.resume=never"), &first);
    compare(name, classes, &first);
    for (int r = 0; r < 4; r++)
        for (int stage = 0; stage < 4; stage++) {
            char what[80];
            const char *gather = stage > 0 && r % 2 ? "shard.gather=copy" : "shard.gather=auto";
            snprintf(what, sizeof what, "%s, %s, %s", ranks[r], stages[stage], gather);
            run_job(job, SET(ranks[r], stages[stage], gather, "checkpoint.resume=never"), &result);
            compare(name, classes, &result);
            expect_same(&first, &result, what);
        }
}

Test(mlp, classification_is_followed_with_the_same_bits_on_any_ranks_and_stage) {
    check_reference("classes", classes_job, true);
}

Test(mlp, regression_is_followed_with_the_same_bits_on_any_ranks_and_stage) {
    check_reference("numbers", numbers_job, false);
}

Test(mlp, recomputed_units_give_the_same_bits) {
    static job_result kept, again;
    run_job(numbers_job, SET("run.ranks=2", "checkpoint.resume=never"), &kept);
    run_job(numbers_job, SET("run.ranks=2", "checkpoint.resume=never", "train.recompute=unit"), &again);
    expect_ok(&kept);
    expect_ok(&again);
    expect_same(&kept, &again, "recompute");
    /* Layers of 17 numbers: three units' arguments of GELU become one. */
    cr_assert_lt(again.steps[0].peak_bytes, kept.steps[0].peak_bytes);
}

Test(mlp, sixteen_bits_give_the_same_bits_on_any_ranks_and_stage) {
    static job_result first, result;
    static const char *const jobs[] = {classes_job, numbers_job};
    static const char *const precisions[] = {"train.precision=bf16", "train.precision=fp16"};
    static const char *const places[][2] = {{"run.ranks=2", "shard.stage=3"},
                                            {"run.ranks=4", "shard.stage=2"},
                                            {"run.ranks=3", "shard.stage=0"},
                                            {"run.ranks=1", "shard.stage=1"}};
    for (int j = 0; j < 2; j++)
        for (int p = 0; p < 2; p++) {
            run_job(jobs[j], SET(precisions[p], "checkpoint.resume=never"), &first);
            expect_ok(&first);
            for (int i = 0; i < 4; i++) {
                run_job(jobs[j], SET(precisions[p], places[i][0], places[i][1], "checkpoint.resume=never"), &result);
                expect_ok(&result);
                expect_same(&first, &result, places[i][0]);
            }
        }
}

/* --- a run's life ------------------------------------------------------------------------------------------------- */

Test(mlp, goes_on_from_a_checkpoint_as_if_nothing_had_been) {
    static job_result whole, first, second;
    run_job(classes_job, SET("run.ranks=2", "run.dir=whole", "data.shuffle=true"), &whole);
    run_job_stopping(classes_job, SET("run.ranks=2", "run.dir=cut", "data.shuffle=true", "checkpoint.every=7"), 1, 9,
                     &first);
    expect_ok(&first);
    run_job(classes_job, SET("run.ranks=2", "run.dir=cut", "data.shuffle=true", "checkpoint.every=7"), &second);
    expect_ok(&second);
    cr_assert_eq(first.summary.step, 10);
    cr_assert_eq(second.summary.first_step, 10, "the stop has saved");
    cr_assert_eq(second.summary.tokens_seen, 30 * 12);
    for (int64_t s = 0; s < second.step_count; s++) {
        cr_assert_eq(second.steps[s].loss, whole.steps[s + 10].loss);
        cr_assert_eq(second.steps[s].accuracy, whole.steps[s + 10].accuracy);
    }
    cr_assert_eq(second.summary.validation_loss, whole.summary.validation_loss);
    /* Not with other data, or read otherwise. */
    static job_result other;
    run_job(classes_job,
            SET("run.ranks=2", "run.dir=cut", "data.shuffle=true", "data.input_scale=0.5", "train.steps=31"), &other);
    cr_assert_eq(other.status[0], SHERD_DATA);
    cr_assert(strstr(other.cause, "data.input_scale was 0.00392156863 and is 0.5 now"), "%s", other.cause);
}

enum { SAMPLES = 11, EPOCHS = 3 };

static int compare_losses(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void write_samples(void) {
    float inputs[SAMPLES][2], targets[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) inputs[i][0] = (float)i, inputs[i][1] = 1, targets[i] = (float)(i * i);
    write_npy("x.npy", "<f4", "(11, 2)", inputs, sizeof inputs);
    write_npy("y.npy", "<f4", "(11,)", targets, sizeof targets);
}

static const char still_job[] = "name: still\n"
                                "model: {family: mlp, inputs: 2, outputs: 1, hidden: 4, n_layer: 1, loss: mse}\n"
                                "data: {train: {inputs: x.npy, targets: y.npy}}\n"
                                "train: {steps: 33, global_batch: 1, micro_batch: 1}\n"
                                "optimizer: {lr: 0}\n"
                                "checkpoint: {resume: never, every: 0}\n"
                                "run: {threads: 1}\n";

/* With lr 0 the loss of a step of one sample tells which it is. */
Test(mlp, samples_are_met_once_an_epoch_in_orders_that_differ_and_repeat) {
    static job_result once, again, other;
    double sorted[EPOCHS][SAMPLES];
    write_samples();
    run_job(still_job, NULL, &once);
    run_job(still_job, NULL, &again);
    run_job(still_job, SET("train.seed=2", "model.init=random"), &other);
    expect_ok(&once);
    expect_same(&once, &again, "the same seed");
    for (int i = 0; i < EPOCHS * SAMPLES; i++) sorted[i / SAMPLES][i % SAMPLES] = once.steps[i].loss;
    cr_assert_neq(memcmp(sorted[0], sorted[1], sizeof sorted[0]), 0);
    for (int e = 0; e < EPOCHS; e++) {
        qsort(sorted[e], SAMPLES, sizeof(double), compare_losses);
        cr_assert_arr_eq(sorted[e], sorted[0], sizeof sorted[0]);
    }
    for (int i = 1; i < SAMPLES; i++) cr_assert_lt(sorted[0][i - 1], sorted[0][i]);
}

/* A global batch is the same samples on any ranks: 33 steps of 12 samples of 11, over the ends of epochs. */
Test(mlp, ranks_share_every_global_batch) {
    static job_result results[4];
    static const char *const ranks[] = {"run.ranks=1", "run.ranks=2", "run.ranks=3", "run.ranks=4"};
    write_samples();
    for (int i = 0; i < 4; i++) {
        run_job(still_job, SET(ranks[i], "train.global_batch=12"), &results[i]);
        expect_ok(&results[i]);
        expect_same(&results[0], &results[i], ranks[i]);
    }
    cr_assert_neq(results[0].steps[0].loss, results[0].steps[1].loss);
}

Test(mlp, metrics_count_samples_and_tell_accuracies) {
    static job_result result;
    size_t length;
    run_job(classes_job, SET("run.ranks=2", "run.dir=out", "train.evaluate_every=15"), &result);
    expect_ok(&result);
    char *text = read_file("out/metrics.jsonl", &length), *at = text;
    for (int step = 0; step < 30; step++) {
        json_error_t error;
        json_t *row = json_loads(at, JSON_DISABLE_EOF_CHECK, &error);
        cr_assert_not_null(row);
        bool validated = step % 15 == 14;
        cr_expect_eq(json_integer_value(json_object_get(row, "samples")), 12);
        cr_expect_eq(json_integer_value(json_object_get(row, "samples_seen")), 12 * (step + 1));
        cr_expect_not_null(json_object_get(row, "samples_per_s"));
        cr_expect_null(json_object_get(row, "tokens"));
        cr_expect_eq(json_number_value(json_object_get(row, "accuracy")), result.steps[step].accuracy);
        cr_expect_eq(json_object_get(row, "validation_accuracy") != NULL, validated);
        if (validated)
            cr_expect_eq(json_number_value(json_object_get(row, "validation_accuracy")),
                         result.steps[step].validation_accuracy);
        json_decref(row);
        at = strchr(at, '\n') + 1;
    }
    free(text);
}

Test(mlp, of_no_counted_sample_neither_loss_nor_accuracy_is_known) {
    static job_result result;
    const float inputs[12 * 7] = {0};
    int8_t labels[12];
    memset(labels, -1, sizeof labels);
    write_npy("x.npy", "<f4", "(12, 7)", inputs, sizeof inputs);
    write_npy("y.npy", "|i1", "(12,)", labels, sizeof labels);
    run_job(classes_job,
            SET("data.train={inputs: x.npy, targets: y.npy}", "data.validation={inputs: x.npy, targets: y.npy}",
                "train.steps=1", "train.evaluate_every=1", "optimizer.warmup_steps=0"),
            &result);
    expect_ok(&result);
    const shd_train_step *step = &result.steps[0];
    cr_assert(step->classified && step->validated);
    cr_assert(isnan(step->loss) && isnan(step->accuracy));
    cr_assert(isnan(step->validation_loss) && isnan(step->validation_accuracy));
}

/* Rows of the training data are refused when they are read, those of a validation before the start. */
Test(mlp, every_row_that_a_validation_will_read_is_checked_before_the_start) {
    float inputs[40 * 7] = {0};
    int8_t labels[40] = {0};
    inputs[30 * 7 + 2] = NAN;
    write_npy("x.npy", "<f4", "(40, 7)", inputs, sizeof inputs);
    write_npy("y.npy", "|i1", "(40,)", labels, sizeof labels);
    const char *data = "data.validation={inputs: x.npy, targets: y.npy}";
    cr_assert_eq(check_job(classes_job, SET(data)), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(), "x.npy") && strstr(sherd_last_error(), "30"), "%s", sherd_last_error());
    cr_expect_eq(check_job(classes_job, SET(data, "train.evaluate_sequences=31")), SHERD_DATA);
    cr_expect_eq(check_job(classes_job, SET(data, "train.evaluate_sequences=30")), SHERD_OK, "%s", sherd_last_error());
    cr_expect_eq(check_job(classes_job, SET(data, "train.evaluate_every=0")), SHERD_OK, "%s", sherd_last_error());
}

Test(mlp, steps_allocate_nothing) {
    static job_result result;
    run_job(classes_job, SET("run.ranks=2", "checkpoint.every=0"), &result);
    expect_ok(&result);
    for (int64_t s = 1; s < 29; s++) cr_expect_eq(result.allocations[s], 0, "step %d", (int)s);
}

/* The learning rate has no part in the loss of the initial weights. */
Test(mlp, a_first_step_that_is_not_finite_is_not_blamed_on_the_learning_rate) {
    static job_result result;
    write_samples();
    run_job(still_job, SET("data.input_scale=1.0e+37", "run.ranks=1", "run.on_nonfinite=abort"), &result);
    cr_expect_eq(result.status[0], SHERD_NUMERIC);
    cr_expect(strstr(result.cause, "step 1/"), "%s", result.cause);
    cr_expect(strstr(result.cause, "; nothing was updated yet: look at the inputs, data.input_scale and model.init"),
              "%s", result.cause);
}

Test(mlp, data_that_do_not_fit_are_refused_before_a_rank_starts) {
    write_samples();
    static const struct {
        const char *setting, *says;
    } cases[] = {
        {"model.inputs=3", "x.npy: inputs of shape [11, 2] are 2 numbers a row, and model.inputs is 3"},
        {"model.outputs=2", "y.npy: targets of shape [11] are 1 numbers a row, and model.outputs is 2"},
        {"data.train=x.npy", "x.npy: a .npy file holds one array; name two"},
        {"data.train={inputs: x.npy, targets: none.npy}", "none.npy: cannot open the data file"},
        {"data.validation={inputs: y.npy, targets: y.npy}", "y.npy: a .npy file holds one array"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_eq(check_job(still_job, SET(cases[i].setting)), SHERD_DATA, "%s", cases[i].setting);
        cr_expect(strstr(sherd_last_error(), cases[i].says), "%s: %s", cases[i].setting, sherd_last_error());
    }
    cr_expect_eq(check_job(still_job, SET("model.loss=cross_entropy", "model.outputs=4")), SHERD_DATA);
    cr_expect(strstr(sherd_last_error(), "y.npy: classes are whole numbers from 0 on"), "%s", sherd_last_error());
    cr_expect_eq(check_job(still_job, SET("model.loss=cross_entropy")), SHERD_CONFIG);
    cr_expect(strstr(sherd_last_error(), "model.outputs 1 is too few"), "%s", sherd_last_error());
    cr_expect_eq(check_job(still_job, SET("train.precision=fp16", "data.input_scale=1.0e+5")), SHERD_DATA);
    cr_expect(strstr(sherd_last_error(), "and fp16 ends at 65504"), "%s", sherd_last_error());
    cr_expect_eq(check_job(still_job, SET("train.precision=bf16", "data.input_scale=1.0e+5")), SHERD_OK);
    /* Too large: the advice names no key that the family does not have. */
    cr_expect_eq(check_job(still_job, SET("model.hidden=4194304", "model.n_layer=4096")), SHERD_CONFIG);
    cr_expect(strstr(sherd_last_error(), "lower train.micro_batch or the size of the model"), "%s", sherd_last_error());
    cr_expect_eq(check_job(still_job, SET("train.seed=1")), SHERD_OK, "%s", sherd_last_error());
}
