/* Texts from checkpoints: with the cache and without, alone and among others; and those that training logs. */
#include "runtime/base/memory.h"
#include "runtime/train/generate.h"
#include "runtime/train/sample.h"
#include "tests/io/make_job.h"
#include "tests/train/run_job.h"

#include <criterion/criterion.h>
#include <sherd/log.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void prepare(void) {
    enter_fresh_folder();
    make_tokens("tokens.u16", 2000, 1);
    make_tokens("val.u16", 700, 2);
}

TestSuite(generate, .init = prepare, .fini = leave_fresh_folder, .timeout = 120);

#define SET(...) ((const char *const[]){__VA_ARGS__, NULL})

enum { MOST_TEXTS = 16, MOST_TOKENS = 256 };

/* What a sink was handed. */
typedef struct texts {
    int32_t tokens[MOST_TEXTS][MOST_TOKENS];
    int64_t counts[MOST_TEXTS], current;
    int begun, ended;
} texts;

static void begin(void *user, int64_t sample) {
    texts *t = user;
    cr_assert_eq(sample, t->begun);
    t->begun++;
    t->current = sample;
}

static void token(void *user, int32_t id) {
    texts *t = user;
    t->tokens[t->current][t->counts[t->current]++] = id;
}

static void end(void *user, int64_t sample) {
    texts *t = user;
    cr_assert_eq(sample, t->ended);
    t->ended++;
}

static sherd_status generate(const shd_generate *request, texts *out) {
    memset(out, 0, sizeof *out);
    return shd_generate_run(request, &(shd_generate_sink){.begin = begin, .token = token, .end = end, .user = out});
}

static void expect_texts(const shd_generate *request, texts *out) {
    cr_assert_eq(generate(request, out), SHERD_OK, "%s", sherd_last_error());
    cr_assert(out->begun == request->sample_count && out->ended == request->sample_count);
}

static const int32_t prompt[] = {3, 14, 15, 9, 26};

static shd_generate request_of(int64_t prompt_count, double temperature) {
    return (shd_generate){.checkpoint = "ckpt",
                          .prompt = prompt,
                          .prompt_count = prompt_count,
                          .token_count = 40,
                          .sample_count = 1,
                          .end_token = -1,
                          .draw = {.temperature = temperature, .top_p = 1, .seed = 7},
                          .threads = 1};
}

static void train_small(const char *family) {
    job_result result;
    if (!strcmp(family, "gpt2"))
        run_job(small_job, SET("optimizer.lr=3e-2"), &result);
    else
        run_job(small_job,
                SET("model.family=llama", "model.d_ff=24", "model.n_head=4", "model.n_kv_head=2", "optimizer.lr=3e-2"),
                &result);
    cr_assert_eq(result.status[0], SHERD_OK, "%s", result.cause);
}

/* Context 8, 40 tokens: the window moves many times. */
static void compare_with_recomputed(const char *family) {
    train_small(family);
    for (int64_t count = 1; count <= 5; count += 2)
        for (int warm = 0; warm < 2; warm++) {
            texts cached, whole;
            shd_generate request = request_of(count, warm ? 1.0 : 0.0);
            expect_texts(&request, &cached);
            request.recompute = true;
            expect_texts(&request, &whole);
            cr_assert_eq(cached.counts[0], 40);
            cr_assert_eq(memcmp(&cached, &whole, sizeof cached), 0, "%s, prompt of %d", family, (int)count);
        }
}

Test(generate, gives_gpt2_the_same_ids_with_the_cache_and_without) { compare_with_recomputed("gpt2"); }
Test(generate, gives_llama_the_same_ids_with_the_cache_and_without) { compare_with_recomputed("llama"); }

Test(generate, gives_a_text_that_neither_threads_nor_other_texts_change) {
    train_small("llama");
    texts first, other;
    shd_generate request = request_of(5, 1.0);
    request.sample_count = 5;
    expect_texts(&request, &first);
    for (int i = 1; i < 5; i++)
        cr_assert_neq(memcmp(first.tokens[0], first.tokens[i], sizeof first.tokens[0]), 0, "texts 0 and %d", i);
    request.threads = 3;
    expect_texts(&request, &other);
    cr_assert_eq(memcmp(&first, &other, sizeof first), 0);
    request.sample_count = 2;
    request.token_count = 1; /* the window has not moved when the second begins */
    expect_texts(&request, &other);
    for (int i = 0; i < 2; i++) cr_assert_eq(other.tokens[i][0], first.tokens[i][0]);
    request.draw.seed++;
    request.token_count = 40;
    expect_texts(&request, &other);
    cr_assert_neq(memcmp(first.tokens[0], other.tokens[0], sizeof first.tokens[0]), 0);
}

