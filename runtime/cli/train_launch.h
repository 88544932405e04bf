/* `sherd train` on several ranks, or with restarts: the launcher of ranks of this program. */
#ifndef SHD_CLI_TRAIN_LAUNCH_H
#define SHD_CLI_TRAIN_LAUNCH_H

#include "io/job.h"
#include "runtime/cli/job_arguments.h"
#include "runtime/cli/launch_arguments.h"

/* What was asked for; everything is borrowed. */
typedef struct shd_train_launch {
    const shd_command *command;
    const shd_job_arguments *job_arguments;
    const shd_launch_arguments *launch_arguments;
    const shd_job *job; /* as loaded from job_arguments; ranks load its text again, whatever the file says by then */
    int argc;           /* of the command: the ranks get the same */
    char **argv;
} shd_train_launch;

/* Trains, and again after failures as launch_arguments allow, from the newest checkpoint, but never when the job or its
 * data are refused. Returns the exit code, errors said. */
int shd_train_launch_run(const shd_train_launch *train);

/* What the launcher tells a rank by --as-rank. */
typedef struct shd_train_order {
    char digest[17]; /* of the job that it is to train */
    int text;        /* file of the job file's text, as the launcher has read it */
    int causes, saving, records;
    int threads;  /* of run.threads: auto, where the rank cannot tell by itself; else 0 */
    bool goes_on; /* checkpoint.resume is auto, whatever the job says: this run has saved before it failed */
} shd_train_order;
/* False: `text` is no order. */
bool shd_train_order_read(const char *text, shd_train_order *order);

/* A digest of the job as resolved: every rank makes sure that it trains exactly what the launcher has checked.
 * Fails: MEMORY. */
sherd_status shd_train_digest(const shd_job *job, char digest[17]);

#endif
