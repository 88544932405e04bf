/* What `sherd doctor` shows of its findings: a line each as they come, or one JSON object at the end. */
#ifndef SHD_CLI_DOCTOR_REPORT_H
#define SHD_CLI_DOCTOR_REPORT_H

#include "runtime/train/checks/finding.h"

#include <jansson.h>
#include <stdbool.h>

typedef struct shd_doctor_report {
    json_t *json; /* an array; NULL: text */
    int errors, warnings;
    sherd_status first; /* error */
    double start_s;
} shd_doctor_report;

void shd_doctor_report_init(shd_doctor_report *report, bool json);
/* A shd_finding_sink; `report` is the report. */
void shd_doctor_report_take(void *report, const shd_finding *finding);
/* As training would end for the first error, where that says something of the job or its data; else 1, or 0. */
int shd_doctor_report_exit_code(const shd_doctor_report *report);
/* Says how it stands. `job`: its path, or NULL. Returns the exit code, and ends the report. */
int shd_doctor_report_finish(shd_doctor_report *report, const char *job);

#endif
