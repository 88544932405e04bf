#include "tests/support/failing_memory.h"

#include <stdlib.h>
#include <string.h>

static int64_t calls_left = INT64_MAX, live_count;

void failing_memory_after(int64_t calls) { calls_left = calls; }
int64_t failing_memory_live(void) { return live_count; }

static bool refuses(void) { return calls_left-- <= 0; }

void *shd_alloc(size_t count, size_t bytes) {
    if (refuses()) return NULL;
    live_count++;
    return calloc(count ? count : 1, bytes ? bytes : 1);
}

void *shd_realloc(void *pointer, size_t bytes) {
    if (refuses()) return NULL;
    if (!pointer) live_count++;
    return realloc(pointer, bytes ? bytes : 1);
}

char *shd_strdup(const char *text) {
    char *copy = shd_alloc(strlen(text) + 1, 1);
    return copy ? strcpy(copy, text) : NULL;
}

void shd_free(void *pointer) {
    if (pointer) live_count--;
    free(pointer);
}

void *shd_map(int64_t bytes) {
    enum { PAGE_BYTES = 4096 };
    if (refuses()) return NULL;
    size_t whole = ((size_t)bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    void *pages = aligned_alloc(PAGE_BYTES, whole);
    if (!pages) return NULL;
    live_count++;
    return memset(pages, 0, whole);
}
void shd_unmap(void *pointer, int64_t bytes) {
    (void)bytes;
    shd_free(pointer);
}
void shd_memory_note(shd_memory_use use, int64_t bytes) { (void)use, (void)bytes; }
int64_t shd_memory_held(shd_memory_use use) { return use == SHD_MEMORY_OBJECTS ? live_count : 0; }
int64_t shd_memory_calls(void) { return 0; }
