/* A source of training samples: arrays in files, an array of inputs and one of targets, row by row.
 *
 * Row i of the inputs is a sample, row i of the targets what it is to give: a class, or a row of numbers. Inputs and
 * targets are files of their own (.npy, or the tensors `inputs` and `targets` of safetensors files), paired in order;
 * or both are in one safetensors file. The rows of all files are one data set. Shapes are checked at the start, values
 * when they are read. Few files are open at once, however many there are. */
#ifndef SHD_IO_ARRAYS_H
#define SHD_IO_ARRAYS_H

#include "io/source.h"

#include <stdbool.h>

typedef struct shd_arrays shd_arrays;

/* What a model takes and gives. */
typedef struct shd_sample_shape {
    int64_t input_count;   /* numbers of a sample: the product of all dimensions of the inputs but the first */
    int64_t output_count;  /* classes, or numbers of a target */
    bool classes;          /* targets are classes, from 0 on, else numbers */
    int64_t ignored_label; /* a class that counts for nothing; INT64_MIN: none */
    double input_scale;    /* inputs are multiplied by it */
    double input_limit;    /* inputs, so multiplied, of this magnitude or more are infinite in fp16; 0: none are */
} shd_sample_shape;

typedef struct shd_arrays_config {
    const char *key;           /* of the job, for messages: "data.train" */
    const char *const *inputs; /* files and globs (file_list.h) */
    int32_t inputs_count;
    const char *const *targets; /* likewise; NULL: the same files */
    int32_t targets_count;
    shd_sample_shape shape;
    int32_t open_files; /* at once, at most; 0: 64 */
} shd_arrays_config;

/* Opens the files and checks headers and shapes. Owns: texts are copied; close *out with shd_arrays_close.
 * Fails: DATA (the file and what is wrong with it; no sample in any file), IO, MEMORY. */
sherd_status shd_arrays_open(const shd_arrays_config *config, shd_arrays **out);
/* Accepts NULL. */
void shd_arrays_close(shd_arrays *arrays);

shd_source_summary shd_arrays_summarize(const shd_arrays *arrays);

/* Reads sample `index` in [0, S): its inputs, and of its target the class (-1: ignored) or the numbers; the other may
 * be NULL. *counted: targets that count, 0 or 1 with classes, else output_count. Allocates nothing.
 * Fails: DATA (a class that is not below output_count, a number that is not finite or an input at the limit, with file
 * and row; a file whose length has changed), IO. Threads: one at a time. */
sherd_status shd_arrays_read(shd_arrays *arrays, int64_t index, float *inputs, int32_t *class_out, float *numbers,
                             int64_t *counted);

/* Where sample `index` lies, in a file of inputs. Threads: any. */
shd_source_place shd_arrays_locate(const shd_arrays *arrays, int64_t index);

/* Reads a few samples, the first and the last among them, for what shd_arrays_read refuses. Fails: DATA, IO, MEMORY. */
sherd_status shd_arrays_sample(shd_arrays *arrays);
/* Reads all. Fails likewise. */
sherd_status shd_arrays_scan(shd_arrays *arrays);

#endif
