#include "runtime/train/characters.h"

/* Bytes of the character that starts with `lead`; 0 when none does. */
static int character_bytes(unsigned char lead) {
    if (lead < 0x80) return 1;
    if (lead >= 0xc2 && lead <= 0xdf) return 2;
    if (lead >= 0xe0 && lead <= 0xef) return 3;
    return lead >= 0xf0 && lead <= 0xf4 ? 4 : 0;
}

/* Whether `byte` can follow what is held. The second byte's range keeps out overlong forms, surrogates, and what is
 * above U+10FFFF. */
static bool follows(const shd_characters *characters, unsigned char byte) {
    unsigned char low = 0x80, high = 0xbf;
    if (characters->held_count == 1) {
        switch (characters->held[0]) {
        case 0xe0: low = 0xa0; break;
        case 0xed: high = 0x9f; break;
        case 0xf0: low = 0x90; break;
        case 0xf4: high = 0x8f; break;
        default: break;
        }
    }
    return byte >= low && byte <= high;
}

static void hand_on(shd_characters *characters, bool character) {
    characters->take(characters->user, characters->held, characters->held_count, character);
    characters->held_count = 0;
}

void shd_characters_put(shd_characters *characters, unsigned char byte) {
    if (characters->held_count > 0 && !follows(characters, byte)) hand_on(characters, false);
    characters->held[characters->held_count++] = byte;
    int whole = character_bytes(characters->held[0]);
    if (characters->held_count >= whole) hand_on(characters, whole > 0);
}

int shd_characters_end(shd_characters *characters) {
    int left = characters->held_count;
    characters->held_count = 0;
    return left;
}
