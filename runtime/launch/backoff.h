/* How long to wait before a job is tried again: longer each time it fails soon. */
#ifndef SHD_LAUNCH_BACKOFF_H
#define SHD_LAUNCH_BACKOFF_H

enum { SHD_BACKOFF_MOST_S = 60, SHD_BACKOFF_LASTING_S = 600 };

typedef struct shd_backoff {
    double first_s;
    double last_s; /* the wait before; 0: there was none */
} shd_backoff;

/* The wait after an attempt that lasted lasted_s: first_s, then twice the one before, SHD_BACKOFF_MOST_S at most; after
 * one that lasted SHD_BACKOFF_LASTING_S, first_s again. */
double shd_backoff_next(shd_backoff *backoff, double lasted_s);

#endif
