#include "tests/io/npy_files.h"

#include "tests/io/make_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void write_npy_header(const char *path, int version, const char *header, const void *data, size_t bytes) {
    size_t prefix = version == 1 ? 10 : 12, length = strlen(header);
    size_t padding = 63 - (prefix + length) % 64; /* NumPy pads with blanks, and ends with a line end */
    size_t whole = prefix + length + padding + 1;
    unsigned char *file = calloc(whole + bytes, 1);
    if (!file) exit(1);
    memcpy(file, "\x93NUMPY", 6);
    file[6] = (unsigned char)version;
    for (size_t i = 8; i < prefix; i++) file[i] = (unsigned char)((whole - prefix) >> 8 * (i - 8));
    memcpy(file + prefix, header, length);
    memset(file + prefix + length, ' ', padding);
    file[prefix + length + padding] = '\n';
    if (bytes) memcpy(file + whole, data, bytes);
    write_file(path, file, whole + bytes);
    free(file);
}

void write_npy(const char *path, const char *type, const char *shape, const void *data, size_t bytes) {
    char header[256];
    snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", type, shape);
    write_npy_header(path, 1, header, data, bytes);
}
