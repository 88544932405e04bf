/* The files that a job reads its data from, with sizes, times and checksums: so that a run can be told from one with
 * other data, years later.
 *
 * Checksums are XXH3 (64 bits), and bounded: a job with terabytes must not wait for them. While the budget lasts, a
 * file of up to `whole_bytes` is summed in full ("xxh3"), a larger one by SHD_MANIFEST_PIECES pieces spread over it
 * ("xxh3_sampled"); what comes then has size and time alone. The budget is bytes and time: other ranks wait meanwhile,
 * and a slow file server must not make that look like a rank that hangs. Time is looked at before each block that is
 * read. */
#ifndef SHD_IO_DATA_MANIFEST_H
#define SHD_IO_DATA_MANIFEST_H

#include "io/job.h"

#include <jansson.h>

enum { SHD_MANIFEST_PIECES = 16, SHD_MANIFEST_PIECE_BYTES = 64 << 10 };

typedef struct shd_manifest_limits {
    int64_t whole_bytes, budget_bytes;
    double budget_ms; /* from the start of the list */
} shd_manifest_limits;
#define SHD_MANIFEST_LIMITS                                                                                            \
    { .whole_bytes = INT64_C(64) << 20, .budget_bytes = INT64_C(512) << 20, .budget_ms = 500 }

/* A list of one object a file, in the job's order: data.train by source, inputs before targets, data.validation, and
 * model.init where that is a file: "key", "source" (from 0), "path", "bytes", "modified" (seconds since 1970), and a
 * checksum. Piece i of P of a file of B bytes begins at i·(B − 64 KiB) div (P − 1); the sum is over all, one after the
 * other. Owns: release *out with json_decref. Fails: DATA, IO (a file is gone, or cannot be read), MEMORY. */
sherd_status shd_data_manifest(const shd_job *job, const shd_manifest_limits *limits, json_t **out);

#endif
