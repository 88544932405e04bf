/* A checkpoint of version 2 to read: tensors cut among ranks at odd places, and values that tell where they belong. */
#ifndef TESTS_IO_STORED_JOB_H
#define TESTS_IO_STORED_JOB_H

#include "io/checkpoint.h"
#include "io/checkpoint_reader.h"
#include "io/keep.h"

#include <stdbool.h>

enum { STORED_TENSORS = 5, STORED_STATES = 1, STORED_STEP = 40 };

typedef struct stored_job {
    int32_t ranks;
    int32_t compression;
    sherd_dtype state_dtype; /* FP32 or INT8 */
    bool large;              /* the first tensor has several blocks */
    int64_t step;            /* 0: STORED_STEP */
    char *parent, *path;     /* of the folder */
} stored_job;

extern const sherd_tensor stored_tensors[STORED_TENSORS];
const char *stored_state(int state); /* 0: the parameter */
int64_t stored_count(const stored_job *job, int tensor);
/* The value of element `index`: a small integer, the same in every dtype. */
float stored_value(int tensor, int state, int64_t index);
/* `count` values from `first` on in `dtype`, INT8 in whole blocks; taken. */
void *stored_values(const stored_job *job, int tensor, int state, int64_t first, int64_t count, sherd_dtype dtype);

/* Writes and commits it in a new folder. */
void store_job(stored_job *job);
sherd_status read_stored_manifest(const stored_job *job, shd_keep *keep, shd_checkpoint_manifest *out);
/* The same, living for the test. */
shd_checkpoint_manifest stored_manifest(const stored_job *job);

/* Changes one bit of a file in the checkpoint; twice, and it is as before. */
void flip_stored(const stored_job *job, const char *name, int64_t offset, int bit);

/* FP32 to blocks of codes and back, as stored_values has them. */
extern const shd_reader_convert stored_convert;
/* Room for a reader, taken, with a mark behind it; false when the mark is no longer there. */
shd_reader_config stored_config(int32_t threads);
bool stored_config_is_whole(const shd_reader_config *config);

#endif
