/* Status codes: what a call may return, and how bad it is.
 *
 * Every fallible function returns a sherd_status. Codes below 100: the call failed and the object is as before, unless
 * the function says what is left of it. From 100: the session is dead; only sherd_session_destroy is allowed. */
#ifndef SHERD_STATUS_H
#define SHERD_STATUS_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SHERD_API __attribute__((visibility("default")))
#else
#define SHERD_API
#endif

/* X(NAME, value, text): the one list of codes. Values never change. */
#define SHERD_STATUS_MAP(X)                                                                                            \
    X(OK, 0, "ok")                                                                                                     \
    X(ARGUMENT, 1, "bad argument")                                                                                     \
    X(STATE, 2, "call out of order")                                                                                   \
    X(MEMORY, 3, "out of memory")                                                                                      \
    X(CONFIG, 4, "bad job or option")                                                                                  \
    X(DATA, 5, "data or checkpoint refused")                                                                           \
    X(IO, 6, "input or output failed")                                                                                 \
    X(UNSUPPORTED, 7, "not available here")                                                                            \
    X(NUMERIC, 8, "a number is not finite")                                                                            \
    X(INTERNAL, 9, "an invariant of sherd is broken")                                                                  \
    X(COMM, 100, "communication failed")                                                                               \
    X(PEER, 101, "another rank failed")                                                                                \
    X(MISMATCH, 102, "ranks disagree")                                                                                 \
    X(TIMEOUT, 103, "a rank did not arrive in time")                                                                   \
    X(DEVICE, 104, "the device failed")

typedef enum sherd_status {
#define SHERD_STATUS_ENUM(name, value, text) SHERD_##name = (value),
    SHERD_STATUS_MAP(SHERD_STATUS_ENUM)
#undef SHERD_STATUS_ENUM
} sherd_status;

/* The code's text, a constant string; "unknown status" for other values. Threads: any. */
SHERD_API const char *sherd_status_text(sherd_status status);

/* True when `status` leaves its session dead whatever the call was (codes from 100). */
SHERD_API bool sherd_status_is_fatal(sherd_status status);

/* The exact cause of the last failure on this thread, never NULL; "" when none has happened.
 * Owns: borrowed, valid until the next failure on this thread. */
SHERD_API const char *sherd_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
