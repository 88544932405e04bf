/* `sherd plan` as a user sees it: its command is run here, with standard output and error kept in files. */
#include "runtime/cli/commands.h"
#include "runtime/cli/job_arguments.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VOCAB = 257, CONTEXT = 32, WIDTH = 48, LAYERS = 3, GLOBAL_BATCH = 8, MICRO_BATCH = 2 };

static const char job_text[] =
    "name: three-layers\n"
    "model: {family: gpt2, vocab_size: 257, context: 32, d_model: 48, n_layer: 3, n_head: 3}\n"
    "data: {train: tokens.bin}\n"
    "train: {steps: 60, global_batch: 8, micro_batch: 2}\n"
    "optimizer: {lr: 3.0e-3}\n";

typedef struct outcome {
    int exit_code;
    char *out, *err; /* the caller frees them */
} outcome;

static char *read_back(FILE *file) {
    long bytes = ftell(file);
    char *text = calloc((size_t)bytes + 1, 1);
    rewind(file);
    cr_assert_eq(fread(text, 1, (size_t)bytes, file), (size_t)bytes);
    fclose(file);
    return text;
}

/* Sends `stream` to a temporary file; *kept is where it went before. */
static FILE *divert(FILE *stream, int *kept) {
    FILE *file = tmpfile();
    fflush(stream);
    *kept = dup(fileno(stream));
    dup2(fileno(file), fileno(stream));
    return file;
}

static void restore(FILE *stream, int kept, FILE *file) {
    fflush(stream);
    dup2(kept, fileno(stream));
    close(kept);
    fseek(file, 0, SEEK_END);
}

/* Runs `sherd plan JOB` and up to 8 more arguments, the last NULL. */
static outcome run_plan(const char *const *more) {
    char path[] = "/tmp/sherd-plan-XXXXXX";
    int file = mkstemp(path);
    cr_assert_eq(write(file, job_text, sizeof job_text - 1), (ssize_t)sizeof job_text - 1);
    close(file);
    char *argv[10] = {path};
    int argc = 1;
    for (; *more; more++) argv[argc++] = (char *)*more;
    int kept_out, kept_err;
    FILE *out = divert(stdout, &kept_out), *err = divert(stderr, &kept_err);
    outcome result = {.exit_code = shd_command_plan.run(&shd_command_plan, argc, argv)};
    restore(stdout, kept_out, out);
    restore(stderr, kept_err, err);
    result.out = read_back(out);
    result.err = read_back(err);
    unlink(path);
    return result;
}

#define PLAN(...) run_plan((const char *const[]){__VA_ARGS__, NULL})

static void forget(outcome result) {
    free(result.out);
    free(result.err);
}

static json_int_t integer_of(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    cr_assert(json_is_integer(value), "%s is no integer", key);
    return json_integer_value(value);
}

static json_t *parse(const char *text) {
    json_error_t error;
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    cr_assert_not_null(json, "line %d: %s", error.line, error.text);
    return json;
}

/* GPT-2 with tied embeddings: two embeddings, 12 d² + 13 d a block, the last norm. */
static const json_int_t parameters = (VOCAB + CONTEXT) * WIDTH + LAYERS * (12 * WIDTH * WIDTH + 13 * WIDTH) + 2 * WIDTH;

static void check_json(const json_t *json, int ranks, int stage, const char *gather) {
    cr_assert_str_eq(json_string_value(json_object_get(json, "job")), "three-layers");
    cr_assert_eq(integer_of(json, "ranks"), ranks);
    cr_assert_eq(integer_of(json, "stage"), stage);
    cr_assert_eq(integer_of(json, "parameters"), parameters);
    cr_assert_eq(integer_of(json, "trainable"), parameters);
    cr_assert_eq(integer_of(json, "units"), LAYERS + 2);
    const json_t *stages = json_object_get(json, "stages");
    cr_assert_eq(json_array_size(stages), 4);
    for (int s = 0; s < 4; s++) {
        const json_t *row = json_array_get(stages, (size_t)s), *categories = json_object_get(row, "categories"), *value;
        const char *key;
        json_int_t sum = 0, states[] = {16 * parameters, 8 * parameters + 8 * parameters / ranks,
                                        4 * parameters + 12 * parameters / ranks, 16 * parameters / ranks};
        cr_assert_eq(integer_of(row, "stage"), s);
        cr_assert_str_eq(json_string_value(json_object_get(row, "gather")), s && ranks > 1 ? gather : "none");
        json_object_foreach((json_t *)categories, key, value) sum += json_integer_value(value);
        cr_assert_eq(json_object_size(categories), 9);
        cr_assert_eq(integer_of(row, "allocated_bytes"), sum);
        /* The papers' formula, and at most a block a unit and rank of padding. */
        json_int_t padding = integer_of(row, "model_state_bytes") - states[s];
        cr_assert(padding >= 0 && padding <= 16 * (LAYERS + 2) * 256 * (s < 3 ? ranks : 1) + 16 * 16 * 12 * LAYERS,
                  "stage %d: %lld more than the formula", s, padding);
    }
    json_int_t charged = 0;
    size_t i;
    json_t *buffer;
    json_array_foreach(json_object_get(json, "buffers"), i, buffer) charged += integer_of(buffer, "charged_bytes");
    cr_assert_eq(charged, integer_of(json_array_get(stages, (size_t)stage), "allocated_bytes"));
}

