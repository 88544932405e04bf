/* A text that grows. */
#ifndef SHD_IO_TEXT_H
#define SHD_IO_TEXT_H

#include <sherd/status.h>
#include <stdbool.h>
#include <stddef.h>

/* All zero is the empty text. A failure to grow is remembered and told by shd_text_finish. */
typedef struct shd_text {
    char *bytes;
    size_t length, capacity;
    bool failed;
} shd_text;

void shd_text_add(shd_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Hands the text over: release *out with shd_free. Fails: MEMORY, then everything is released. */
sherd_status shd_text_finish(shd_text *text, char **out);

#endif
