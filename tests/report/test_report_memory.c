/* Every allocation of a report fails once: an error, and nothing left behind. */
#include "runtime/report/report.h"
#include "tests/io/make_job.h"
#include "tests/support/failing_memory.h"

#include <criterion/criterion.h>

TestSuite(report_memory, .init = enter_fresh_folder, .fini = leave_fresh_folder);

Test(report_memory, each_failing_allocation_is_an_error_and_leaks_nothing) {
    write_text("metrics.jsonl", "{\"step\":0,\"loss\":2,\"step_ms\":3,\"compute_ms\":3,\"x\":{\"y\":1}}\nbroken\n"
                                "{\"step\":1,\"loss\":\"nan\",\"step_ms\":3,\"compute_ms\":2,\"validation_loss\":1}\n");
    write_text("events.jsonl", "{\"time\":1,\"event\":\"start\",\"step\":0,\"text\":\"t\"}\n{\"event\":\"skip\"}\n");
    write_text("alerts.jsonl", "{\"step\":1,\"batch\":[{\"a\":1},{\"a\":2}]}\n");
    write_text("failure.json", "{\"rank\":0,\"time\":1772368205,\"null\":null}");
    write_text("provenance.json", "{\"job\":{\"name\":\"n\"},\"list\":[1,\"two words\"]}");
    int64_t before = failing_memory_live(), failing = 0;
    for (sherd_status status = SHERD_MEMORY; status != SHERD_OK; failing++) {
        char *html = NULL;
        failing_memory_after(failing);
        status = shd_report_make(".", 1, &html);
        failing_memory_after(INT64_MAX);
        if (status != SHERD_OK) cr_assert_eq(status, SHERD_MEMORY, "%ld: %s", (long)failing, sherd_last_error());
        if (status != SHERD_OK) cr_assert_null(html);
        shd_report_release(html);
        cr_assert_eq(failing_memory_live(), before, "allocation %ld leaks", (long)failing);
    }
    cr_assert_gt(failing, 30, "%ld allocations only", (long)failing);
}
