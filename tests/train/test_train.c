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
#include <unistd.h>

static void prepare(void) {
    enter_fresh_folder();
    make_tokens("tokens.u16", 2000, 1);
    make_tokens("val.u16", 700, 2); /* 87 sequences */
}

TestSuite(train, .init = prepare, .fini = leave_fresh_folder, .timeout = 120);

#define SET(...) ((const char *const[]){__VA_ARGS__, NULL})

static void expect_ok(const job_result *result) {
    for (int r = 0; r < MAX_RANKS; r++)
        cr_assert_eq(result->status[r], SHERD_OK, "rank %d: status %d; %s", r, result->status[r], result->cause);
}

/* --- what is computed --------------------------------------------------------------------------------------------- */

Test(train, gives_the_same_bits_on_any_number_of_ranks) {
    static const char *const ranks[] = {"run.ranks=1", "run.ranks=2", "run.ranks=3", "run.ranks=4"};
    job_result first, other;
    for (int i = 0; i < 4; i++) {
        run_job(small_job,
                SET(ranks[i], "checkpoint.resume=never", "data.validation=val.u16", "train.evaluate_every=5"),
                i ? &other : &first);
        expect_ok(i ? &other : &first);
        if (i == 0) continue;
        cr_assert_eq(other.step_count, 12);
        for (int s = 0; s < 12; s++) {
            cr_assert_eq(first.steps[s].loss, other.steps[s].loss, "%s, step %d", ranks[i], s);
            cr_assert_eq(first.steps[s].grad_norm, other.steps[s].grad_norm);
            bool evaluated = s == 4 || s == 9 || s == 11;
            cr_assert_eq(isnan(first.steps[s].validation_loss), !evaluated, "step %d", s);
            if (evaluated) cr_assert_eq(first.steps[s].validation_loss, other.steps[s].validation_loss);
        }
    }
    cr_assert_lt(first.steps[11].loss, first.steps[0].loss - 0.1, "nothing was learned");
}

/* What names say of parameters must not depend on which rank holds them. */
Test(train, gives_the_same_bits_with_groups_at_every_stage) {
    static const char *const ranks[] = {"run.ranks=1", "run.ranks=2", "run.ranks=4"};
    static const char *const stages[] = {"shard.stage=0", "shard.stage=1", "shard.stage=2", "shard.stage=3"};
    job_result first, other;
    for (int i = 0; i < 12; i++) {
        run_job(small_job,
                SET(ranks[i / 4], stages[i % 4], "checkpoint.resume=never", "optimizer.name=adam",
                    "optimizer.schedule=wsd", "optimizer.decay_steps=4", "optimizer.warmup_steps=0",
                    "optimizer.warmup_tokens=250", "optimizer.layer_lr_decay=0.7", "optimizer.decay=[\"*.weight\"]",
                    "optimizer.groups=[{match: \"*.bias\", lr_factor: 3}, {match: \"h.1.*\", weight_decay: 0.7}]"),
                i ? &other : &first);
        expect_ok(i ? &other : &first);
        for (int s = 0; i && s < 12; s++) {
            cr_assert_eq(first.steps[s].loss, other.steps[s].loss, "%s, %s, step %d", ranks[i / 4], stages[i % 4], s);
            cr_assert_eq(first.steps[s].grad_norm, other.steps[s].grad_norm);
        }
    }
    static const double lr[12] = {1 / 3., 2 / 3., 1, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25};
    for (int s = 0; s < 12; s++) cr_assert_float_eq(first.steps[s].lr, 0.01 * lr[s], 1e-15, "step %d", s);
}

