/* Monotonic time. */
#ifndef SHD_BASE_CLOCK_H
#define SHD_BASE_CLOCK_H

#include <stdint.h>

/* Milliseconds since an arbitrary point, never going back. */
double shd_clock_ms(void);
/* The same clock in nanoseconds; on one host it is the same for all processes. */
int64_t shd_clock_ns(void);

#endif