Test(plan_command, prints_json_whose_parts_add_up) {
    static const struct {
        const char *ranks, *stage, *gather;
        const char *word;
    } cases[] = {{"1", "3", "auto", "none"},     {"2", "0", "auto", "shared"}, {"2", "1", "copy", "copy"},
                 {"4", "2", "shared", "shared"}, {"4", "3", "copy", "copy"},   {"2", "3", "auto", "shared"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char stage[40], gather[40];
        snprintf(stage, sizeof stage, "shard.stage=%s", cases[i].stage);
        snprintf(gather, sizeof gather, "shard.gather=%s", cases[i].gather);
        outcome result = PLAN("-n", cases[i].ranks, "--set", stage, "--set", gather, "--json");
        cr_assert_eq(result.exit_code, SHD_EXIT_DONE, "case %zu: %s", i, result.err);
        json_t *json = parse(result.out);
        check_json(json, atoi(cases[i].ranks), atoi(cases[i].stage), cases[i].word);
        json_decref(json);
        forget(result);
    }
}

/* 1234567 as in the tables: "1,234,567". */
static void with_commas(json_int_t value, char text[40]) {
    char reversed[40];
    int length = 0;
    for (int digits = 0; digits == 0 || value > 0; digits++, value /= 10) {
        if (digits > 0 && digits % 3 == 0) reversed[length++] = ',';
        reversed[length++] = (char)('0' + value % 10);
    }
    for (int i = 0; i < length; i++) text[i] = reversed[length - 1 - i];
    text[length] = '\0';
}

Test(plan_command, shows_the_bytes_of_every_category_and_stage) {
    outcome table = PLAN("-n", "2", "--set", "shard.gather=copy"),
            data = PLAN("-n", "2", "--set", "shard.gather=copy", "--json");
    cr_assert(table.exit_code == SHD_EXIT_DONE && data.exit_code == SHD_EXIT_DONE, "%s%s", table.err, data.err);
    json_t *json = parse(data.out);
    const json_t *stages = json_object_get(json, "stages"), *chosen = json_array_get(stages, 3), *value;
    const char *key;
    char number[40];
    json_object_foreach(json_object_get(chosen, "categories"), key, value) {
        with_commas(json_integer_value(value), number);
        const char *line = strstr(table.out, key);
        cr_assert_not_null(line, "%s is missing", key);
        const char *end = strchr(line, '\n'), *found = strstr(line, number);
        cr_assert(found && found < end, "%s: %s is not in its line", key, number);
    }
    for (size_t s = 0; s < 4; s++) {
        with_commas(integer_of(json_array_get(stages, s), "allocated_bytes"), number);
        cr_assert_not_null(strstr(table.out, number), "stage %zu: %s is missing", s, number);
        with_commas(integer_of(json_array_get(stages, s), "model_state_bytes"), number);
        cr_assert_not_null(strstr(table.out, number), "stage %zu: %s is missing", s, number);
    }
    with_commas(2 * integer_of(chosen, "allocated_bytes"), number);
    cr_assert_not_null(strstr(table.out, number), "the sum of both ranks, %s, is missing", number);
    cr_assert_not_null(strstr(table.out, "* stage 3"));
    json_decref(json);
    forget(table);
    forget(data);
}

static int count_words(const char *text, const char *word) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, word)); at += strlen(word)) count++;
    return count;
}

Test(plan_command, says_of_16_bits_that_products_pack_and_of_fp32_does_not) {
    static const char *const precisions[] = {"train.precision=fp32", "train.precision=bf16", "train.precision=fp16"};
    for (int i = 0; i < 3; i++) {
        outcome text = PLAN("-n", "2", "--set", precisions[i]);
        cr_assert_eq(text.exit_code, SHD_EXIT_DONE, "%s", text.err);
        cr_expect_eq(strstr(text.out, "'activations' include up to 3 MiB a thread") != NULL, i > 0, "%s",
                     precisions[i]);
        forget(text);
    }
}

