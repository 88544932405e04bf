/* Monotonic time. */
#ifndef SHD_BASE_CLOCK_H
#define SHD_BASE_CLOCK_H

/* Milliseconds since an arbitrary point, never going back. */
double shd_clock_ms(void);

#endif
