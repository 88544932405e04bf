#include "runtime/launch/backoff.h"

double shd_backoff_next(shd_backoff *backoff, double lasted_s) {
    double wait_s = backoff->last_s == 0 || lasted_s >= SHD_BACKOFF_LASTING_S ? backoff->first_s : 2 * backoff->last_s;
    /* Who asks for a longer first wait than the longest gets it each time. */
    double most_s = backoff->first_s > SHD_BACKOFF_MOST_S ? backoff->first_s : SHD_BACKOFF_MOST_S;
    return backoff->last_s = wait_s < most_s ? wait_s : most_s;
}
