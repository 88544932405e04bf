/* What the launcher's report means: in words, and as an exit code. */
#ifndef SHD_CLI_VERDICT_H
#define SHD_CLI_VERDICT_H

#include "runtime/cli/cause.h"
#include "runtime/launch/launch.h"

#include <sherd/status.h>
#include <stddef.h>

/* "signal 9 (SIGKILL)", "signal 36": those of real-time programs have no names. */
void shd_signal_print(int signal, char *text, size_t bytes);

/* Says the cause that the ranks told and makes its rank the one that failed; silent when the job went well, and where the
 * report knows better: when a signal ended a rank, its peers' losing it is no cause. */
void shd_report_take_cause(shd_launch_report *report, const shd_cause *cause);
/* Names on standard error the rank that failed, and what was done to the others; silent when the job went well. */
void shd_report_say(const shd_launch *launch, const shd_launch_report *report);
/* Says that another attempt follows. */
void shd_report_say_restart(const shd_launch *launch, const shd_launch_report *report, double delay_s);
/* As `sherd run` passes it on: of the first rank that failed, 128+N for signals. */
int shd_report_exit_code(const shd_launch_report *report);
/* As `sherd train` ends: 4 when a rank was lost. */
int shd_report_train_exit_code(const shd_launch_report *report);
/* The exit code of a command that ended in `status`. */
int shd_status_exit_code(sherd_status status);

#endif
