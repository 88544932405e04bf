#include "tests/fuzz/seal.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { SLICES_MAX = 64 };

static void add_word(fuzz_text *out, uint64_t word) {
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(word >> 8 * i);
    fuzz_add(out, bytes, sizeof bytes);
}

/* The checksums of the slices that `header` describes, 0 where the values do not reach; their number. */
static size_t hash_slices(const char *header, size_t header_bytes, const uint8_t *values, size_t value_bytes,
                          uint64_t hashes[SLICES_MAX]) {
    json_t *root = json_loadb(header, header_bytes, 0, NULL), *list = json_object_get(root, "slices");
    size_t count = 0, done = 0;
    for (; count < SLICES_MAX && count < json_array_size(list); count++) {
        json_int_t elements = json_integer_value(json_object_get(json_array_get(list, count), "count"));
        bool there = elements >= 0 && (uint64_t)elements <= (value_bytes - done) / sizeof(float);
        size_t bytes = there ? (size_t)elements * sizeof(float) : 0;
        hashes[count] = there ? XXH3_64bits(values + done, bytes) : 0;
        done += bytes;
    }
    json_decref(root);
    return count;
}

void seal_rank_file(fuzz_text *out, const uint8_t *data, size_t bytes, uint64_t *header_hash) {
    static const uint8_t none;
    if (bytes == 0) data = &none;
    const uint8_t *newline = memchr(data, '\n', bytes);
    size_t header_bytes = newline ? (size_t)(newline - data) : bytes;
    const uint8_t *values = newline ? newline + 1 : data + bytes;
    size_t value_bytes = bytes - (size_t)(values - data);
    uint64_t hashes[SLICES_MAX];
    size_t count = hash_slices((const char *)data, header_bytes, values, value_bytes, hashes);
    fuzz_text header = {0};
    fuzz_fill(&header, (const char *)data, header_bytes, "\"xxh3\"", hashes, count);
    *header_hash = XXH3_64bits(header.bytes, header.length);
    fuzz_add(out, "SHERDRNK", 8);
    add_word(out, header.length);
    add_word(out, *header_hash);
    fuzz_add(out, header.bytes, header.length);
    fuzz_add(out, values, value_bytes);
    free(header.bytes);
}

void seal_manifest(fuzz_text *out, const char *body, size_t bytes) {
    char seal[64];
    size_t before = out->length;
    fuzz_add(out, body, bytes);
    snprintf(seal, sizeof seal, ",\n  \"xxh3\": \"%016llx\"\n}\n",
             (unsigned long long)XXH3_64bits(out->bytes ? out->bytes + before : "", bytes));
    fuzz_add(out, seal, strlen(seal));
}
