/* Writes .npy files for tests, with headers as NumPy writes them. */
#ifndef TESTS_IO_NPY_FILES_H
#define TESTS_IO_NPY_FILES_H

#include <stddef.h>

/* Version 1.0; `shape` as in "(2, 3)", or "(3,)". */
void write_npy(const char *path, const char *type, const char *shape, const void *data, size_t bytes);
/* Any version, and any text for a header. */
void write_npy_header(const char *path, int version, const char *header, const void *data, size_t bytes);

#endif
