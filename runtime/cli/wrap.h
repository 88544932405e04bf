/* Lines for people: on a terminal they are broken between words, where the terminal would cut through them. */
#ifndef SHD_CLI_WRAP_H
#define SHD_CLI_WRAP_H

#include <stddef.h>
#include <stdio.h>

/* The columns of the terminal that `out` is, asked for anew each time, so that a change of its size needs no signal; 0:
 * it is none, or does not tell. */
int shd_terminal_columns(FILE *out);

/* `line` in rows of at most `columns` characters, the further ones indented as far as "sherd: " is long, or by less where
 * there is little room; a word that does not fit stands alone in its row, whole. 0 columns: as it is. Pure. `out` has
 * room for `bytes`, beyond which the text is cut. */
void shd_wrap_line(const char *line, int columns, char *out, size_t bytes);

/* Writes a line, wrapped where `out` is a terminal, and its end. */
void shd_print_line(FILE *out, const char *line);

#endif
