#include "runtime/report/report.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/report/page.h"

sherd_status shd_report_make(const char *dir, double made_s, char **html) {
    shd_run_record *record = shd_alloc(1, sizeof *record);
    if (!record) return shd_fail(SHERD_MEMORY, "out of memory for a report");
    sherd_status status = shd_run_record_read(dir, record);
    if (status == SHERD_OK) status = shd_page_make(record, made_s, html);
    shd_run_record_release(record);
    shd_free(record);
    return status;
}

void shd_report_release(char *html) { shd_free(html); }
