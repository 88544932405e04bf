/* A job's data: one source, or a weighted mixture of sources, as one row of sequences without end. Sources are of
 * tokens (tokens.h) or of arrays (arrays.h), whose samples stand here for sequences.
 *
 * Sequence number q of the run decides everything: the source (mixture.h), the sequence's number within it, its epoch
 * and its place there (order.h). So ranks, stages and resumed runs agree without a word, and a checkpoint stores q. */
#ifndef SHD_IO_DATASET_H
#define SHD_IO_DATASET_H

#include "io/arrays.h"
#include "io/tokens.h"

typedef struct shd_dataset shd_dataset;

typedef struct shd_dataset_config {
    const char *key; /* "data.train", for messages */
    const shd_job_sources *sources;
    const shd_sample_shape *samples; /* NULL: sources are of tokens, and have what follows */
    shd_job_format format;
    int64_t vocab_size, context;
    int64_t ignored_token, separator; /* -1: none */
    uint64_t seed;
    bool shuffle;
} shd_dataset_config;

/* Opens all files. Owns: everything needed is copied; close *out with shd_dataset_close. Fails: as shd_tokens_open. */
sherd_status shd_dataset_open(const shd_dataset_config *config, shd_dataset **out);
/* Accepts NULL. */
void shd_dataset_close(shd_dataset *dataset);

int32_t shd_dataset_source_count(const shd_dataset *dataset);
shd_source_summary shd_dataset_source(const shd_dataset *dataset, int32_t source);
/* Of all sources. */
int64_t shd_dataset_sequence_count(const shd_dataset *dataset);
int64_t shd_dataset_token_count(const shd_dataset *dataset);
/* A hash that tells other data, other weights or another order of sources; that of a single source is the source's. */
uint64_t shd_dataset_fingerprint(const shd_dataset *dataset);
/* How many of the run's first `q` sequences come from `source`. Threads: any. */
int64_t shd_dataset_drawn(const shd_dataset *dataset, int32_t source, int64_t q);

/* Where a sequence or sample is put. Of tokens: `inputs` and `targets` [context]. Of arrays: `features` [input_count],
 * and `targets` [1] with classes, else `values` [output_count]. What is of the other kind may be NULL. */
typedef struct shd_example {
    int32_t *inputs, *targets;
    float *features, *values;
} shd_example;

/* Reads sequence number `q` ≥ 0. *counted, failures, threads: as shd_tokens_read or shd_arrays_read. */
sherd_status shd_dataset_read(shd_dataset *dataset, int64_t q, const shd_example *into, int64_t *counted);

/* Where sequence number `q` ≥ 0 lies. Borrowed from the data set. Threads: any, while others read too. */
shd_source_place shd_dataset_locate(const shd_dataset *dataset, int64_t q);

/* Reads a few sequences of every source (shd_tokens_sample, shd_arrays_sample). Fails: DATA, IO, MEMORY. */
sherd_status shd_dataset_sample(shd_dataset *dataset);
/* Reads all of every source (shd_tokens_scan, shd_arrays_scan). *summed_count: files whose checksums were held against
 * them. Fails: DATA, IO, MEMORY. */
sherd_status shd_dataset_scan(shd_dataset *dataset, int64_t *summed_count);

/* Says in the log what each source holds and what is left out. */
void shd_dataset_log(const shd_dataset *dataset);

#endif
