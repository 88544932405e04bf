/* How ranks ended, said in few words: ranks of the same end together. */
#ifndef SHD_LAUNCH_ENDS_H
#define SHD_LAUNCH_ENDS_H

#include "runtime/launch/output.h"

#include <stdint.h>

typedef enum shd_end_kind {
    SHD_END_NONE,      /* it was not started */
    SHD_END_DONE,      /* with code 0, of itself */
    SHD_END_FAILED,    /* with another code, of itself */
    SHD_END_LOST_PEER, /* with the code that says that it lost another rank */
    SHD_END_SIGNAL,    /* by a signal that the launcher had not sent */
    SHD_END_TOLD,      /* after TERM, or the signal that stopped the job: by it, or with a code that says so, or 0 */
    SHD_END_TOLD_CODE, /* after that, with another code */
    SHD_END_KILLED     /* by the launcher, with KILL */
} shd_end_kind;

shd_end_kind shd_end_kind_of(const shd_rank_end *end, int peer_failed_code);
/* "ended by TERM", "exited with code 3". */
void shd_end_text(const shd_rank_end *end, shd_end_kind kind, char text[64]);
/* "0-3,7,9", the ranks given in rising order; "…" for what does not fit. */
void shd_ranks_text(const int32_t *ranks, int32_t count, char *text, size_t bytes);

#endif
