/* What the launcher's report means: in words, and as an exit code. */
#ifndef SHD_CLI_VERDICT_H
#define SHD_CLI_VERDICT_H

#include "runtime/launch/launch.h"

#include <sherd/status.h>

/* Names on standard error the rank that failed, and what was done to the others; silent when the job went well. */
void shd_report_say(const shd_launch *launch, const shd_launch_report *report);
/* As `sherd run` passes it on: of the first rank that failed, 128+N for signals. */
int shd_report_exit_code(const shd_launch_report *report);
/* As `sherd train` ends: 4 when a rank was lost. */
int shd_report_train_exit_code(const shd_launch_report *report);
/* The exit code of a command that ended in `status`. */
int shd_status_exit_code(sherd_status status);

#endif
