#include "runtime/launch/tail.h"

#include "runtime/base/memory.h"
#include "runtime/launch/screen.h"

#include <string.h>

void shd_tail_add(shd_tail *tail, const char *line, size_t count) {
    size_t bytes = count < SHD_TAIL_LINE_BYTES ? count : SHD_TAIL_LINE_BYTES;
    memcpy(tail->lines[tail->next], line, bytes);
    tail->bytes[tail->next] = bytes;
    tail->next = (tail->next + 1) % SHD_TAIL_LINES;
    if (tail->count < SHD_TAIL_LINES) tail->count++;
}

char *shd_tail_text(const shd_tail *tail, int lines) {
    int count = !tail ? 0 : tail->count < lines ? tail->count : lines;
    if (count < 1) return NULL;
    char *text = shd_alloc((size_t)count, shd_screen_room(SHD_TAIL_LINE_BYTES) + 1);
    size_t used = 0;
    for (int i = 0; text && i < count; i++) {
        int slot = (tail->next - count + i + SHD_TAIL_LINES) % SHD_TAIL_LINES;
        used += shd_screen_plain(tail->lines[slot], tail->bytes[slot], text + used);
        text[used++] = '\n';
    }
    return text; /* zeroed: it has an end */
}