/* A loss of 0 would look like the best there is. */
Test(train, a_step_and_a_validation_without_a_counted_target_have_no_loss) {
    static const uint16_t ignored[200] = {0};
    static job_result result;
    char line[2048];
    write_file("zeros.u16", ignored, sizeof ignored);
    run_job(small_job,
            SET("data.train=zeros.u16", "data.validation=zeros.u16", "data.ignored_token=0", "train.evaluate_every=2",
                "train.steps=2", "run.ranks=2", "optimizer.warmup_steps=0"),
            &result);
    expect_ok(&result);
    cr_assert(isnan(result.summary.loss) && isnan(result.summary.validation_loss));
    FILE *metrics = fopen("log/metrics.jsonl", "r");
    cr_assert_not_null(metrics);
    for (int s = 0; s < 2; s++) {
        cr_assert_not_null(fgets(line, sizeof line, metrics));
        json_t *row = json_loads(line, 0, NULL);
        const char *loss = json_string_value(json_object_get(row, "loss"));
        const char *validation_loss = json_string_value(json_object_get(row, "validation_loss"));
        cr_expect(loss && strcmp(loss, "nan") == 0, "%s", line);
        cr_expect_eq(result.steps[s].validated, s == 1);
        cr_expect(s == 0 ? !validation_loss : validation_loss && strcmp(validation_loss, "nan") == 0, "%s", line);
        json_decref(row);
    }
    fclose(metrics);
}

/* With lr 0 the weights stay, and the loss of a batch that is the whole file is its validation loss. */
Test(train, has_a_validation_loss_that_is_the_training_loss_of_the_same_sequences) {
    static const char *const counts[] = {"train.evaluate_sequences=1", "train.evaluate_sequences=63",
                                         "train.evaluate_sequences=64", "train.evaluate_sequences=0"};
    static const char *const batches[] = {"train.global_batch=1", "train.global_batch=63", "train.global_batch=64",
                                          "train.global_batch=87"};
    for (int i = 0; i < 4; i++) {
        job_result result;
        run_job(small_job,
                SET("optimizer.lr=0", "optimizer.warmup_steps=0", "data.train=val.u16", "data.validation=val.u16",
                    "data.shuffle=false", "train.steps=1", "train.evaluate_every=1", "checkpoint.resume=never",
                    counts[i], batches[i]),
                &result);
        expect_ok(&result);
        cr_expect_float_eq(result.steps[0].validation_loss, result.steps[0].loss, 1e-12, "%s: %.17g, not %.17g",
                           counts[i], result.steps[0].validation_loss, result.steps[0].loss);
        run_job(small_job,
                SET("optimizer.lr=0", "optimizer.warmup_steps=0", "data.train=val.u16", "data.validation=val.u16",
                    "data.shuffle=false", "train.steps=1", "train.evaluate_every=1", "checkpoint.resume=never",
                    counts[i], "run.ranks=3"),
                &result);
        expect_ok(&result);
        job_result alone;
        run_job(small_job,
                SET("optimizer.lr=0", "optimizer.warmup_steps=0", "data.train=val.u16", "data.validation=val.u16",
                    "data.shuffle=false", "train.steps=1", "train.evaluate_every=1", "checkpoint.resume=never",
                    counts[i]),
                &alone);
        cr_expect_eq(result.steps[0].validation_loss, alone.steps[0].validation_loss, "%s", counts[i]);
    }
}

Test(train, allocates_nothing_in_steps_after_the_first) {
    job_result result;
    run_job(small_job, SET("data.validation=val.u16", "train.evaluate_every=3", "run.ranks=2"), &result);
    expect_ok(&result);
    for (int s = 1; s < 12; s++)
        cr_assert_eq(result.allocations[s], 0, "step %d: %d calls", s, (int)result.allocations[s]);
}

/* --- stopping and going on ---------------------------------------------------------------------------------------- */

/* Rows of all twelve steps, once each and in order. */
static void expect_rows(const char *path, const job_result *whole) {
    size_t length;
    char *rows = read_file(path, &length), *line = rows;
    for (int s = 0; s < 12; s++, line = strchr(line, '\n') + 1) {
        json_t *row = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
        cr_assert_eq(json_integer_value(json_object_get(row, "step")), s);
        cr_assert_eq(json_real_value(json_object_get(row, "loss")), whole->steps[s].loss);
        cr_assert_eq(json_real_value(json_object_get(row, "grad_norm")), whole->steps[s].grad_norm);
        cr_assert_eq(json_integer_value(json_object_get(row, "tokens_seen")), (s + 1) * 96);
        json_decref(row);
    }
    cr_assert_eq(*line, 0);
    free(rows);
}

