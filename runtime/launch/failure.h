/* The report of a failed attempt: which rank failed first, where and of what, and what became of the others. */
#ifndef SHD_LAUNCH_FAILURE_H
#define SHD_LAUNCH_FAILURE_H

#include "runtime/launch/error_file.h"
#include "runtime/launch/launch.h"
#include "runtime/launch/output.h"

#include <sherd/status.h>
#include <stdint.h>

typedef struct shd_failure {
    /* Borrowed; the caller may change what it knows better before it asks for the text. */
    const shd_launch_report *report;
    const shd_output *output;
    const char *host;
    int32_t peer_failed_code; /* as in shd_launch */
    const char *cause;   /* what the rank told its launcher; NULL: nothing. The text leaves it out, it has been said */
    const char *noticed; /* what the others told of it, or of their loss; NULL: nothing */
    int64_t step;        /* completed ones; -1: not known */
    const char *phase;   /* "training", "evaluating", …; NULL: not known */
    /* Owned. */
    shd_error_file error; /* of the rank; message NULL: it left none */
    char *last_lines;     /* NULL: not known */
} shd_failure;

enum { SHD_FAILURE_LINES = 10, SHD_FAILURE_HOST_BYTES = 256 };

/* Gathers what is known of report->failed_rank, which is one of this host (false: it is not, or none failed). */
bool shd_failure_collect(shd_failure *failure, const shd_launch_report *report, const shd_output *output);
void shd_failure_fini(shd_failure *failure);

/* What follows the sentence that names the rank: lines of at most 80 columns (but for what the rank itself wrote), each with an
 * LF. The caller's (shd_failure_text_free); NULL: no memory. */
char *shd_failure_text(const shd_failure *failure);
void shd_failure_text_free(char *text);
/* The same and more as strict JSON (docs/LAUNCH.md). Fails: MEMORY, IO. */
sherd_status shd_failure_write(const shd_failure *failure, const char *path);

#endif
