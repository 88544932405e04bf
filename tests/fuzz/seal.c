#include "tests/fuzz/seal.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { BLOCKS_MAX = 64, ALIGN = 4096, STEP = 3, TAIL_BYTES = 32 };

static void add_word(fuzz_text *out, uint64_t word, int bytes) {
    unsigned char little[8];
    for (int i = 0; i < bytes; i++) little[i] = (unsigned char)(word >> 8 * i);
    fuzz_add(out, little, (size_t)bytes);
}

/* Zeros up to `rest` bytes before a multiple of a page. */
static void pad(fuzz_text *out, size_t rest) {
    static const char zeros[ALIGN];
    fuzz_add(out, zeros, (ALIGN - (out->length + rest) % ALIGN) % ALIGN);
}

/* Appends the blocks that `index` describes; of each, where it is and its checksum. Their number. */
static size_t add_blocks(fuzz_text *out, const char *index, size_t index_bytes, const uint8_t *stored,
                         size_t stored_bytes, uint64_t offsets[BLOCKS_MAX], uint64_t hashes[BLOCKS_MAX]) {
    json_t *root = json_loadb(index, index_bytes, 0, NULL), *list = json_object_get(root, "blocks");
    size_t count = 0;
    for (; count < BLOCKS_MAX && count < json_array_size(list); count++) {
        json_int_t wanted = json_integer_value(json_object_get(json_array_get(list, count), "bytes"));
        size_t bytes = wanted < 0 ? 0 : (uint64_t)wanted < stored_bytes ? (size_t)wanted : stored_bytes;
        offsets[count] = out->length;
        fuzz_add(out, stored, bytes);
        pad(out, 0);
        hashes[count] = XXH3_64bits(out->bytes + offsets[count], out->length - offsets[count]);
        stored += bytes;
        stored_bytes -= bytes;
    }
    json_decref(root);
    return count;
}

/* The checksum of head and index, which lie on both sides of the blocks. */
static uint64_t hash_frame(const fuzz_text *file, size_t foot) {
    fuzz_text frame = {0};
    fuzz_add(&frame, file->bytes, ALIGN);
    fuzz_add(&frame, file->bytes + foot, file->length - foot);
    uint64_t hash = XXH3_64bits(frame.bytes, frame.length);
    free(frame.bytes);
    return hash;
}

static void fill_index(fuzz_text *out, const char *index, size_t index_bytes, const uint64_t *offsets,
                       const uint64_t *hashes, size_t count) {
    fuzz_text placed = {0};
    fuzz_fill(&placed, index, index_bytes, "\"offset\"", offsets, count);
    fuzz_fill(out, placed.bytes, placed.length, "\"xxh3\"", hashes, count);
    free(placed.bytes);
}

void seal_rank_file(fuzz_text *out, const uint8_t *data, size_t bytes, int32_t rank, uint64_t *index_hash) {
    static const uint8_t none;
    if (bytes == 0) data = &none;
    const uint8_t *newline = memchr(data, '\n', bytes);
    size_t index_bytes = newline ? (size_t)(newline - data) : bytes;
    const uint8_t *stored = newline ? newline + 1 : data + bytes;
    uint64_t offsets[BLOCKS_MAX], hashes[BLOCKS_MAX];
    fuzz_text sketch = {0}, index = {0};
    /* Offsets are numbers without quotes, which blanks are not: the sketch has 0 in their place. */
    fuzz_fill(&sketch, (const char *)data, index_bytes, "\"offset\"", (const uint64_t[BLOCKS_MAX]){0}, BLOCKS_MAX);
    fuzz_add(out, "SHERDCKP", 8);
    add_word(out, 2, 4);
    add_word(out, (uint32_t)rank, 4);
    add_word(out, STEP, 8);
    pad(out, 0);
    size_t count = add_blocks(out, sketch.bytes ? sketch.bytes : "", sketch.length, stored,
                              bytes - (size_t)(stored - data), offsets, hashes);
    fill_index(&index, (const char *)data, index_bytes, offsets, hashes, count);
    size_t foot = out->length;
    fuzz_add(out, index.bytes, index.length);
    pad(out, TAIL_BYTES);
    add_word(out, index.length, 8);
    add_word(out, 0, 8);
    *index_hash = hash_frame(out, foot);
    add_word(out, *index_hash, 8);
    fuzz_add(out, "SHERDEND", 8);
    free(sketch.bytes);
    free(index.bytes);
}

void seal_manifest(fuzz_text *out, const char *body, size_t bytes) {
    char seal[64];
    size_t before = out->length;
    fuzz_add(out, body, bytes);
    snprintf(seal, sizeof seal, ",\n  \"xxh3\": \"%016llx\"\n}\n",
             (unsigned long long)XXH3_64bits(out->bytes ? out->bytes + before : "", bytes));
    fuzz_add(out, seal, strlen(seal));
}
