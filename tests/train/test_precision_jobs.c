/* Jobs in 16 bits: what small steps do to weights, and what a skipped step tells. */
#include "io/checkpoint_export.h"
#include "io/safetensors.h"
#include "tests/io/make_job.h"
#include "tests/support/find_tensor.h"
#include "tests/train/run_job.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <sherd/log.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(precision_jobs, .init = enter_fresh_folder, .fini = leave_fresh_folder, .timeout = 120);

/* --- movement ----------------------------------------------------------------------------------------------------- */

static const char llama_job[] =
    "name: moves\n"
    "model: {family: llama, vocab_size: 60, context: 8, d_model: 16, n_layer: 2, n_head: 2, n_kv_head: 1, d_ff: 40}\n"
    "data: {train: tokens.u16}\n"
    "train: {steps: 300, global_batch: 4, micro_batch: 2, seed: 3}\n"
    "optimizer: {lr: 1.0e-5, schedule: constant, weight_decay: 0}\n"
    "checkpoint: {every: 0, resume: never}\n"
    "run: {threads: 1, timeout_s: 30, start_timeout_s: 30}\n";

/* Runs the job and opens the weights that it ends with. */
static shd_safetensors *weights_of(const char *name, const char *const *settings) {
    char run[64], folder[80], path[80];
    const char *list[8] = {NULL};
    static job_result result;
    snprintf(run, sizeof run, "run.dir=%s", name);
    int count = 0;
    for (; settings[count]; count++) list[count] = settings[count];
    list[count] = run;
    run_job(llama_job, list, &result);
    cr_assert_eq(result.status[0], SHERD_OK, "%s: %s", name, result.cause);
    snprintf(folder, sizeof folder, "%s/checkpoints", name);
    snprintf(path, sizeof path, "%s.safetensors", name);
    cr_assert_eq(shd_checkpoint_export(folder, path), SHERD_OK, "%s", sherd_last_error());
    shd_safetensors *file = NULL;
    cr_assert_eq(shd_safetensors_open(path, &file), SHERD_OK, "%s", sherd_last_error());
    return file;
}

static int64_t read_all(const shd_safetensors *file, const char *name, float **out) {
    const shd_safetensors_entry *entry = find_tensor(file, name);
    cr_assert_not_null(entry, "%s", name);
    int64_t count = 1;
    for (int32_t d = 0; d < entry->dim_count; d++) count *= entry->shape[d];
    *out = malloc((size_t)count * sizeof **out);
    cr_assert_eq(shd_safetensors_read(file, entry, 0, count, *out), SHERD_OK, "%s", sherd_last_error());
    return count;
}

/* ‖to − from‖ of a tensor. */
static double movement(const shd_safetensors *from, const shd_safetensors *to, const char *name) {
    float *a, *b;
    int64_t count = read_all(from, name, &a);
    cr_assert_eq(read_all(to, name, &b), count);
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += pow((double)b[i] - (double)a[i], 2);
    free(a), free(b);
    return sqrt(sum);
}

/* 300 steps of 10⁻⁵ move a gain of 1 by 3·10⁻³ at most: a bf16 value, whose neighbours are 2⁻⁸ below and 2⁻⁷ above,
 * would stay where it is. */
Test(precision_jobs, small_steps_move_every_tensor_as_far_as_in_fp32) {
    make_tokens("tokens.u16", 2000, 7);
    shd_safetensors *start = weights_of("start", (const char *const[]){"train.steps=1", "optimizer.lr=0", NULL});
    shd_safetensors *full = weights_of("full", (const char *const[]){"run.ranks=2", NULL});
    static const char *const precisions[] = {"train.precision=bf16", "train.precision=fp16"};
    for (int p = 0; p < 2; p++) {
        shd_safetensors *half =
            weights_of(precisions[p] + 16, (const char *const[]){"run.ranks=2", precisions[p], NULL});
        for (int32_t t = 0; t < shd_safetensors_count(start); t++) {
            const char *name = shd_safetensors_at(start, t)->name;
            double in_full = movement(start, full, name), in_half = movement(start, half, name);
            cr_assert_gt(in_full, 1e-4, "%s", name);
            cr_assert(fabs(in_half / in_full - 1) <= 0.1, "%s, %s: moves by %g, in fp32 by %g", precisions[p], name,
                      in_half, in_full);
        }
        shd_safetensors_close(half);
    }
    shd_safetensors_close(start);
    shd_safetensors_close(full);
}

/* --- skipped steps ------------------------------------------------------------------------------------------------ */

