#include "runtime/launch/terminal.h"

#include "runtime/base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SAY_BYTES = 1200, NOTE_BYTES = 160, FIRST_BYTES = 1 << 14, RUN_BYTES = 128 };

void shd_terminal_init(shd_terminal *terminal, int fd) {
    *terminal = (shd_terminal){.fd = fd};
    struct stat info;
    if (fd < 0 || fstat(fd, &info) < 0) {
        terminal->fd = -1;
        return;
    }
    terminal->is_socket = S_ISSOCK(info.st_mode);
    if (!S_ISFIFO(info.st_mode) && !S_ISCHR(info.st_mode)) return;
    /* A description of its own for the same pipe or terminal: not to wait is then nobody else's affair. */
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    terminal->is_own = own >= 0;
    terminal->is_blocking = own < 0;
    terminal->is_characters = S_ISCHR(info.st_mode);
    if (own >= 0) terminal->fd = own;
}

static void forget(shd_terminal *terminal) { terminal->first = terminal->count = 0; }

/* Nobody reads on. */
static void leave(shd_terminal *terminal) {
    if (terminal->is_own) close(terminal->fd);
    shd_free(terminal->queue);
    *terminal = (shd_terminal){.fd = -1};
}

void shd_terminal_fini(shd_terminal *terminal) {
    if (terminal->fd > 0 || terminal->is_own || terminal->queue) leave(terminal);
}

static bool grow(shd_terminal *terminal, size_t bytes) {
    if (terminal->first > 0) {
        memmove(terminal->queue, terminal->queue + terminal->first, terminal->count);
        terminal->first = 0;
    }
    size_t room = terminal->room ? terminal->room : FIRST_BYTES;
    while (room < terminal->count + bytes) room *= 2;
    if (room == terminal->room) return true;
    char *queue = shd_realloc(terminal->queue, room);
    if (!queue) return false;
    terminal->queue = queue;
    terminal->room = room;
    return true;
}

static void add_note(shd_terminal *terminal) {
    terminal->count += (size_t)snprintf(
        terminal->queue + terminal->first + terminal->count, NOTE_BYTES,
        "%ssherd: %" PRId64 " lines of ranks are left out here: %s\n", terminal->torn ? "\n" : "", terminal->left_out,
        terminal->was_full ? "there was no room" : "they came faster than they were taken");
    terminal->left_out = 0;
    terminal->was_full = terminal->torn = false;
}

bool shd_terminal_waits(const shd_terminal *terminal) { return terminal->fd >= 0 && terminal->count > 0; }

/* No room for what is queued. */
static void lose(shd_terminal *terminal) {
    const char *at = terminal->queue + terminal->first, *end = at + terminal->count;
    if (terminal->first > 0) terminal->torn = at[-1] != '\n';
    for (; at < end; at++) terminal->left_out += *at == '\n';
    terminal->was_full = true;
    forget(terminal);
}

/* Where a write may wait, only as much as is sure to be taken once poll has said that there is room. A terminal says so when it
 * has one more piece of 256 bytes, of which a run of text takes one, and each control character, as LF that becomes CR LF,
 * may take another. */
static size_t count_sure(const shd_terminal *terminal, const char *at) {
    size_t most = terminal->is_characters ? RUN_BYTES : PIPE_BUF / 4, bytes = 0;
    if (!terminal->is_blocking || most > terminal->count) most = terminal->count;
    if (!terminal->is_blocking || !terminal->is_characters) return most;
    while (bytes < most && (unsigned char)at[bytes] >= ' ') bytes++;
    return bytes ? bytes : 1;
}

/* One piece. Returns false when no more can be written now. */
static bool write_some(shd_terminal *terminal) {
    const char *at = terminal->queue + terminal->first;
    size_t some = count_sure(terminal, at);
    ssize_t written =
        terminal->is_socket ? send(terminal->fd, at, some, MSG_DONTWAIT | MSG_NOSIGNAL) : write(terminal->fd, at, some);
    if (written < 0 && errno == EINTR) return true;
    if (written < 0 && errno == EAGAIN) return false;
    if (written < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
        lose(terminal);
        return false;
    }
    if (written <= 0) {
        leave(terminal);
        return false;
    }
    terminal->first += (size_t)written;
    terminal->count -= (size_t)written;
    if (terminal->count == 0) terminal->first = 0;
    return !terminal->is_blocking;
}

/* The disk was full: the note shows whether it still is. */
static bool has_room_again(shd_terminal *terminal) {
    const int64_t lines = terminal->left_out;
    const bool torn = terminal->torn;
    if (NOTE_BYTES > terminal->room && !grow(terminal, NOTE_BYTES)) return false;
    add_note(terminal);
    while (shd_terminal_waits(terminal) && write_some(terminal)) {}
    if (terminal->fd < 0) return false;
    if (!terminal->was_full) return true;
    terminal->left_out = lines;
    terminal->torn |= torn;
    return false;
}

char *shd_terminal_room(shd_terminal *terminal, size_t bytes) {
    if (terminal->fd < 0) return NULL;
    if (terminal->was_full && !has_room_again(terminal)) {
        terminal->left_out++;
        return NULL;
    }
    size_t note = terminal->left_out ? NOTE_BYTES : 0, used = terminal->first + terminal->count;
    /* Once lines are left out, many are: one note for a long gap, instead of a note between any two lines. */
    size_t limit = terminal->left_out ? SHD_TERMINAL_QUEUE_BYTES / 2 : SHD_TERMINAL_QUEUE_BYTES;
    bool full = terminal->count > 0 && terminal->count + note + bytes > limit;
    if (full || (used + note + bytes > terminal->room && !grow(terminal, note + bytes))) {
        terminal->left_out++;
        return NULL;
    }
    if (note) add_note(terminal);
    return terminal->queue + terminal->first + terminal->count;
}

void shd_terminal_add(shd_terminal *terminal, size_t bytes) { terminal->count += bytes; }

void shd_terminal_say(shd_terminal *terminal, const char *format, ...) {
    char *at = shd_terminal_room(terminal, SAY_BYTES);
    if (!at) return;
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(at, SAY_BYTES, format, arguments);
    va_end(arguments);
    if (bytes > 0) shd_terminal_add(terminal, (size_t)bytes < SAY_BYTES ? (size_t)bytes : SAY_BYTES - 1);
}

void shd_terminal_write(shd_terminal *terminal, bool ready) {
    if (terminal->is_blocking && !ready) return;
    while (shd_terminal_waits(terminal) && write_some(terminal)) {}
}

bool shd_terminal_drain(shd_terminal *terminal, int patience_ms) {
    if (!shd_terminal_waits(terminal)) return false;
    struct pollfd room = {.fd = terminal->fd, .events = POLLOUT};
    int got = poll(&room, 1, patience_ms);
    if (got == 0 || (got < 0 && errno != EINTR)) return false;
    if (got > 0) shd_terminal_write(terminal, true);
    return true;
}
