/* Bytes, as they come one by one, cut into whole UTF-8 characters (RFC 3629).
 *
 * The first bytes of a character wait for the rest of it; bytes that form none are handed on as soon as that is clear.
 * So every byte is handed on once and in order, but for a character that is not whole at the end. */
#ifndef SHD_TRAIN_CHARACTERS_H
#define SHD_TRAIN_CHARACTERS_H

#include <stdbool.h>

enum { SHD_CHARACTER_BYTES = 4 };

/* Lives in the caller's memory, zeroed but for `take` and `user`. */
typedef struct shd_characters {
    /* One character, or `count` bytes that are none. */
    void (*take)(void *user, const unsigned char *bytes, int count, bool character);
    void *user;
    unsigned char held[SHD_CHARACTER_BYTES]; /* the start of a character */
    int held_count;
} shd_characters;

void shd_characters_put(shd_characters *characters, unsigned char byte);
/* The text ends, another may begin. Returns how many bytes of a character that is not whole were not handed on; they
 * stand in `held` until the next put. */
int shd_characters_end(shd_characters *characters);

#endif
