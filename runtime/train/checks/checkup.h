/* The flight check: a machine, and a job on it, looked at by one small check after another, before hours are spent.
 *
 * All checks stand in one table (checkup.c), in the order in which they are made; each finds one thing, leaves what it
 * has opened to those after it, and says in one line what it has found. `sherd train` makes those marked QUICK before
 * it starts ranks, and ends at the first error; `sherd doctor` makes all. What real ranks find (trial.h) is judged here
 * too. No check writes where the job writes: what is measured of a disk is measured in a file that has no name. */
#ifndef SHD_TRAIN_CHECKS_CHECKUP_H
#define SHD_TRAIN_CHECKS_CHECKUP_H

#include "io/job.h"
#include "runtime/session/setup.h"
#include "runtime/train/checks/finding.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/preflight.h"
#include "runtime/train/resume.h"

/* When a check is made; bits. */
enum {
    SHD_CHECK_MACHINE = 1, /* needs no job */
    SHD_CHECK_JOB = 2,
    SHD_CHECK_QUICK = 4, /* by `sherd train` too, before its ranks */
};

/* What checks are made on, and what they leave to later ones. Start from shd_checkup_init. */
typedef struct shd_checkup {
    const shd_job *job; /* borrowed; NULL: none */
    bool thorough; /* what takes no tenth of a second is read in full, too: training data of some millions of tokens */
    bool all_data; /* every token and sample is looked at, not some */
    shd_resume_report report; /* what the checkpoint to go on from has logged */
    sherd_options options;    /* rank 0's */
    shd_plan *plan;
    shd_dataset *training, *validation;
    shd_resume from;
    shd_preflight_room room;
    double write_bytes_per_s; /* measured where checkpoints will be; 0: not */
} shd_checkup;

/* Is told each finding, once. */
typedef void (*shd_finding_sink)(void *user, const shd_finding *finding);

void shd_checkup_init(shd_checkup *checkup, const shd_job *job);
void shd_checkup_fini(shd_checkup *checkup);

/* Makes, in order, the checks marked with one of the bits of `when`. A failed check is a finding, and fails nothing
 * here: those that need what it should have left are SKIPPED. */
void shd_checkup_run(shd_checkup *checkup, unsigned when, shd_finding_sink sink, void *user);

/* The same of QUICK ones, up to the first error, whose status it returns; warnings are logged. */
sherd_status shd_checkup_run_quick(shd_checkup *checkup);

#endif
