/* One rank's part of the data: which sequences it runs when, in memory of a fixed size.
 *
 * A global batch is cut into micro-batches in data order; micro-step k of rank r runs micro-batch k·N + r. So what a
 * global batch holds, and the order in which its gradients are summed, do not depend on N. */
#ifndef SHD_TRAIN_FEED_H
#define SHD_TRAIN_FEED_H

#include "io/order.h"
#include "io/tokens.h"
#include "runtime/model/model.h"

typedef struct shd_feed_config {
    shd_tokens_config tokens;
    uint64_t seed;
    bool shuffle;
    int64_t micro_batch; /* sequences */
    int32_t micro_steps; /* micro-batches held at once */
    int32_t rank, world_size;
} shd_feed_config;

typedef struct shd_feed shd_feed;

/* Opens the file and allocates the batch. Owns: destroy *out with shd_feed_destroy. Fails: as shd_tokens_open. */
sherd_status shd_feed_create(const shd_feed_config *config, shd_feed **out);
/* Accepts NULL. */
void shd_feed_destroy(shd_feed *feed);
shd_tokens *shd_feed_tokens(shd_feed *feed);

/* Reads this rank's micro-batches of the global batch that starts at sequence number `first` of the run. *target_count:
 * its counted targets. Allocates nothing. Fails: as shd_tokens_read. */
sherd_status shd_feed_read_step(shd_feed *feed, int64_t first, int64_t *target_count);

/* Reads micro-batch `index` of the file's first `sequence_count` sequences, in file order, as micro-step 0; what is
 * missing to a full one is filled with ignored targets. Allocates nothing. */
sherd_status shd_feed_read_padded(shd_feed *feed, int64_t index, int64_t sequence_count, int64_t *target_count);

/* The micro-batch read for `micro_step`, with its place for losses (one for all micro-steps). Borrowed from the
 * feed. */
shd_batch shd_feed_batch(const shd_feed *feed, int32_t micro_step);
/* Tokens of a micro-batch: length of its inputs, targets and losses. */
int64_t shd_feed_micro_tokens(const shd_feed *feed);

#endif