Test(generate, ends_a_text_at_its_end_token) {
    train_small("gpt2");
    texts all, part;
    shd_generate request = request_of(3, 1.0);
    expect_texts(&request, &all);
    request.end_token = all.tokens[0][11];
    int64_t at = 0;
    while (all.tokens[0][at] != request.end_token) at++;
    expect_texts(&request, &part);
    cr_assert_eq(part.counts[0], at);
    cr_assert_eq(memcmp(part.tokens[0], all.tokens[0], (size_t)at * sizeof(int32_t)), 0);
    request.token_count = 0;
    expect_texts(&request, &part);
    cr_assert_eq(part.counts[0], 0);
}

Test(generate, refuses_what_is_no_token_and_vocabularies_that_are_no_bytes) {
    train_small("gpt2");
    texts out;
    shd_generate request = request_of(3, 1.0);
    request.bytes = true;
    cr_assert_eq(generate(&request, &out), SHERD_DATA);
    cr_assert_not_null(strstr(sherd_last_error(), "60 tokens, not the 256 bytes"), "%s", sherd_last_error());
    request = request_of(0, 1.0);
    cr_assert_eq(generate(&request, &out), SHERD_CONFIG);
    request = request_of(1, 1.0);
    request.prompt = &(int32_t){60};
    cr_assert_eq(generate(&request, &out), SHERD_CONFIG);
    cr_assert_not_null(strstr(sherd_last_error(), "token 60 of the prompt"), "%s", sherd_last_error());
    request = request_of(1, 1.0);
    request.end_token = 60;
    cr_assert_eq(generate(&request, &out), SHERD_CONFIG);
    request = request_of(1, 1.0);
    request.checkpoint = "log";
    cr_assert_eq(generate(&request, &out), SHERD_DATA);
    cr_assert_eq(out.begun, 0);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_ARENA), 0);
}

/* --- texts of a run ----------------------------------------------------------------------------------------------- */

/* The lines that rank 0 logs of its texts. */
typedef struct log_lines {
    char text[1 << 16];
    size_t length;
} log_lines;

static void take_line(void *user, sherd_log_level level, const char *line) {
    log_lines *lines = user;
    (void)level;
    if (strncmp(line, "  | ", 4) != 0 && strncmp(line, "after step", 10) != 0) return;
    lines->length += (size_t)snprintf(lines->text + lines->length, sizeof lines->text - lines->length, "%s\n", line);
}

static void run_writing(const char *const *settings, job_result *result, log_lines *lines) {
    lines->length = 0;
    lines->text[0] = 0;
    sherd_log_set(take_line, lines, SHERD_LOG_INFO);
    run_job(small_job, settings, result);
    sherd_log_set(NULL, NULL, SHERD_LOG_ERROR);
    for (int r = 0; r < MAX_RANKS; r++)
        cr_assert_eq(result->status[r], SHERD_OK, "rank %d: status %d; %s", r, result->status[r], result->cause);
}

#define WRITING                                                                                                        \
    "model.vocab_size=257", "data.validation=val.u16", "train.evaluate_every=5", "train.evaluate_sequences=20",        \
        "checkpoint.resume=never", "train.sample_tokens=30"

static log_lines first_lines, other_lines;

Test(generate, writes_the_same_texts_while_training_on_any_number_of_ranks) {
    static const char *const shapes[][3] = {
        {"run.ranks=1", "shard.stage=3", "shard.gather=auto"},
        {"run.ranks=2", "shard.stage=3", "shard.gather=shared"},
        {"run.ranks=3", "shard.stage=3", "shard.gather=copy"},
        {"run.ranks=4", "shard.stage=1", "shard.gather=auto"},
        {"run.ranks=3", "shard.stage=0", "shard.gather=auto"},
        {"run.ranks=4", "shard.stage=2", "shard.gather=copy"},
        {"run.ranks=2", "run.threads=2", "shard.gather=shared"},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        job_result result;
        log_lines *lines = i ? &other_lines : &first_lines;
        run_writing(SET(WRITING, shapes[i][0], shapes[i][1], shapes[i][2]), &result, lines);
        cr_assert_not_null(strstr(lines->text, "after step 5 the model writes:\n  | "), "%s", lines->text);
        cr_assert_not_null(strstr(lines->text, "after step 12 the model writes:\n  | "), "%s", lines->text);
        if (i)
            cr_assert_str_eq(other_lines.text, first_lines.text, "%s, %s, %s", shapes[i][0], shapes[i][1],
                             shapes[i][2]);
    }
}

