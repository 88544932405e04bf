/* One check of the table in checkup.c, and all that are in it. */
#ifndef SHD_TRAIN_CHECKS_CHECK_TABLE_H
#define SHD_TRAIN_CHECKS_CHECK_TABLE_H

#include "runtime/train/checks/checkup.h"

/* Says what it has found in *out. A status other than OK is an error, whose text is sherd_last_error();
 * shd_finding_advise may have said what to do. */
typedef sherd_status (*shd_check_fn)(shd_checkup *checkup, shd_finding *out);

typedef struct shd_check {
    const char *name;
    shd_check_fn make;
    unsigned when;     /* bits of checkup.h */
    const char *needs; /* the check whose error makes this one impossible; NULL: none */
} shd_check;

/* machine_checks.c: of this machine, whatever the job. System, limits, backends and libraries only tell what is there:
 * no value of theirs is wrong by itself. */
sherd_status shd_check_system(shd_checkup *checkup, shd_finding *out);
sherd_status shd_check_cpu(shd_checkup *checkup, shd_finding *out);
sherd_status shd_check_memory(shd_checkup *checkup, shd_finding *out);
sherd_status shd_check_shared_memory(shd_checkup *checkup, shd_finding *out);
sherd_status shd_check_limits(shd_checkup *checkup, shd_finding *out);
sherd_status shd_check_clock(shd_checkup *checkup, shd_finding *out);
sherd_status shd_check_backends(shd_checkup *checkup, shd_finding *out);
sherd_status shd_check_libraries(shd_checkup *checkup, shd_finding *out);

/* device_checks.c: which GPUs are there, and what keeps the program from using them. */
sherd_status shd_check_devices(shd_checkup *checkup, shd_finding *out);

/* job_checks.c: of the job, before it has ranks. */
sherd_status shd_check_plan(shd_checkup *checkup, shd_finding *out);
sherd_status shd_check_job_memory(shd_checkup *checkup, shd_finding *out);
sherd_status shd_check_init(shd_checkup *checkup, shd_finding *out);
sherd_status shd_check_training_data(shd_checkup *checkup, shd_finding *out);
sherd_status shd_check_resume(shd_checkup *checkup, shd_finding *out);
sherd_status shd_check_validation_data(shd_checkup *checkup, shd_finding *out);
sherd_status shd_check_outputs(shd_checkup *checkup, shd_finding *out);
sherd_status shd_check_files(shd_checkup *checkup, shd_finding *out); /* also without a job */
sherd_status shd_check_file_size(shd_checkup *checkup, shd_finding *out);
sherd_status shd_check_other_jobs(shd_checkup *checkup, shd_finding *out);
sherd_status shd_check_disk(shd_checkup *checkup, shd_finding *out);

#endif
