#include "tests/io/llmc_files.h"

#include <stdlib.h>
#include <string.h>

/* 8 bits of a product that mixes the index well: what is in the wrong place shows. */
float llmc_value(int64_t index) { return (float)(int)((uint32_t)(index * 2654435761u) >> 24) - 128; }

char *make_llmc(const llmc_file *shape, size_t *bytes) {
    const int64_t c = shape->d_model, layers = shape->n_layer;
    const int64_t count = (shape->padded_vocab_size + shape->context) * c + layers * (12 * c * c + 13 * c) + 2 * c;
    const size_t element = shape->version == 5 ? 2 : 4;
    const int32_t head[] = {20240326,       shape->version, shape->context, shape->vocab_size,
                            shape->n_layer, shape->n_head,  shape->d_model, shape->padded_vocab_size};
    *bytes = 1024 + (size_t)count * element;
    char *file = calloc(*bytes, 1);
    memcpy(file, head, sizeof head);
    for (int64_t i = 0; i < count; i++) {
        float value = llmc_value(i);
        memcpy(file + 1024 + (size_t)i * element, (char *)&value + (4 - element), element);
    }
    return file;
}
