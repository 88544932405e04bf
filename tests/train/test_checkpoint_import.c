/* What is imported: every value where it belongs, and a checkpoint that has parameters alone. */
#include "runtime/train/checkpoint_import.h"

#include "io/checkpoint_export.h"
#include "io/checkpoint_pick.h"
#include "io/checkpoint_reader.h"
#include "runtime/base/memory.h"
#include "tests/io/llmc_files.h"
#include "tests/io/make_job.h"
#include "tests/train/run_job.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static void ignore(void *user, const shd_damage *damage, int64_t done_bytes, int64_t total_bytes) {
    (void)user, (void)damage, (void)done_bytes, (void)total_bytes;
}

TestSuite(checkpoint_import, .init = enter_fresh_folder, .fini = leave_fresh_folder, .timeout = 120);

static shd_job *job_with(const char *setting) {
    shd_job *job;
    cr_assert_eq(load_job(small_job, (const char *const[3]){setting}, &job), SHERD_OK, "%s", sherd_last_error());
    return job;
}

static sherd_status import(const char *from, const char *to, const shd_job *job) {
    char *path = NULL;
    const char *kind;
    const shd_import wanted = {.from = from, .parent = to, .job = job, .compression = 1};
    sherd_status status = shd_import_run(&wanted, &path, &kind);
    shd_job_text_free(path);
    return status;
}

Test(checkpoint_import, of_llm_c_has_parameters_alone_and_each_in_its_place) {
    const llmc_file shape = {.version = 3,
                             .context = 8,
                             .vocab_size = 60,
                             .n_layer = 2,
                             .n_head = 2,
                             .d_model = 16,
                             .padded_vocab_size = 64};
    size_t bytes;
    char *content = make_llmc(&shape, &bytes);
    write_file("gpt2.bin", content, bytes);
    free(content);
    shd_job *job = job_with(NULL);
    cr_assert_eq(import("gpt2.bin", "imported", job), SHERD_OK, "%s", sherd_last_error());
    shd_checkpoint *checkpoint;
    cr_assert_eq(shd_checkpoint_pick("imported", &checkpoint), SHERD_OK, "%s", sherd_last_error());
    const shd_checkpoint_manifest *manifest = shd_checkpoint_content(checkpoint);
    cr_assert(manifest->step == 0 && manifest->state_count == 0 && manifest->world_size == 1);
    cr_assert_str_eq(manifest->optimizer, SHD_CHECKPOINT_NO_OPTIMIZER);
    cr_assert(strstr(manifest->note, "\"imported\":{\"from\":\"gpt2.bin\",\"kind\":\"llm.c, fp32\"}"), "%s",
              manifest->note);
    float values[48 * 16];
    const shd_reader_config config = {.threads = 1, .memory = aligned_alloc(4096, (size_t)shd_reader_memory_bytes(1))};
    const shd_checkpoint_slice slice = {.tensor = "h.1.attn.c_attn.weight",
                                        .state = SHD_CHECKPOINT_PARAMETER,
                                        .count = 48 * 16,
                                        .values = values,
                                        .dtype = SHERD_FP32};
    cr_assert_eq(shd_checkpoint_read(checkpoint, &slice, 1, &config), SHERD_OK, "%s", sherd_last_error());
    /* [16, 48] here, [48, 16] there, of the second layer, behind the tables and the first norm of both layers. */
    for (int i = 0; i < 48 * 16; i++)
        cr_assert_eq(values[i], llmc_value((64 + 8 + 4) * 16 + 48 * 16 + i % 48 * 16 + i / 48));
    int64_t damaged = -1;
    cr_assert_eq(shd_checkpoint_verify(shd_checkpoint_path(checkpoint), ignore, NULL, &damaged), SHERD_OK);
    cr_assert_eq(damaged, 0);
    shd_checkpoint_close(checkpoint);
    free(config.memory);
    cr_assert_eq(import("gpt2.bin", "imported", job), SHERD_ARGUMENT);
    cr_assert(strstr(sherd_last_error(), "imported/step-00000000 is there already"), "%s", sherd_last_error());
    shd_job_destroy(job);
    job = job_with("model.n_layer=3");
    cr_assert_eq(import("gpt2.bin", "other", job), SHERD_DATA);
    cr_assert(strstr(sherd_last_error(), "h.2.ln_1.weight is missing"), "%s", sherd_last_error());
    shd_job_destroy(job);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
}

Test(checkpoint_import, of_a_checkpoint_starts_a_job_where_its_weights_were) {
    static job_result result;
    make_tokens("tokens.u16", 600, 1);
    run_job(small_job, (const char *const[]){"train.steps=4", "run.ranks=2", NULL}, &result);
    cr_assert_eq(result.status[0], SHERD_OK, "%s", result.cause);
    shd_job *job = job_with(NULL);
    cr_assert_eq(import("ckpt", "imported", job), SHERD_OK, "%s", sherd_last_error());
    shd_job_destroy(job);
    cr_assert_eq(shd_checkpoint_export("ckpt", "a"), SHERD_OK);
    cr_assert_eq(shd_checkpoint_export("imported", "b"), SHERD_OK, "%s", sherd_last_error());
    size_t a_bytes, b_bytes;
    char *a = read_file("a", &a_bytes), *b = read_file("b", &b_bytes);
    cr_assert(a_bytes == b_bytes && !memcmp(a, b, a_bytes));
    static const char *const starts[] = {"model.init=ckpt", "model.init=imported", "model.init=a"};
    static job_result runs[3];
    for (int i = 0; i < 3; i++) {
        run_job(
            small_job,
            (const char *const[]){"train.steps=4", "checkpoint.dir=again", "checkpoint.resume=never", starts[i], NULL},
            &runs[i]);
        cr_assert_eq(runs[i].status[0], SHERD_OK, "%s", runs[i].cause);
        for (int s = 0; s < 4; s++) cr_assert_eq(runs[i].steps[s].loss, runs[0].steps[s].loss);
    }
    cr_assert_lt(runs[0].steps[0].loss, result.steps[0].loss);
}
