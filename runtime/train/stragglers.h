/* Ranks that are slower than the others for long: who they are, from the time each rank spends on work of its own in a
 * step (sherd_step_result.rank_step). Pure. */
#ifndef SHD_TRAIN_STRAGGLERS_H
#define SHD_TRAIN_STRAGGLERS_H

#include <stdbool.h>
#include <stdint.h>

enum { SHD_STRAGGLER_RANKS = 64 };
/* What is slower by less is noise, whatever the factor. */
#define SHD_STRAGGLER_LEAST_MS 5.0

/* All zero but for the first three is the start. */
typedef struct shd_stragglers {
    double factor; /* how many times the median a slow rank takes; 0: nobody is looked for */
    int32_t steps; /* in a row, after which a rank counts as slow, or no longer */
    int32_t rank_count;
    int32_t slow[SHD_STRAGGLER_RANKS], quick[SHD_STRAGGLER_RANKS]; /* steps in a row */
    double work_ms[SHD_STRAGGLER_RANKS], median_ms;                /* means over the last steps, of slow ranks' rows */
    uint64_t named;                                                /* who counts as slow, by bits */
} shd_stragglers;

/* Takes a step's times in, `step_ms` [rank_count] with their median. True: who counts as slow has changed. */
bool shd_stragglers_take(shd_stragglers *stragglers, const double *step_ms, double median_ms);

#endif
