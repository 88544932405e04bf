#include "io/keep.h"

#include "runtime/base/memory.h"

#include <string.h>

typedef struct keep_block {
    struct keep_block *next;
    max_align_t bytes[];
} keep_block;

struct shd_keep {
    keep_block *blocks;
};

shd_keep *shd_keep_create(void) { return shd_alloc(1, sizeof(shd_keep)); }

void shd_keep_destroy(shd_keep *keep) {
    if (!keep) return;
    for (keep_block *block = keep->blocks, *next; block; block = next) {
        next = block->next;
        shd_free(block);
    }
    shd_free(keep);
}

void *shd_keep_take(shd_keep *keep, size_t bytes) {
    keep_block *block = shd_alloc(1, sizeof *block + bytes);
    if (!block) return NULL;
    block->next = keep->blocks;
    keep->blocks = block;
    return block->bytes;
}

char *shd_keep_text(shd_keep *keep, const char *text, size_t length) {
    char *copy = shd_keep_take(keep, length + 1);
    if (copy) memcpy(copy, text, length);
    return copy;
}
