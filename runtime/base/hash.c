#include "runtime/base/hash.h"

#include <string.h>
#include <xxhash.h>

uint64_t shd_hash_bytes(uint64_t hash, const void *data, size_t bytes) {
    return XXH3_64bits_withSeed(data, bytes, hash);
}

uint64_t shd_hash_text(uint64_t hash, const char *text) { return shd_hash_bytes(hash, text, strlen(text) + 1); }