/* Stopped, it goes on where it stopped; killed since the last save, from there, and rows that come twice step aside. */
Test(train, goes_on_as_if_it_had_never_stopped) {
    job_result whole, part;
    run_job(small_job, SET("checkpoint.resume=never", "run.ranks=2"), &whole);
    expect_ok(&whole);
    for (int killed = 0; killed < 2; killed++) {
        const char *const *again =
            killed ? SET("checkpoint.dir=killed", "log.dir=killed", "checkpoint.every=5", "run.ranks=2")
                   : SET("checkpoint.dir=again", "log.dir=again", "checkpoint.every=5", "run.ranks=2");
        int first = killed ? 5 : 8;
        run_job_stopping(small_job, again, 1, 7, &part);
        expect_ok(&part);
        cr_assert(part.summary.stopped);
        cr_assert_eq(part.summary.step, 8);
        cr_assert_eq(part.summary.saves.saved_count, 2);
        if (killed) cr_assert_eq(rename("killed/step-00000008", "gone"), 0);
        run_job(small_job, again, &part);
        expect_ok(&part);
        cr_assert_eq(part.summary.first_step, first);
        cr_assert_eq(part.summary.tokens_seen, 12 * 12 * 8);
        cr_assert_eq(part.step_count, 12 - first);
        for (int s = first; s < 12; s++) cr_assert_eq(part.steps[s - first].loss, whole.steps[s].loss);
        cr_assert_eq(part.summary.loss, whole.summary.loss);
        expect_rows(killed ? "killed/metrics.jsonl" : "again/metrics.jsonl", &whole);
    }
    cr_assert_eq(access("again/metrics.jsonl.1", F_OK), -1);
    cr_assert_eq(access("killed/metrics.jsonl.1", F_OK), 0);
}

Test(train, does_nothing_for_a_job_that_is_finished) {
    job_result result;
    run_job(small_job, NULL, &result);
    expect_ok(&result);
    run_job(small_job, SET("run.ranks=2", "shard.stage=1"), &result);
    expect_ok(&result);
    cr_assert_eq(result.step_count, 0);
    cr_assert(result.summary.first_step == 12 && result.summary.step == 12 && !result.summary.stopped);
    run_job(small_job, SET("train.steps=14"), &result);
    expect_ok(&result);
    cr_assert_eq(result.step_count, 2);
}

Test(train, starts_afresh_when_it_is_never_to_resume) {
    job_result first, second;
    run_job(small_job, NULL, &first);
    run_job(small_job, SET("checkpoint.resume=never"), &second);
    expect_ok(&second);
    cr_assert_eq(second.step_count, 12);
    cr_assert_eq(second.steps[0].loss, first.steps[0].loss);
}

