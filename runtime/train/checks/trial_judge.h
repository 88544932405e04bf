/* What ranks have found in a trial, as findings: "ranks", "collectives", "step", "cores", "saving", "overfit"; and, of
 * two trials, "compare". */
#ifndef SHD_TRAIN_CHECKS_TRIAL_JUDGE_H
#define SHD_TRAIN_CHECKS_TRIAL_JUDGE_H

#include "runtime/train/checks/checkup.h"
#include "runtime/train/checks/trial.h"

/* How a trial's ranks ended, as their launcher knows. */
typedef struct shd_trial_end {
    int32_t rank_count;
    uint64_t program, job;     /* the launcher's own; 0: not compared */
    double clock_ms;           /* its own, as shd_trial_clock_ms */
    char lost[SHD_TRIAL_TEXT]; /* that a rank could not say why it ended, or could not be started; "" otherwise */
} shd_trial_end;

/* Judges a trial that was not for a comparison. Checks that the job does not have are not made, those that were not
 * reached are SKIPPED. */
void shd_trial_judge(const shd_checkup *checkup, const shd_trial *trial, const shd_trial_board *board,
                     const shd_trial_end *end, shd_finding_sink sink, void *user);

/* Judges the two trials of a comparison, of few ranks and of many. `plan`: the job's, which
 * has the names of tensors. */
void shd_trial_judge_compare(const shd_trial_board *few, const shd_trial_end *few_end, const shd_trial_board *many,
                             const shd_trial_end *many_end, const shd_plan *plan, shd_finding_sink sink, void *user);

#endif
