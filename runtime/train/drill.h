/* A drill: does a checkpoint bring the model back? A session of the job that saved it is made, loads it whole, as a resume
 * would, and evaluates. Nothing of the job is touched: no lock of its folders is taken or asked for, and nothing is
 * written outside a folder of the drill's own. */
#ifndef SHD_TRAIN_DRILL_H
#define SHD_TRAIN_DRILL_H

#include "io/checkpoint.h"
#include "io/job.h"

#include <sherd/options.h>

/* What is evaluated on: the first of these that is there. */
typedef enum shd_drill_data {
    SHD_DRILL_VALIDATION, /* the job's data.validation */
    SHD_DRILL_TRAINING,   /* its data.train */
    SHD_DRILL_MADE_UP,    /* a few tokens that mean nothing */
    SHD_DRILL_NO_DATA     /* of an mlp, whose inputs cannot be made up: it is only loaded */
} shd_drill_data;

typedef struct shd_drill {
    const char *checkpoint; /* one complete checkpoint; borrowed */
    const char *dir;        /* the drill's own folder, which exists; borrowed */
    int32_t ranks;          /* 0: as many as the job had */
    int64_t sequences;   /* evaluated; 0: of validation data as many as the job does, of training data a global batch */
    shd_drill_data data; /* what shd_drill_prepare found */
} shd_drill;

typedef struct shd_drill_result {
    int64_t step; /* of the session, once it is loaded */
    double loss;  /* NaN without data, or when no target counts */
    int64_t target_count;
} shd_drill_result;

/* Before the ranks start: the number of ranks that the drill takes, what there is to evaluate on, and, where that has to
 * be made up, makes it up. Fails: DATA (no job in the checkpoint's note, damage), CONFIG (a number of ranks), IO, MEMORY. */
sherd_status shd_drill_prepare(shd_drill *drill);

/* One rank's part. Collective over the ranks that `place` tells of. Fails: as making a session, loading and evaluating
 * do; NUMERIC (a loss that is not finite). */
sherd_status shd_drill_run(const shd_drill *drill, const sherd_options *place, shd_drill_result *out);

/* A hash of names, sizes and times of what is in a folder, 0 when it cannot be listed: for telling that nothing there has
 * changed. */
uint64_t shd_drill_fingerprint(const char *folder);

#endif
