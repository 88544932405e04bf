/* How far two names are apart, for hints at what was meant. */
#ifndef SHD_IO_EDIT_DISTANCE_H
#define SHD_IO_EDIT_DISTANCE_H

#include <stdint.h>

/* A name longer than SHD_EDIT_NAME_BYTES is SHD_EDIT_FAR from every other. */
enum { SHD_EDIT_NAME_BYTES = 40, SHD_EDIT_FAR = 1000 };

/* Edits from `a` to `b`: insertions, deletions, replacements and swaps of neighbours, letters of either case being
 * equal. */
int32_t shd_edit_distance(const char *a, const char *b);

#endif
