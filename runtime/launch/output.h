/* What the ranks of an attempt write, what they leave when they fail, and how each of them ended.
 *
 *     LOG_DIR/attempt_K/RANK/{stdout.log,stderr.log,error.json}
 *
 * Without a folder for logs error files are in a temporary one, which is gone when the output is. All is kept until the
 * next attempt begins, so that a report can be made of it. */
#ifndef SHD_LAUNCH_OUTPUT_H
#define SHD_LAUNCH_OUTPUT_H

#include "runtime/launch/routes.h"
#include "runtime/launch/tee.h"
#include "runtime/launch/variables.h"

#include <limits.h>
#include <sherd/status.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* One rank's end. */
typedef struct shd_rank_end {
    pid_t pid; /* 0: it was not started */
    bool ended;
    int exit_code;
    int signal; /* that ended it, or 0 */
    int told; /* the last signal that it was sent because the job was ending: TERM, KILL or what stopped the launcher; 0: none */
    double began_ms; /* by shd_clock_ms */
    double ended_ms;
} shd_rank_end;

typedef struct shd_output {
    /* The caller's, before the first attempt; texts are borrowed. */
    shd_routes routes;      /* owned by the output; all zero: every rank has the launcher's own output */
    const char *log_dir;    /* NULL: no files of streams */
    const char *own_prefix; /* tee.h */
    const char *temporary;  /* where temporary folders are made; NULL: /tmp */
    /* Of the last attempt. */
    int32_t rank_count, first_rank;
    char folder[PATH_MAX]; /* LOG_DIR/attempt_K, or a temporary one; "" before the first attempt */
    bool is_temporary;
    shd_tee *tee;
    shd_rank_end *ends; /* one a local rank */
} shd_output;

/* Before any rank of an attempt is started; what was known of the one before is gone. Fails: MEMORY, IO. */
sherd_status shd_output_begin(shd_output *output, const shd_launch_place *place);
/* Before the rank is started: sets its TORCHELASTIC_ERROR_FILE, and opens what becomes its stdout and stderr (tee.h). Fails: MEMORY,
 * IO. */
sherd_status shd_output_open(shd_output *output, int32_t local_rank, shd_variables *variables, int ends[SHD_STREAMS]);
/* It runs. */
void shd_output_started(shd_output *output, int32_t local_rank, pid_t pid);
/* All ranks that run have been sent `signal`, to end. */
void shd_output_told(shd_output *output, int signal);
/* It has been reaped. */
void shd_output_reaped(shd_output *output, int32_t local_rank, int exit_code, int signal);
/* All ranks are gone: what they wrote is taken and shown. */
void shd_output_end(shd_output *output);
/* What a launcher that was killed would have removed (shd_guard.died). Async-signal-safe. */
void shd_output_sweep(const void *output);
/* Accepts a zeroed value. */
void shd_output_fini(shd_output *output);

/* The path of a file of a rank of this host. */
void shd_output_path(const shd_output *output, int32_t local_rank, const char *name, char path[PATH_MAX]);

#endif
