/* alerts.jsonl: the steps whose numbers were wrong, and what was in their batches: one strict-JSON object each.
 * docs/METRICS.md says it for readers. Rank 0 writes it. */
#ifndef SHD_IO_ALERTS_H
#define SHD_IO_ALERTS_H

#include <sherd/status.h>
#include <stdbool.h>
#include <stdint.h>

/* A sequence or sample of the batch. */
typedef struct shd_alert_example {
    int64_t number; /* in the run */
    int32_t rank, micro_step;
    const char *file;
    int64_t
        index; /* in the file, from 0: of the sequence, or the sample's row; of packed documents the sequence's number
                      in all files of the source together */
    int64_t token; /* of a sequence: its first token's place in the file; -1: a sample */
} shd_alert_example;

typedef struct shd_alert {
    int64_t step;       /* from 0, as in metrics.jsonl */
    bool outlier;       /* else a number is not finite */
    const char *action; /* "warn", "skip", "rollback", "abort": what was done */
    double loss, grad_norm, param_norm;
    double loss_zscore, grad_norm_zscore; /* with `outlier` */
    int32_t rank, micro_step;             /* where the first number was that is not finite; -1: not known */
    const char *unit;                     /* in whose gradient; NULL: in the loss, or not known */
    int64_t in_row;                       /* how many there have been in a row */
    int64_t example_count;
    /* Number `i` of the batch, in data order. */
    shd_alert_example (*example)(void *user, int64_t i);
    void *user;
} shd_alert;

/* Appends it to `dir`/alerts.jsonl (io/line_file.h). Fails: IO, ARGUMENT, MEMORY. */
sherd_status shd_alert_add(const char *dir, const shd_alert *alert);

#endif