Test(train, refuses_to_go_on_with_other_data_model_or_seed) {
    job_result result;
    run_job(small_job, SET("train.steps=4"), &result);
    expect_ok(&result);
    make_tokens("other.u16", 2000, 9);
    const struct {
        const char *setting, *says;
    } cases[] = {
        {"train.seed=7", "train.seed was 1 and is 7 now"},
        {"data.shuffle=false", "data.shuffle was true and is false now"},
        {"model.d_model=32", "model.d_model was 16 and is 32 now"},
        {"model.n_layer=3", "model.n_layer was 2 and is 3 now"},
        {"model.frozen=[\"wpe.*\"]", "model.frozen was [] and is [\"wpe.*\"] now"},
        {"data.ignored_token=3", "data.ignored_token was null and is 3 now"},
        {"data.train=other.u16", "data.train has changed: it was "},
        {"optimizer.name=sgd",
         "saved with optimizer.name: adamw, but this job has sgd; go on with optimizer.name: adamw, or start anew "
         "with checkpoint.resume: never"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_eq(check_job(small_job, SET(cases[i].setting)), SHERD_DATA, "%s", cases[i].setting);
        cr_expect_not_null(strstr(sherd_last_error(), cases[i].says), "%s: %s", cases[i].setting, sherd_last_error());
        cr_expect_not_null(strstr(sherd_last_error(), "step-00000004"));
    }
    run_job(small_job, SET("train.seed=7"), &result);
    cr_assert_eq(result.status[0], SHERD_DATA);
    /* What may change. */
    cr_assert_eq(check_job(small_job, SET("run.ranks=2", "shard.stage=1")), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(check_job(small_job, SET("optimizer.lr=1e-3", "train.global_batch=6", "model.init=random")), SHERD_OK,
                 "%s", sherd_last_error());
    cr_assert_eq(check_job(small_job, SET("checkpoint.resume=nowhere")), SHERD_DATA);
    cr_assert_not_null(strstr(sherd_last_error(), "checkpoint.resume: there is no complete checkpoint at "));
}

Test(train, refuses_to_go_on_in_another_layout_before_it_starts) {
    job_result result;
    run_job(small_job, SET("train.steps=4", "run.ranks=2", "optimizer.name=sgd"), &result);
    expect_ok(&result);
    cr_assert_eq(check_job(small_job, SET("run.ranks=2", "optimizer.name=sgd")), SHERD_OK, "%s", sherd_last_error());
    cr_assert_eq(check_job(small_job, SET("run.ranks=2", "optimizer.name=sgd", "optimizer.momentum=0.5")), SHERD_DATA);
    cr_assert_not_null(strstr(sherd_last_error(), "step-00000004: saved with 0 values of optimizer state for each "));
}

/* What each rank stores does not depend on how it computes: the next loss is that of a run in one go. */
Test(train, goes_on_with_other_micro_batches_gathers_prefetch_and_threads) {
    static const char *const settings[] = {"train.micro_batch=2", "train.recompute=unit", "train.recompute=attention",
                                           "shard.gather=copy",   "shard.prefetch=0",     "run.threads=2"};
    job_result whole, result;
    run_job(small_job, SET("train.steps=5", "run.ranks=2", "optimizer.schedule=constant"), &whole);
    expect_ok(&whole);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        char dir[32];
        snprintf(dir, sizeof dir, "checkpoint.dir=other%zu", i);
        run_job(small_job, SET("train.steps=4", "run.ranks=2", "optimizer.schedule=constant", dir), &result);
        expect_ok(&result);
        run_job(small_job, SET("train.steps=5", "run.ranks=2", "optimizer.schedule=constant", dir, settings[i]),
                &result);
        expect_ok(&result);
        cr_assert_eq(result.step_count, 1, "%s", settings[i]);
        cr_assert_eq(result.steps[0].loss, whole.steps[4].loss, "%s", settings[i]);
    }
}

Test(train, does_not_start_afresh_beside_a_checkpoint_that_it_cannot_read) {
    job_result result;
    run_job(small_job, SET("train.steps=4"), &result);
    expect_ok(&result);
    cr_assert_eq(symlink("step-00000008", "ckpt/step-00000008"), 0);
    cr_assert_eq(check_job(small_job, NULL), SHERD_DATA);
    cr_assert_not_null(strstr(sherd_last_error(), "ckpt/step-00000008, which may be the newest checkpoint: "));
}

Test(train, goes_on_at_the_next_sequence_when_the_batch_changes) {
    job_result result;
    run_job(small_job, SET("train.steps=4"), &result);
    run_job(small_job, SET("train.steps=8", "train.global_batch=6", "log.dir=log2"), &result);
    expect_ok(&result);
    cr_assert_eq(result.summary.tokens_seen, (4 * 12 + 4 * 6) * 8);
}

static char logged[16384];
static void keep_line(void *user, sherd_log_level level, const char *line) {
    (void)user, (void)level;
    snprintf(logged + strlen(logged), sizeof logged - strlen(logged), "%s\n", line);
}

Test(train, hints_at_the_learning_rate_when_the_batch_changes) {
    job_result result;
    sherd_log_set(keep_line, NULL, SHERD_LOG_INFO);
    run_job(small_job, SET("train.steps=4"), &result);
    expect_ok(&result);
    static const char hint[] =
        "a step sees 0.5 times the sequences it saw; by the linear scaling rule optimizer.lr "
        "would be 0.005 (by the square-root rule, usual with adamw, 0.007071); it is 0.01, as before\n";
    const struct {
        const char *batch, *other;
        bool hinted;
    } cases[] = {{"train.global_batch=6", "train.steps=12", true},
                 {"train.global_batch=12", "train.steps=12", false},
                 {"train.global_batch=6", "optimizer.lr=5e-3", false}}; /* thought about */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        logged[0] = 0;
        run_job(small_job,
                SET(cases[i].batch, cases[i].other, "checkpoint.resume=ckpt/step-00000004", "log.dir=other",
                    "checkpoint.dir=other"),
                &result);
        expect_ok(&result);
        cr_expect_eq(strstr(logged, hint) != NULL, cases[i].hinted, "%s, %s: %s", cases[i].batch, cases[i].other,
                     logged);
        cr_expect_eq(strstr(logged, "scaling rule") != NULL, cases[i].hinted);
    }
    logged[0] = 0;
    run_job(small_job,
            SET("train.global_batch=24", "optimizer.warmup_steps=0", "optimizer.warmup_tokens=500",
                "checkpoint.resume=ckpt/step-00000004", "log.dir=other", "checkpoint.dir=other"),
            &result);
    expect_ok(&result);
    cr_assert_not_null(strstr(logged, "resuming: optimizer.warmup_tokens are the first 3 steps now\n"), "%s", logged);
    /* 2 warm-up steps of 192 tokens are over, in the third the rise ends. */
    cr_assert_eq(result.steps[0].step, 5);
}

