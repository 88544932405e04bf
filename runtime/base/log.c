#include "runtime/base/log.h"

#include <stdarg.h>
#include <stdio.h>

/* One of the two mutable globals of the library; set once, before the first session. */
static struct {
    sherd_log_fn sink;
    void *user;
    sherd_log_level level;
} log_target;

void sherd_log_set(sherd_log_fn sink, void *user, sherd_log_level level) {
    log_target.sink = sink;
    log_target.user = user;
    log_target.level = level;
}

void shd_log(sherd_log_level level, const char *format, ...) {
    if (!log_target.sink || level > log_target.level) return;
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    log_target.sink(log_target.user, level, line);
}
