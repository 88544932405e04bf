#include "io/text.h"

#include "runtime/base/memory.h"
#include "runtime/base/status.h"

#include <stdarg.h>
#include <stdio.h>

static bool reserve(shd_text *text, size_t bytes) {
    if (text->length + bytes + 1 <= text->capacity) return true;
    size_t capacity = 2 * (text->length + bytes + 1);
    char *grown = shd_realloc(text->bytes, capacity);
    if (!grown) return false;
    text->bytes = grown;
    text->capacity = capacity;
    return true;
}

void shd_text_add(shd_text *text, const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int bytes = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (bytes < 0 || text->failed || !reserve(text, (size_t)bytes)) {
        text->failed = true;
    } else {
        vsnprintf(text->bytes + text->length, (size_t)bytes + 1, format, again);
        text->length += (size_t)bytes;
    }
    va_end(again);
}

sherd_status shd_text_finish(shd_text *text, char **out) {
    char *bytes = text->bytes;
    bool failed = text->failed || !bytes;
    *text = (shd_text){0};
    if (failed) {
        shd_free(bytes);
        return shd_fail(SHERD_MEMORY, "out of memory for a text");
    }
    *out = bytes;
    return SHERD_OK;
}