/* A change is told whole, or cut with a mark. */
Test(train, tells_which_groups_have_changed) {
    job_result result;
    char groups[1024] = "optimizer.groups=[{match: wpe.weight, lr_factor: 0.5}";
    run_job(small_job, SET("train.steps=4", "optimizer.groups=[{match: wpe.weight, lr_factor: 0.5}]"), &result);
    expect_ok(&result);
    for (int i = 0; i < 12; i++)
        sprintf(groups + strlen(groups), ", {match: h.%d.%s}", i % 2,
                (const char *const[]){"ln_1.*", "ln_2.*", "mlp.c_fc.*", "mlp.c_proj.*", "attn.c_attn.*",
                                      "attn.c_proj.*"}[i / 2]);
    strcat(groups, "]");
    sherd_log_set(keep_line, NULL, SHERD_LOG_INFO);
    run_job(small_job, SET("train.steps=6", groups), &result);
    expect_ok(&result);
    char *line = strstr(logged, "optimizer.groups was ");
    cr_assert_not_null(line, "%s", logged);
    *strchr(line, '\n') = 0;
    static const char start[] =
        "optimizer.groups was [{\"match\": \"wpe.weight\", \"lr_factor\": 0.5, \"weight_decay\": null, \"optimizer\": "
        "\"auto\"}] and is [{\"match\": \"wpe.weight\", \"lr_factor\": 0.5, \"weight_decay\": null, \"optimizer\": "
        "\"auto\"}, {\"match\": \"h.0.ln_1.*\", ";
    cr_assert_eq(strncmp(line, start, strlen(start)), 0, "%s", line);
    cr_assert_not_null(strstr(line, "… now"), "%s", line);
    for (const char *at = line; *at; at++) cr_assert((unsigned char)*at >= 0x20, "%s", line);
}

/* --- what goes wrong ---------------------------------------------------------------------------------------------- */

Test(train, names_the_step_at_which_numbers_stop_being_finite) {
    job_result result;
    run_job(small_job, SET("optimizer.lr=1e38", "optimizer.warmup_steps=0", "train.clip=0", "run.on_nonfinite=abort"),
            &result);
    cr_assert_eq(result.status[0], SHERD_NUMERIC);
    cr_assert_eq(strncmp(result.cause, "step ", 5), 0, "%s", result.cause);
    cr_assert_eq(atoll(result.cause + 5), result.step_count, "%s after %d rows", result.cause, (int)result.step_count);
}

