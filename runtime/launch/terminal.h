/* Where the launcher itself writes, a terminal, a pipe or a file, as a queue that never blocks.
 *
 * What is queued goes out when poll says so; a terminal of somebody else, which cannot be opened once more, only then.
 * One that does not keep up loses whole lines, which are counted and said, and so does a file whose disk is full; one
 * that is closed takes nothing more. Flags of the file description, which others share, are left alone. */
#ifndef SHD_LAUNCH_TERMINAL_H
#define SHD_LAUNCH_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHD_TERMINAL_QUEUE_BYTES = 8 << 20 };

typedef struct shd_terminal {
    int fd; /* -1: closed, or there is none */
    bool is_own, is_socket, is_blocking, is_characters;
    char *queue;
    size_t first, count, room; /* what has not gone out: count bytes from first */
    int64_t left_out;          /* lines, since the last note about them */
    bool was_full;             /* that is why: it is a file, whose disk is full; else it was slow */
    bool torn;                 /* and the last line that came through has no end */
} shd_terminal;

/* Takes what `fd` is open for; -1: nowhere. */
void shd_terminal_init(shd_terminal *terminal, int fd);
/* Accepts a zeroed value. */
void shd_terminal_fini(shd_terminal *terminal);

/* Room for a line of up to `bytes` at the queue's end, or NULL: the line is left out. */
char *shd_terminal_room(shd_terminal *terminal, size_t bytes);
/* Queues the `bytes` that were written there. */
void shd_terminal_add(shd_terminal *terminal, size_t bytes);
/* A line of sherd's own, an end included. */
void shd_terminal_say(shd_terminal *terminal, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Whether there is something to write. */
bool shd_terminal_waits(const shd_terminal *terminal);
/* Writes what can be written now. `ready`: poll has just said that there is room. */
void shd_terminal_write(shd_terminal *terminal, bool ready);
/* Waits until something can be written, patience_ms at most, and writes it. False: nothing is left, or it is given
 * up. */
bool shd_terminal_drain(shd_terminal *terminal, int patience_ms);

#endif
