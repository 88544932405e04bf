/* metrics.jsonl: what a run did, one strict-JSON object a step, written by rank 0.
 *
 * Rows are in order of steps, each written by one write(2). Whole numbers as such; others with 9 significant digits,
 * losses, accuracies, grad_norm and loss_scale with 17; one that is not finite as the text "nan", "inf" or "-inf". */
#ifndef SHD_IO_METRICS_H
#define SHD_IO_METRICS_H

#include <sherd/status.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct shd_metrics shd_metrics;

/* A row. step_ms is not here: it is the sum of the six parts, as printed. */
typedef struct shd_metrics_row {
    int64_t step; /* from 0 */
    double loss, grad_norm, lr;
    double loss_scale;   /* of fp16; 0: there is none, and neither it nor `skipped` is part of the row */
    bool skipped;        /* nothing was updated */
    const char *items;   /* "tokens" or "samples": what is counted, as part of the fields' names */
    int64_t tokens;      /* inputs of this step, all ranks */
    int64_t tokens_seen; /* since step 0, this step included */
    double data_ms, compute_ms, exposed_comm_ms, optimizer_ms, save_wait_ms, other_ms; /* rank 0's, ≥ 0 */
    int64_t peak_bytes;                                                                /* largest over the ranks */
    int32_t data_ready;                /* steps that lay read when this one was asked for; rank 0's */
    int32_t source_count;              /* of a mixture; 0: there is none, and the lists are not part of the row */
    const int64_t *source_tokens;      /* tokens of this step by source, in the job's order */
    const int64_t *source_tokens_seen; /* since step 0 */
    bool validated;                    /* validation_loss is part of the row */
    double validation_loss;            /* after this step */
    bool classified;                   /* accuracy is part of the row, and of a validation's */
    double accuracy, validation_accuracy;
} shd_metrics_row;

/* Opens `dir`/metrics.jsonl for rows from `first_step` on, making the folder. Rows at or after first_step, and whatever
 * follows a line that is no row, move to the first free `metrics.jsonl.N`, N from 1; a torn last line is dropped.
 * Owns: close *out with shd_metrics_close. Fails: IO, DATA (someone cuts the file meanwhile), MEMORY. */
sherd_status shd_metrics_open(const char *dir, int64_t first_step, shd_metrics **out);
/* Accepts NULL. */
void shd_metrics_close(shd_metrics *metrics);

/* Appends one row; allocates nothing. On failure the file is as before, and the row is kept, the first few of them, to be
 * written before the next one, so that none is left out in between. Fails: IO. */
sherd_status shd_metrics_write(shd_metrics *metrics, const shd_metrics_row *row);
/* Writes the rows that were kept, if there are any. Fails likewise. */
sherd_status shd_metrics_flush(shd_metrics *metrics);

/* The sum of the parts, as it will be printed. */
double shd_metrics_step_ms(const shd_metrics_row *row);

#endif
