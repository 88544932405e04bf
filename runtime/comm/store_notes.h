/* What the store's thread has to say in the log, on a thread of its own: whoever takes the lines may be as slow as a
 * terminal that somebody has stopped, and those whom the store serves must not wait for that. */
#ifndef SHD_COMM_STORE_NOTES_H
#define SHD_COMM_STORE_NOTES_H

#include <sherd/status.h>

enum { SHD_STORE_NOTES = 80, SHD_STORE_NOTE_BYTES = 256 };

typedef struct shd_store_notes shd_store_notes;

/* Fails: MEMORY. */
sherd_status shd_store_notes_start(shd_store_notes **out);
/* Notes a warning, which is soon said; of those beyond SHD_STORE_NOTES in all, nothing is. Never waits.
 * Threads: any. */
void shd_store_notes_add(shd_store_notes *notes, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Waits until all is said, a second at most: a thread that still waits for its line to be taken is left to itself.
 * Frees. Accepts NULL. */
void shd_store_notes_stop(shd_store_notes *notes);

#endif
