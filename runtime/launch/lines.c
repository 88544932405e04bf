#include "runtime/launch/lines.h"

#include "runtime/base/memory.h"

#include <string.h>

/* What is kept for the next line, after a long one too. */
enum { ROOM_BYTES = 4096 };

static void take_line(shd_lines *lines, shd_lines_take *take, void *user) {
    take(user, lines->text ? lines->text : "", lines->count);
    lines->count = 0;
    if (lines->room <= ROOM_BYTES) return;
    shd_free(lines->text);
    lines->text = NULL;
    lines->room = 0;
}

/* Room for one byte at least; false: the line is as long as it may get. */
static bool grow(shd_lines *lines) {
    if (lines->count < lines->room) return true;
    size_t room = lines->room ? 2 * lines->room : ROOM_BYTES;
    if (room > SHD_LINES_MAX_BYTES) return false;
    char *text = shd_realloc(lines->text, room);
    if (!text) return false;
    lines->text = text;
    lines->room = room;
    return true;
}

static void add(shd_lines *lines, const char *bytes, size_t count, shd_lines_take *take, void *user) {
    while (count > 0) {
        if (!grow(lines)) {
            if (lines->room == 0) return; /* no memory at all */
            take_line(lines, take, user);
            continue;
        }
        size_t some = lines->room - lines->count < count ? lines->room - lines->count : count;
        memcpy(lines->text + lines->count, bytes, some);
        lines->count += some;
        bytes += some;
        count -= some;
    }
}

/* A CR came that no LF follows. */
static void begin_anew(shd_lines *lines, double now_ms, shd_lines_take *take, void *user) {
    bool due = lines->state_ms == 0 || now_ms - lines->state_ms >= SHD_LINES_STATE_MS;
    if (lines->count > 0 && due) {
        lines->state_ms = now_ms;
        take_line(lines, take, user);
    }
    lines->count = 0;
}

static const char *find_end(const char *at, const char *end) {
    while (at < end && *at != '\n' && *at != '\r') at++;
    return at;
}

void shd_lines_feed(shd_lines *lines, const char *bytes, size_t count, double now_ms, shd_lines_take *take,
                    void *user) {
    const char *at = bytes, *end = bytes + count;
    while (at < end) {
        if (lines->returned && *at != '\n' && *at != '\r') {
            begin_anew(lines, now_ms, take, user);
            lines->returned = false;
        }
        const char *stop = find_end(at, end);
        add(lines, at, (size_t)(stop - at), take, user);
        if (stop == end) return;
        if (*stop == '\n') take_line(lines, take, user);
        lines->returned = *stop == '\r';
        at = stop + 1;
    }
}

void shd_lines_finish(shd_lines *lines, shd_lines_take *take, void *user) {
    if (lines->count > 0) take_line(lines, take, user);
    shd_free(lines->text);
    *lines = (shd_lines){0};
}
