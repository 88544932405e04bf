/* Every allocation of a text's making fails once: an error, and nothing left behind. */
#include "runtime/train/generate.h"
#include "tests/io/make_job.h"
#include "tests/support/failing_memory.h"
#include "tests/train/run_job.h"

#include <criterion/criterion.h>

static void ignore_sample(void *user, int64_t sample) { (void)user, (void)sample; }
static void ignore_token(void *user, int32_t token) { (void)user, (void)token; }

Test(generate_memory, is_given_back_whichever_allocation_fails) {
    enter_fresh_folder();
    make_tokens("tokens.u16", 2000, 1);
    job_result result;
    run_job(small_job, (const char *const[]){"train.steps=1", "optimizer.warmup_steps=0", NULL}, &result);
    cr_assert_eq(result.status[0], SHERD_OK, "%s", result.cause);
    const int32_t prompt = 3;
    const shd_generate request = {.checkpoint = "ckpt",
                                  .prompt = &prompt,
                                  .prompt_count = 1,
                                  .token_count = 10,
                                  .sample_count = 2,
                                  .end_token = -1,
                                  .draw = {.temperature = 1, .top_k = 5, .top_p = 1},
                                  .threads = 2};
    const shd_generate_sink sink = {.begin = ignore_sample, .token = ignore_token, .end = ignore_sample};
    cr_assert_eq(failing_memory_live(), 0);
    int64_t failing = 0;
    for (sherd_status status = SHERD_MEMORY; status != SHERD_OK; failing++) {
        failing_memory_after(failing);
        status = shd_generate_run(&request, &sink);
        cr_assert(status == SHERD_OK || status == SHERD_MEMORY, "allocation %d: %d, %s", (int)failing, status,
                  sherd_last_error());
        cr_assert_eq(failing_memory_live(), 0, "allocation %d leaks", (int)failing);
        cr_assert_lt(failing, 10000);
    }
    cr_assert_gt(failing, 20);
    leave_fresh_folder();
}
