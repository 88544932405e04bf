/* metrics.jsonl: what a run did, one strict-JSON object a step, written by rank 0.
 *
 * Rows are in order of steps, each written by one write(2). Whole numbers as such; others with 9 significant digits,
 * losses, accuracies, norms and loss_scale with 17; one that is not finite as the text "nan", "inf" or "-inf". */
#ifndef SHD_IO_METRICS_H
#define SHD_IO_METRICS_H

#include "io/json_line.h"

#include <sherd/status.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct shd_metrics shd_metrics;

/* Least, middle and greatest of one number over the ranks; the middle of an even number of ranks is the lower one. */
typedef struct shd_metrics_spread {
    double min, median, max;
} shd_metrics_spread;

/* What rank 0's process takes of its machine, and how much of that others do. Rates are over the time since the sample
 * before. */
typedef struct shd_metrics_usage {
    double cpu_cores;                                       /* processor time of the process ÷ time */
    double host_cpu_share;                                  /* of the machine's processors that were busy, 0 … 1 */
    double read_bytes_per_s, write_bytes_per_s;             /* of storage, by the process */
    double network_in_bytes_per_s, network_out_bytes_per_s; /* of the machine's interfaces but loopback */
    int64_t resident_bytes;          /* of the process, shared memory that it has touched included */
    const char *const *memory_names; /* [memory_count]: what memory is for */
    const int64_t *memory_bytes;     /* [memory_count] */
    int32_t memory_count;
} shd_metrics_usage;

/* A row. step_ms is not here: it is the sum of the six parts, as printed. */
typedef struct shd_metrics_row {
    int64_t step; /* from 0 */
    double loss, grad_norm, lr;
    bool has_param_norm; /* param_norm is part of the row */
    double param_norm;   /* before the step */
    double loss_scale;   /* of fp16; 0: there is none, and it is not part of the row */
    bool skipped;        /* nothing was updated */
    int64_t skipped_steps,
        nonfinite_steps; /* since step 0: those that updated nothing, those whose numbers overflowed */
    const char *items;   /* "tokens" or "samples": what is counted, as part of the fields' names */
    int64_t tokens;      /* inputs of this step, all ranks */
    int64_t tokens_seen; /* since step 0, this step included */
    double data_ms, compute_ms, exposed_comm_ms, optimizer_ms, save_wait_ms, other_ms; /* rank 0's, ≥ 0 */
    bool compared; /* ranks have told their times: */
    shd_metrics_spread rank_step_ms, rank_wait_ms;
    int32_t slowest_rank;
    double model_flop;                 /* of this step, all ranks (shd_model_flop); 0: not known */
    double peak_flop_per_s;            /* of all ranks; 0: not known, and `mfu` is not part of the row */
    int64_t peak_bytes;                /* largest over the ranks */
    int32_t data_ready;                /* steps that lay read when this one was asked for; rank 0's */
    int32_t source_count;              /* of a mixture; 0: there is none, and the lists are not part of the row */
    const int64_t *source_tokens;      /* tokens of this step by source, in the job's order */
    const int64_t *source_tokens_seen; /* since step 0 */
    bool validated;                    /* validation_loss is part of the row */
    double validation_loss;            /* after this step */
    bool classified;                   /* accuracy is part of the row, and of a validation's */
    double accuracy, validation_accuracy;
    const shd_metrics_usage *usage; /* NULL: none of it is part of the row. Borrowed */
} shd_metrics_row;

/* One number of a row, under the name and in the order that it has in the file. */
typedef enum shd_figure_kind { SHD_FIGURE_WHOLE, SHD_FIGURE_REAL, SHD_FIGURE_TRUTH } shd_figure_kind;
typedef struct shd_metrics_figure {
    char name[32];
    const char *group; /* what it is about, for programs that show figures in groups: "train", "time", … */
    shd_figure_kind kind;
    int64_t whole; /* WHOLE, TRUTH (0 or 1) */
    double real;   /* REAL */
    int digits;    /* significant ones that are written */
} shd_metrics_figure;
enum { SHD_METRICS_FIGURES = 64 };
/* All numbers of a row but lists. Returns how many there are. */
int32_t shd_metrics_figures(const shd_metrics_row *row, shd_metrics_figure out[SHD_METRICS_FIGURES]);

/* The row as a line of the file. */
enum { SHD_METRICS_ROW_BYTES = 8192 };
void shd_metrics_format(const shd_metrics_row *row, shd_json_line *out);

/* Opens `dir`/metrics.jsonl for rows from `first_step` on, making the folder. Rows at or after first_step, and whatever
 * follows a line that is no row, move to the first free `metrics.jsonl.N`, N from 1; a torn last line is dropped.
 * Owns: close *out with shd_metrics_close. Fails: IO, DATA (someone cuts the file meanwhile), MEMORY. */
sherd_status shd_metrics_open(const char *dir, int64_t first_step, shd_metrics **out);
/* Takes back the rows from `first_step` on, as opening would move them. Rows that could not be written are forgotten:
 * they must be of such steps. What stays is not read again, unless the file is not as long as it was left: it takes time
 * for the rows that go alone. Fails: likewise. */
sherd_status shd_metrics_go_back(shd_metrics *metrics, int64_t first_step);
/* What the last row before first_step says of all steps so far; zero without one, or where it is of a version that did
 * not count. */
typedef struct shd_metrics_counts {
    int64_t skipped_steps, nonfinite_steps;
} shd_metrics_counts;
shd_metrics_counts shd_metrics_counted(const shd_metrics *metrics);
/* Accepts NULL. */
void shd_metrics_close(shd_metrics *metrics);

/* Appends one row; allocates nothing. On failure the file is as before, and the row is kept, the first few of them, to
 * be written before the next one, so that none is left out in between. Fails: IO. */
sherd_status shd_metrics_write(shd_metrics *metrics, const shd_metrics_row *row);
/* Writes the rows that were kept, if there are any. Fails likewise. */
sherd_status shd_metrics_flush(shd_metrics *metrics);

/* The sum of the parts, as it will be printed. */
double shd_metrics_step_ms(const shd_metrics_row *row);

#endif
