/* What recomputing activations saves, and that it changes nothing else: twelve blocks, the bytes counted by hand. */
#include "tests/io/make_job.h"
#include "tests/train/run_job.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { BLOCKS = 12, CHOICES = 3 };

static void prepare(void) {
    enter_fresh_folder();
    make_tokens("tokens.u16", 2000, 1);
}

TestSuite(recompute, .init = prepare, .fini = leave_fresh_folder, .timeout = 60);

static const char job_format[] = "name: deep\n"
                                 "model: {%s, vocab_size: 60, context: 32, d_model: 48, n_layer: 12, n_head: 3}\n"
                                 "data: {train: tokens.u16}\n"
                                 "train: {steps: 2, global_batch: 4, micro_batch: 2}\n"
                                 "optimizer: {lr: 1.0e-2}\n"
                                 "checkpoint: {every: 0, resume: never}\n"
                                 "run: {threads: 1, timeout_s: 30, start_timeout_s: 30}\n";

/* `whole` and `part`: bytes that one block leaves to its backward, and those of them that attention can make again.
 * Eleven of twelve blocks do not keep them. */
static void check(const char *family, const char *ranks, const char *stage, int64_t whole, int64_t part) {
    static const char *const choices[CHOICES] = {"train.recompute=none", "train.recompute=unit",
                                                 "train.recompute=attention"};
    const int64_t saved[CHOICES] = {0, (BLOCKS - 1) * whole, (BLOCKS - 1) * part};
    char job[1024];
    snprintf(job, sizeof job, job_format, family);
    job_result results[CHOICES];
    for (int c = 0; c < CHOICES; c++) {
        job_result *result = &results[c];
        run_job(job, (const char *const[]){ranks, stage, choices[c], NULL}, result);
        cr_assert(result->status[0] == SHERD_OK && result->step_count == 2, "%s: %s", choices[c], result->cause);
        for (int s = 0; s < 2; s++) {
            cr_assert_eq(result->steps[s].peak_bytes, results[0].steps[0].peak_bytes - saved[c],
                         "%s: %lld bytes at the peak, %lld saved were expected of %lld", choices[c],
                         (long long)result->steps[s].peak_bytes, (long long)saved[c],
                         (long long)results[0].steps[0].peak_bytes);
            cr_assert_eq(result->steps[s].loss, results[0].steps[s].loss);
            cr_assert_eq(result->steps[s].grad_norm, results[0].steps[s].grad_norm);
        }
    }
}

/* 64 rows. Queries, keys and values 144, attended 48, log-sums 3 floats a row: 49920 bytes. After attention 48, inner
 * activations 192 floats a row: 61440 bytes. */
Test(recompute, of_gpt2_saves_what_eleven_blocks_do_not_keep) {
    check("family: gpt2", "run.ranks=1", "shard.stage=0", 49920 + 61440, 49920);
    check("family: gpt2", "run.ranks=2", "shard.stage=1", 49920 + 61440, 49920);
    check("family: gpt2", "run.ranks=2", "shard.stage=3", 49920 + 61440, 49920);
}

/* One key-value head of three: queries, keys and values 48 + 2·16, attended 48, log-sums 3 floats a row: 33536 bytes.
 * After attention 48, two inner activations of 80 floats a row: 53248 bytes. */
Test(recompute, of_llama_saves_what_eleven_blocks_do_not_keep) {
    static const char family[] = "family: llama, n_kv_head: 1, d_ff: 80";
    check(family, "run.ranks=1", "shard.stage=0", 33536 + 53248, 33536);
    check(family, "run.ranks=2", "shard.stage=2", 33536 + 53248, 33536);
}
