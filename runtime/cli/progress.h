/* What a training run shows: on a terminal one line that is drawn anew, elsewhere plain lines; log lines never mix with
 * it. */
#ifndef SHD_CLI_PROGRESS_H
#define SHD_CLI_PROGRESS_H

#include <pthread.h>
#include <sherd/log.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { SHD_PROGRESS_BYTES = 256 };

/* A step that is done. Numbers that are not known are NaN or 0. */
typedef struct shd_progress_row {
    int64_t step; /* completed steps, from 1 */
    double loss, grad_norm, lr;
    bool skipped; /* nothing was updated; with a loss scale that is not 1 as gradients have overflowed at it */
    double loss_scale;
    double tokens_per_s; /* of this step, over all ranks */
    bool samples;        /* it is samples that are counted */
    int64_t peak_bytes;  /* of the rank that holds most */
    bool validated;      /* a validation followed this step */
    double validation_loss;
    bool classified; /* there are accuracies, that of the validation with its loss */
    double accuracy, validation_accuracy;
} shd_progress_row;

/* Lives in the caller's memory, at one address. Threads: steps from one thread, log lines from any. */
typedef struct shd_progress {
    FILE *out;
    bool live;          /* out is a terminal */
    int64_t steps;      /* of the whole run */
    int64_t every;      /* steps between two plain lines */
    int64_t first_step; /* completed before this run: 0, or where it was resumed */
    double start_ms, drawn_ms;
    double smooth_sum, smooth_weight; /* exponentially weighted loss */
    shd_progress_row last;
    double last_validation, last_validation_accuracy;
    int64_t last_validation_step; /* 0: there was none */
    int64_t skipped_count;        /* of this run's steps */
    int64_t taken_back_count;     /* likewise: by rollbacks, so that they were done again */
    double last_tokens_per_s;     /* smoothed likewise */
    char line[SHD_PROGRESS_BYTES];
    bool drawn; /* `line` stands on the terminal */
    pthread_mutex_t lock;
} shd_progress;

void shd_progress_init(shd_progress *progress, FILE *out, int64_t steps, int64_t every);
void shd_progress_fini(shd_progress *progress);

/* The run begins, or goes on, after `step` completed steps: the clock starts. */
void shd_progress_start(shd_progress *progress, int64_t step);
/* Shows a step: on a terminal at most ten times a second. */
void shd_progress_step(shd_progress *progress, const shd_progress_row *row);
/* The step's row as text of at most `columns` characters: what matters least is left out first. Pure; `now_ms` as
 * shd_progress's start_ms. */
void shd_progress_format(const shd_progress *progress, double now_ms, int columns, char text[SHD_PROGRESS_BYTES]);
/* Prints a line, then the run's line again. */
void shd_progress_say(shd_progress *progress, FILE *out, const char *line);
/* Leaves the last step's line on the terminal and, of a run that went well, a summary: steps, and how many of them were
 * skipped and taken back, time, losses. */
void shd_progress_finish(shd_progress *progress, bool went_well);

/* Bytes for people: "12.3 MiB". `text` has room for 16 characters. */
void shd_bytes_text(double bytes, char text[16]);
/* A span of time for people: "0:42", "1:02:03". */
void shd_time_text(double seconds, char text[16]);

#endif
