/* Text from outside: what of it is UTF-8, and what can be shown on one line of a terminal. */
#ifndef SHD_BASE_UTF8_H
#define SHD_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The bytes of the character at `text`, of which `left` > 0 can be read, and its *code; 0 when it is none: too long
 * forms, surrogates and numbers beyond U+10FFFF are refused (RFC 3629). */
int shd_utf8_read(const char *text, size_t left, uint32_t *code);

/* Whether a character can be shown within a line: no control character, line end of any kind, byte order mark, or no
 * character at all. */
bool shd_utf8_shows(uint32_t code);

#endif
