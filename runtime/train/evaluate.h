/* The validation of a run. */
#ifndef SHD_TRAIN_EVALUATE_H
#define SHD_TRAIN_EVALUATE_H

#include "runtime/train/feed.h"

#include <sherd/session.h>

/* Micro-batches of one sherd_evaluate_begin … end. A validation is a row of such portions, whose borders do not depend
 * on the number of ranks; so the evaluation program stays small, and the loss has the same bits on any number of
 * ranks. */
enum { SHD_PORTION_MICRO_BATCHES = 64 };

typedef struct shd_evaluation_plan {
    int64_t sequence_count;    /* evaluated; 0: no validation */
    int64_t micro_batch_count; /* the last one padded */
    int32_t micro_steps;       /* forward passes of each rank in a portion: sherd_options.eval_micro_steps */
} shd_evaluation_plan;

/* `wanted`: train.evaluate_sequences, 0 for all of `available`. */
shd_evaluation_plan shd_evaluation_plan_make(int64_t available, int64_t wanted, int64_t micro_batch,
                                             int32_t world_size);

/* Runs all portions. Collective; at step boundaries. *out: the mean loss over the counted targets, 0 when there are none,
 * their number, and in metrics[0], of a model of classes, how many were predicted. Allocates nothing.
 * Fails: DATA (a token), on all ranks alike, and the session lives on; what the session's brackets and the model return. */
sherd_status shd_evaluate(sherd_session *session, shd_model *model, shd_pool *pool, shd_feed *feed,
                          const shd_evaluation_plan *plan, const sherd_options *options, sherd_evaluation *out);

#endif
