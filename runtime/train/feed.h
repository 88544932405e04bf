/* One rank's part of the data: which sequences it runs when, in memory of a fixed size.
 *
 * A global batch is cut into micro-batches in data order, and these into as many neighbouring blocks as there are
 * replicas. Micro-step k of the rank at place g, of G, of a replica runs micro-batch k·G + g of the replica's block. So
 * what a global batch holds does not depend on the number of ranks, and the order in which its gradients are summed only
 * on that of replicas.
 *
 * A training feed reads ahead on a thread of its own, at most SHD_FEED_AHEAD steps: they wait in a bounded queue until
 * they are asked for, and a failure waits with them for the step that it belongs to. */
#ifndef SHD_TRAIN_FEED_H
#define SHD_TRAIN_FEED_H

#include "io/dataset.h"
#include "runtime/base/mesh.h"
#include "runtime/model/model.h"

enum { SHD_FEED_AHEAD = 2 };

typedef struct shd_feed_config {
    shd_dataset *dataset; /* borrowed; once the feed has started only its thread reads from it */
    bool samples;         /* rows are samples of this shape, else sequences of `context` tokens */
    shd_sample_shape shape;
    int64_t context;
    int64_t separator;   /* where a document ends, before which attention does not reach; -1: it reaches everywhere */
    int64_t micro_batch; /* sequences or samples */
    int32_t micro_steps; /* micro-batches of a step */
    shd_mesh mesh;
} shd_feed_config;

typedef struct shd_feed shd_feed;

/* Allocates the memory. Owns: destroy *out with shd_feed_destroy. Fails: MEMORY. */
sherd_status shd_feed_create(const shd_feed_config *config, shd_feed **out);
/* Ends the thread, whatever it is at. Accepts NULL. */
void shd_feed_destroy(shd_feed *feed);

/* Starts to read the steps [0, step_count), the first one from sequence number `first` of the run on. Once at most.
 * Fails: MEMORY (also: no thread). */
sherd_status shd_feed_start(shd_feed *feed, int64_t first, int64_t step_count);

/* Makes the next step the current one, waiting for it if need be. *target_count: its counted targets; *ready: steps
 * that lay ready when it was asked for, 0 when it had to be waited for. Allocates nothing. Fails: as shd_dataset_read;
 * ARGUMENT after the last step. */
sherd_status shd_feed_next(shd_feed *feed, int64_t *target_count, int32_t *ready);

/* For a feed that is never started: reads micro-batch `index` of the first `sequence_count` sequences as micro-step 0;
 * what is missing to a full one is filled with zeros and ignored targets. Allocates nothing. Fails: as shd_dataset_read. */
sherd_status shd_feed_read_padded(shd_feed *feed, int64_t index, int64_t sequence_count, int64_t *target_count);

/* The micro-batch of the current step for `micro_step`, with its place for losses (one for all micro-steps). Borrowed
 * from the feed until the next step. */
shd_batch shd_feed_batch(const shd_feed *feed, int32_t micro_step);
/* Adds what the model has written for a micro-batch to the session's sums: its losses, and to metric 0, of classes, those
 * that were predicted. On a device they are added when they have come. Fails: as sherd_add_loss, and then as
 * shd_session_await. */
sherd_status shd_feed_add(const shd_feed *feed, sherd_session *session, const shd_model *model, const shd_batch *batch);

#endif