Test(generate, does_not_change_the_training_it_shows) {
    job_result with, without;
    run_writing(SET(WRITING, "run.ranks=2"), &with, &first_lines);
    run_writing(SET(WRITING, "run.ranks=2", "train.sample_tokens=0"), &without, &other_lines);
    cr_assert_str_empty(other_lines.text);
    for (int s = 0; s < 12; s++) {
        cr_assert_eq(with.steps[s].loss, without.steps[s].loss, "step %d", s);
        cr_assert(with.steps[s].validation_loss == without.steps[s].validation_loss || s % 5 != 4);
        if (s > 0) cr_assert_eq(with.allocations[s], 0, "step %d: %d calls", s, (int)with.allocations[s]);
    }
}

/* The text after the last step is sample number 12 of the checkpoint that was saved there. */
Test(generate, writes_while_training_what_sample_draws_from_the_checkpoint) {
    job_result result;
    run_writing(SET(WRITING, "train.seed=5", "run.ranks=2"), &result, &first_lines);
    texts drawn;
    shd_generate request = request_of(0, 0.8);
    request.token_count = 30;
    request.sample_count = 13;
    request.draw.seed = 5;
    request.bytes = true;
    expect_texts(&request, &drawn);
    char expected[1000] = "  | ";
    size_t length = strlen(expected);
    for (int64_t i = 0; i < drawn.counts[12]; i++) {
        int32_t byte = drawn.tokens[12][i];
        bool plain = byte >= 0x20 && byte < 0x7f;
        length += (size_t)snprintf(expected + length, 8, byte == '\n' ? "\n  | " : plain ? "%c" : "\\x%02x", byte);
    }
    const char *logged = strstr(first_lines.text, "after step 12 the model writes:\n");
    cr_assert_not_null(logged);
    logged = strchr(logged, '\n') + 1;
    cr_assert_eq(strncmp(logged, expected, length), 0, "%s\nis not\n%s", logged, expected);
}

/* Half of the tokens end a text, so texts end at once or soon, and the passes that the other ranks count on go on. */
Test(generate, ends_texts_early_while_training_and_no_rank_is_left_waiting) {
    static uint16_t tokens[2000];
    for (int i = 0; i < 2000; i++) tokens[i] = i % 2 ? 256 : (uint16_t)('a' + i / 2 % 7 * (i / 2 % 3));
    write_file("tokens.u16", tokens, sizeof tokens);
    job_result result;
    run_writing(SET(WRITING, "train.steps=60", "train.evaluate_every=20"), &result, &first_lines);
    run_writing(SET(WRITING, "train.steps=60", "train.evaluate_every=20", "run.ranks=3", "shard.gather=copy"), &result,
                &other_lines);
    cr_assert_str_eq(other_lines.text, first_lines.text);
    int written = 0;
    for (const char *at = first_lines.text; (at = strstr(at, "after step")) != NULL; at++) written++;
    cr_assert_eq(written, 3);
    const char *last = strstr(first_lines.text, "after step 60 the model writes:\n");
    cr_assert_not_null(last);
    cr_assert_lt(strlen(last), strlen("after step 60 the model writes:\n  | ") + 20, "%s", last);
}

Test(generate, takes_the_memory_beside_the_plan_that_sherd_plan_shows) {
    job_result with, without;
    run_writing(SET(WRITING, "run.ranks=2"), &with, &first_lines);
    run_writing(SET(WRITING, "run.ranks=2", "train.sample_tokens=0"), &without, &other_lines);
    shd_job *job;
    int64_t bytes;
    const shd_job_setting settings[] = {{.text = "model.vocab_size=257"},
                                        {.text = "data.validation=val.u16"},
                                        {.text = "train.evaluate_every=5"},
                                        {.text = "train.sample_tokens=30"}};
    cr_assert_eq(shd_job_load("job.yaml", settings, 4, &job), SHERD_OK);
    cr_assert_eq(shd_sample_bytes(job, &bytes), SHERD_OK);
    shd_job_destroy(job);
    cr_assert_gt(bytes, 0);
    cr_assert_eq(with.steps[0].peak_bytes - without.steps[0].peak_bytes, bytes);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_ARENA), 0);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}
