#include "runtime/train/checks/checkup.h"

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/train/checks/check_table.h"
#include "runtime/train/job_setup.h"

#include <stdio.h>
#include <string.h>

enum { MACHINE = SHD_CHECK_MACHINE, JOB = SHD_CHECK_JOB, QUICK = SHD_CHECK_JOB | SHD_CHECK_QUICK };

/* The whole flight check but for what ranks do, in order. */
static const shd_check checks[] = {
    {"system", shd_check_system, MACHINE, NULL},
    {"cpu", shd_check_cpu, MACHINE, NULL},
    {"memory", shd_check_memory, MACHINE, NULL},
    {"shared memory", shd_check_shared_memory, MACHINE, NULL},
    {"limits", shd_check_limits, MACHINE, NULL},
    {"clock", shd_check_clock, MACHINE, NULL},
    {"backends", shd_check_backends, MACHINE, NULL},
    {"devices", shd_check_devices, MACHINE, NULL},
    {"libraries", shd_check_libraries, MACHINE, NULL},
    {"plan", shd_check_plan, QUICK, NULL},
    {"job memory", shd_check_job_memory, QUICK, "plan"},
    {"model.init", shd_check_init, QUICK, "plan"},
    {"data.train", shd_check_training_data, QUICK, "plan"},
    {"checkpoint.resume", shd_check_resume, QUICK, "data.train"},
    {"data.validation", shd_check_validation_data, QUICK, "plan"},
    {"outputs", shd_check_outputs, QUICK, "plan"},
    {"files", shd_check_files, MACHINE, "outputs"},
    {"file size", shd_check_file_size, QUICK, "outputs"},
    {"other jobs", shd_check_other_jobs, JOB, "outputs"},
    {"disk", shd_check_disk, JOB, "outputs"},
};
enum { CHECK_COUNT = sizeof checks / sizeof *checks };

void shd_checkup_init(shd_checkup *checkup, const shd_job *job) {
    *checkup = (shd_checkup){.job = job, .report = SHD_REPORT_DAMAGE};
    if (job) shd_job_options(job, &checkup->options);
}

void shd_checkup_fini(shd_checkup *checkup) {
    shd_resume_fini(&checkup->from);
    shd_dataset_close(checkup->validation);
    shd_dataset_close(checkup->training);
    shd_plan_destroy(checkup->plan);
    *checkup = (shd_checkup){0};
}

/* Makes one check. */
static void make(shd_checkup *checkup, const shd_check *check, shd_finding *out) {
    double start_ms = shd_clock_ms();
    *out = (shd_finding){.check = check->name};
    sherd_status status = check->make(checkup, out);
    out->ms = shd_clock_ms() - start_ms;
    if (status == SHERD_OK) return;
    out->state = SHD_CHECK_ERROR;
    out->status = status;
    snprintf(out->text, sizeof out->text, "%s", sherd_last_error());
}

/* The index of the check of that name. */
static int find(const char *name) {
    for (int i = 0; i < CHECK_COUNT; i++)
        if (strcmp(checks[i].name, name) == 0) return i;
    return -1;
}

void shd_checkup_run(shd_checkup *checkup, unsigned when, shd_finding_sink sink, void *user) {
    bool failed[CHECK_COUNT] = {false};
    for (int i = 0; i < CHECK_COUNT; i++) {
        shd_finding found = {.check = checks[i].name};
        if (!(checks[i].when & when)) continue;
        int needed = checks[i].needs ? find(checks[i].needs) : -1;
        if (needed >= 0 && failed[needed])
            shd_finding_skip(&found, "not looked at, because of the error in %s", checks[i].needs);
        else
            make(checkup, &checks[i], &found);
        failed[i] = found.state == SHD_CHECK_ERROR || (needed >= 0 && failed[needed]);
        sink(user, &found);
    }
}

sherd_status shd_checkup_run_quick(shd_checkup *checkup) {
    for (int i = 0; i < CHECK_COUNT; i++) {
        shd_finding found;
        if (!(checks[i].when & SHD_CHECK_QUICK)) continue;
        make(checkup, &checks[i], &found);
        if (found.state == SHD_CHECK_ERROR) return found.status;
        if (found.state == SHD_CHECK_WARNING)
            shd_log(SHERD_LOG_WARN, "%s%s%s", found.text, found.advice[0] ? "; " : "", found.advice);
    }
    return SHERD_OK;
}
