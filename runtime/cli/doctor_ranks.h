/* The ranks of `sherd doctor`: the same program, started by the launcher that `sherd train` uses, which tell what they
 * find in memory that they share with it. */
#ifndef SHD_CLI_DOCTOR_RANKS_H
#define SHD_CLI_DOCTOR_RANKS_H

#include "runtime/train/checks/trial_judge.h"

typedef struct shd_doctor_ranks {
    const shd_job *job;  /* NULL: none */
    const char *program; /* what ranks run; NULL: this program */
    int argc;            /* what the command was given, for the ranks too */
    char **argv;
    int32_t rank_count;
    bool overfit, compare;
} shd_doctor_ranks;

/* Starts the ranks, waits, and hands on what they have found. Returns the signal by which somebody stopped it, or 0. */
int shd_doctor_ranks_run(const shd_doctor_ranks *ranks, const shd_checkup *checkup, shd_finding_sink sink, void *user);

/* A rank's side: `order` is what it was started with. Returns its exit code; says nothing. */
int shd_doctor_rank(const char *order, const shd_job *job);

#endif
