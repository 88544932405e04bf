/* Where the library's log lines go. The library itself never prints. */
#ifndef SHERD_LOG_H
#define SHERD_LOG_H

#include <sherd/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* By frequency: error once per failure, info once per job event, debug once per object, trace once per collective. */
typedef enum sherd_log_level {
    SHERD_LOG_ERROR,
    SHERD_LOG_WARN,
    SHERD_LOG_INFO,
    SHERD_LOG_DEBUG,
    SHERD_LOG_TRACE
} sherd_log_level;

/* Receives one line, without newline. Borrowed during the call. Threads: may be called from any thread. */
typedef void (*sherd_log_fn)(void *user, sherd_log_level level, const char *line);

/* Sends lines up to `level` to `sink`; a NULL sink (the start state) drops them all.
 * Threads: call it before the first session and not again while one lives. */
SHERD_API void sherd_log_set(sherd_log_fn sink, void *user, sherd_log_level level);

#ifdef __cplusplus
}
#endif
#endif
