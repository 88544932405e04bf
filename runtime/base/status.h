/* Failing, inside sherd: the first function that knows the cause states it once; callers pass it on in silence. */
#ifndef SHD_BASE_STATUS_H
#define SHD_BASE_STATUS_H

#include <sherd/status.h>

/* Records the cause for sherd_last_error on this thread and returns `status`. */
sherd_status shd_fail(sherd_status status, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* Puts "context: " before the recorded cause, where a caller knows which file or rank it belongs to. Returns
 * `status`. */
sherd_status shd_fail_within(sherd_status status, const char *format, ...) __attribute__((format(printf, 2, 3), cold));

/* Passes a failure on to the caller. */
#define SHD_TRY(expression)                                                                                            \
    do {                                                                                                               \
        sherd_status shd_try_status_ = (expression);                                                                   \
        if (shd_try_status_ != SHERD_OK) return shd_try_status_;                                                       \
    } while (0)

#endif