/* A scale that no fp16 gradient survives: halved until one does. */
Test(precision_jobs, skipped_steps_are_steps_that_metrics_tell) {
    static job_result result;
    make_tokens("tokens.u16", 2000, 7);
    run_job(small_job,
            (const char *const[]){"train.precision=fp16", "train.loss_scale.initial=17179869184", "run.ranks=2",
                                  "train.steps=30", NULL},
            &result);
    cr_assert_eq(result.status[0], SHERD_OK, "%s", result.cause);
    cr_assert_eq(result.summary.step, 30);
    int64_t skipped = 0;
    while (skipped < 30 && result.steps[skipped].skipped) skipped++;
    cr_assert(skipped > 2 && skipped < 30, "%d steps are skipped", (int)skipped);
    cr_assert_eq(result.summary.skipped_count, skipped);
    for (int64_t s = 0; s < 30; s++) {
        cr_assert_eq(result.steps[s].skipped, s < skipped);
        cr_assert_eq(result.steps[s].loss_scale, ldexp(1, 34 - (int)(s < skipped ? s : skipped)));
        cr_assert_eq(isfinite(result.steps[s].grad_norm), s >= skipped);
    }
    cr_assert_lt(result.steps[29].loss, result.steps[skipped].loss - 0.1, "%g after %g, %d skipped",
                 result.steps[29].loss, result.steps[skipped].loss, (int)skipped);
    FILE *metrics = fopen("log/metrics.jsonl", "r");
    cr_assert_not_null(metrics);
    char line[2048];
    for (int64_t s = 0; fgets(line, sizeof line, metrics); s++) {
        json_t *row = json_loads(line, 0, NULL);
        cr_assert_eq(json_is_true(json_object_get(row, "skipped")), s < skipped);
        cr_assert_eq(json_number_value(json_object_get(row, "loss_scale")), result.steps[s].loss_scale);
        cr_assert_eq(json_integer_value(json_object_get(row, "step")), s);
        json_decref(row);
    }
    fclose(metrics);
}

static char warning[512];
static void take_warning(void *user, sherd_log_level level, const char *line) {
    (void)user;
    if (level == SHERD_LOG_WARN) snprintf(warning, sizeof warning, "%s", line);
}

Test(precision_jobs, a_run_whose_steps_are_all_skipped_warns_that_nothing_was_trained) {
    static job_result result;
    static const char *const steps[] = {"train.steps=1", "train.steps=3", "train.steps=30"};
    static const char *const says[] = {"nothing was trained: the only step was skipped",
                                       "nothing was trained: all steps were skipped", ""};
    make_tokens("tokens.u16", 2000, 7);
    for (int i = 0; i < 3; i++) {
        *warning = 0;
        sherd_log_set(take_warning, NULL, SHERD_LOG_WARN);
        run_job(small_job,
                (const char *const[]){"train.precision=fp16", "train.loss_scale.initial=17179869184", steps[i],
                                      "checkpoint.dir=none", "optimizer.warmup_steps=0", NULL},
                &result);
        sherd_log_set(NULL, NULL, SHERD_LOG_ERROR);
        cr_assert_eq(result.status[0], SHERD_OK, "%s", result.cause);
        cr_expect(i < 2 ? strncmp(warning, says[i], strlen(says[i])) == 0 : !*warning, "%s: %s", steps[i], warning);
        cr_assert_eq(system("rm -rf none"), 0);
    }
}

Test(precision_jobs, an_overflow_at_the_least_scale_ends_a_job_naming_the_key) {
    static job_result result;
    make_tokens("tokens.u16", 2000, 7);
    run_job(small_job,
            (const char *const[]){"train.precision=fp16", "train.loss_scale.initial=1099511627776",
                                  "train.loss_scale.minimum=549755813888", "run.ranks=2", "run.on_nonfinite=abort",
                                  NULL},
            &result);
    for (int r = 0; r < 2; r++) cr_assert_eq(result.status[r], SHERD_NUMERIC);
    cr_assert(strstr(result.cause, "train.loss_scale.minimum"), "%s", result.cause);
    cr_assert_eq(result.step_count, 2);
}

Test(precision_jobs, a_first_scale_below_the_least_is_refused_with_its_place) {
    make_tokens("tokens.u16", 2000, 7);
    cr_assert_eq(check_job(small_job, (const char *const[]){"train.precision=fp16", "train.loss_scale.initial=2",
                                                            "train.loss_scale.minimum=4", NULL}),
                 SHERD_CONFIG);
    cr_assert(strstr(sherd_last_error(),
                     "--set train.loss_scale.initial=2: train.loss_scale.initial is 2; it must be at "
                     "least train.loss_scale.minimum, which is 4"),
              "%s", sherd_last_error());
    cr_assert_eq(
        check_job(small_job, (const char *const[]){"train.loss_scale.initial=2", "train.loss_scale.minimum=4", NULL}),
        SHERD_OK, "what is not used is not looked at: %s", sherd_last_error());
}
