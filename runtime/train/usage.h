/* What this process takes of its machine, and how busy the machine is: samples from what the kernel counts.
 *
 * A sample reads four small files of /proc, some 50 microseconds. What a machine does not tell stays NaN. */
#ifndef SHD_TRAIN_USAGE_H
#define SHD_TRAIN_USAGE_H

#include "io/metrics.h"
#include "runtime/session/setup.h"

/* Counters, from which rates are made. */
typedef struct shd_usage_counters {
    double at_ms, cpu_ms;
    double host_busy, host_all; /* ticks of all processors */
    double read_bytes, write_bytes, network_in_bytes, network_out_bytes;
} shd_usage_counters;

enum { SHD_USAGE_USES = SHD_CATEGORIES + 2 };

typedef struct shd_usage {
    shd_usage_counters last;
    const char *names[SHD_USAGE_USES]; /* what memory is for */
    int64_t bytes[SHD_USAGE_USES];
} shd_usage;

/* Starts the first span; what the plan charges this rank is its memory by use. */
void shd_usage_start(shd_usage *usage, const shd_plan *plan);
/* What came to pass since the last sample, or the start. *out borrows from `usage`, which stays where it is. */
void shd_usage_sample(shd_usage *usage, shd_metrics_usage *out);

/* --- for tests: the readers of /proc's texts ---------------------------------------------------------------------- */

/* Busy ticks and all ticks of the first line of /proc/stat. False: there is no such line. */
bool shd_usage_read_stat(const char *text, double *busy, double *all);
/* Bytes in and out of all interfaces but loopback in /proc/net/dev. False: there is none. */
bool shd_usage_read_network(const char *text, double *in, double *out);

#endif
