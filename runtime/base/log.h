/* Log lines, to the sink the embedder set; see <sherd/log.h> for what each level is for. */
#ifndef SHD_BASE_LOG_H
#define SHD_BASE_LOG_H

#include <sherd/log.h>

void shd_log(sherd_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
