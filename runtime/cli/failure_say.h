/* The report of a failed attempt, for people and for programs. */
#ifndef SHD_CLI_FAILURE_SAY_H
#define SHD_CLI_FAILURE_SAY_H

#include "runtime/launch/failure.h"
#include "runtime/launch/launch.h"

#include <stdint.h>

/* What a launcher knows beyond the ends of ranks. */
typedef struct shd_failure_story {
    const char *cause;   /* said already; NULL: none was told */
    const char *noticed; /* what others than the rank itself told, not said yet; NULL: nothing */
    int64_t step;        /* completed ones; -1: not known */
    const char *phase;   /* NULL: not known */
} shd_failure_story;
#define SHD_FAILURE_STORY_INIT                                                                                         \
    { .step = -1 }

/* Silent when no rank of this host failed first. After the sentence that names the rank: says the rest on standard error, writes
 * log_dir/failure.json, and, where this launcher is itself the rank of another one, passes the error on in its error file. */
void shd_failure_say(const shd_launch *launch, const shd_launch_report *report, const shd_failure_story *story);

#endif