/* One rank meets it; the others fail because of that one, and none hangs. */
Test(train, ends_on_every_rank_when_one_meets_a_bad_token) {
    size_t length;
    char *bytes = read_file("tokens.u16", &length);
    bytes[2 * 8 * 99 + 6] = 60; /* in sequence 99, which rank 0 has at step 8 */
    bytes[2 * 8 * 99 + 7] = 0;
    write_file("tokens.u16", bytes, length);
    free(bytes);
    job_result result;
    run_job(small_job, SET("data.shuffle=false", "run.ranks=3"), &result);
    cr_assert_eq(result.step_count, 8);
    int told = 0;
    for (int r = 0; r < 3; r++) {
        cr_assert(result.status[r] == SHERD_DATA || result.status[r] == SHERD_PEER, "rank %d: %d", r, result.status[r]);
        told += result.status[r] == SHERD_DATA;
    }
    cr_assert_eq(told, 1);
    cr_assert_not_null(strstr(result.cause, "token 60 at byte 1590 is not below model.vocab_size 60"), "%s",
                       result.cause);
}

Test(train, is_refused_before_it_starts_when_its_files_are_wrong) {
    make_tokens("short.u16", 8, 1);
    write_text("init.safetensors", "no weights");
    const struct {
        const char *setting, *says;
    } cases[] = {
        {"data.train=none.u16", "none.u16: cannot open the token file: No such file or directory"},
        {"data.train=short.u16", "short.u16: 8 tokens are too few; model.context 8 needs at least 9"},
        {"data.validation=short.u16", "short.u16: 8 tokens are too few"},
        {"data.format=llmc", "bad llmc header: magic"},
        {"model.init=init.safetensors", "init.safetensors"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_eq(check_job(small_job, SET(cases[i].setting)), SHERD_DATA, "%s", cases[i].setting);
        cr_expect_not_null(strstr(sherd_last_error(), cases[i].says), "%s: %s", cases[i].setting, sherd_last_error());
    }
    const struct {
        const char *setting, *says;
    } patterns[] = {
        {"model.frozen=[\"no.such.*\"]", ": model.frozen: \"no.such.*\" matches no tensor; there are wte.weight, "},
        {"optimizer.decay=[h.0.*]", NULL},
        {"optimizer.decay=[h.0.*, h.2.*]", ": optimizer.decay: \"h.2.*\" matches no tensor; there are wte.weight, "},
        {"optimizer.groups=[{match: h.0.*}, {match: h.9.*}]",
         ": optimizer.groups[1].match: \"h.9.*\" matches no tensor; "},
        {"optimizer.groups=[{match: h.0.*, optimizer: muon}]",
         ": optimizer.groups[0].optimizer is muon, but only with optimizer.name muon can groups choose; take auto"},
        {"optimizer.warmup_tokens=96",
         ": optimizer.warmup_tokens is 96, and optimizer.warmup_steps is 3; give one of them"},
    };
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        char says[256];
        sherd_status expected = patterns[i].says ? SHERD_CONFIG : SHERD_OK;
        cr_expect_eq(check_job(small_job, SET(patterns[i].setting)), expected, "%s", patterns[i].setting);
        if (!patterns[i].says) continue;
        snprintf(says, sizeof says, "--set %s%s", patterns[i].setting, patterns[i].says);
        cr_expect_eq(strncmp(sherd_last_error(), says, strlen(says)), 0, "%s: %s", patterns[i].setting,
                     sherd_last_error());
    }
    cr_assert_eq(check_job(small_job, NULL), SHERD_OK);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

Test(train, leaves_no_memory_behind) {
    job_result result;
    run_job(small_job, SET("data.validation=val.u16", "train.evaluate_every=3", "checkpoint.every=4"), &result);
    expect_ok(&result);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_ARENA), 0);
}