Test(plan_command, shows_the_mesh_where_there_are_replicas) {
    outcome text = PLAN("-n", "4", "--set", "shard.replicas=2"),
            data = PLAN("-n", "4", "--set", "shard.replicas=2", "--json"), half = PLAN("-n", "2", "--json");
    cr_assert_eq(text.exit_code, SHD_EXIT_DONE, "%s", text.err);
    cr_assert_not_null(
        strstr(text.out, "\n4 ranks (2 replicas of 2), stage 3, gather shared, prefetch 1, 1 micro-batch of"));
    cr_assert_not_null(strstr(text.out, "parameters live once per replica"));
    json_t *json = parse(data.out), *split = parse(half.out);
    cr_assert(integer_of(json, "ranks") == 4 && integer_of(json, "replicas") == 2);
    cr_assert(integer_of(split, "ranks") == 2 && integer_of(split, "replicas") == 1);
    json_decref(json);
    json_decref(split);
    forget(text);
    forget(data);
    forget(half);
}

/* But for a smaller norm's work memory: with one rank in each replica too, where gradients wait for nobody. */
Test(plan_command, a_rank_holds_what_it_would_without_the_other_replicas) {
    for (int ranks = 1; ranks <= 2; ranks++) {
        const char *replicas = ranks == 1 ? "shard.replicas=4" : "shard.replicas=2";
        outcome many = PLAN("-n", "4", "--set", replicas, "--set", "run.threads=1", "--json"),
                one = PLAN("-n", ranks == 1 ? "1" : "2", "--set", "run.threads=1", "--json");
        json_t *replicated = parse(many.out), *alone = parse(one.out);
        for (size_t stage = 1; stage <= 3; stage++) {
            json_t *row = json_array_get(json_object_get(replicated, "stages"), stage),
                   *other = json_array_get(json_object_get(alone, "stages"), stage);
            json_int_t less = integer_of(other, "allocated_bytes") - integer_of(row, "allocated_bytes");
            cr_assert(less >= 0 && less < 4096, "%d ranks, stage %zu: %lld", ranks, stage, less);
            cr_assert_eq(integer_of(row, "model_state_bytes"), integer_of(other, "model_state_bytes"));
        }
        json_decref(replicated);
        json_decref(alone);
        forget(many);
        forget(one);
    }
}

Test(plan_command, shows_what_is_not_fp32) {
    outcome result = run_plan(
        (const char *const[]){"-n", "2", "--set", "train.precision=bf16", "--set", "shard.reduce_dtype=bf16", NULL});
    cr_assert_eq(result.exit_code, 0, "%s", result.err);
    cr_assert(strstr(result.out, ", precision bf16, gradients between ranks bf16, 2 micro-batches"), "%s", result.out);
    free(result.out), free(result.err);
    result = run_plan((const char *const[]){"-n", "2", "--set", "train.precision=fp16", "--json", NULL});
    json_t *plan = json_loads(result.out, 0, NULL);
    cr_assert_str_eq(json_string_value(json_object_get(plan, "precision")), "fp16");
    cr_assert_str_eq(json_string_value(json_object_get(plan, "reduce_dtype")), "fp32");
    json_decref(plan);
    free(result.out), free(result.err);
}

Test(plan_command, prints_the_step_program) {
    outcome result = PLAN("-n", "2", "--set", "shard.gather=copy", "--program");
    cr_assert_eq(result.exit_code, SHD_EXIT_DONE, "%s", result.err);
    int micro_steps = GLOBAL_BATCH / (2 * MICRO_BATCH), units = LAYERS + 2;
    cr_assert_eq(count_words(result.out, " FORWARD "), micro_steps * units);
    cr_assert_eq(count_words(result.out, " BACKWARD "), micro_steps * units);
    cr_assert_eq(count_words(result.out, " REDUCE "), micro_steps * units);
    cr_assert_eq(count_words(result.out, " UPDATE "), units);
    cr_assert_eq(count_words(result.out, " VERDICT"), 1);
    forget(result);
}

Test(plan_command, refuses_what_makes_no_sense_with_exit_code_2) {
    static const struct {
        const char *arguments[3];
        const char *said;
    } cases[] = {{{"--program", "--json"}, "do not go together"},
                 {{"other.yaml"}, "one job file"},
                 {{"--programs"}, "--program"},
                 {{"-n", "3"}, "global_batch"},
                 {{"-n", "two"}, "-n two"},
                 {{"--set", "shard.stages=1"}, "shard.stages"},
                 {{"--set", "shard.stage=4"}, "shard.stage"},
                 {{"--set"}, "needs a value"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        outcome result = run_plan(cases[i].arguments);
        cr_assert_eq(result.exit_code, SHD_EXIT_USAGE, "case %zu", i);
        cr_assert_not_null(strstr(result.err, cases[i].said), "case %zu: '%s' is not in: %s", i, cases[i].said,
                           result.err);
        cr_assert_str_eq(result.out, "");
        forget(result);
    }
}
