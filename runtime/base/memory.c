#include "runtime/base/memory.h"

#include "runtime/base/spare.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; the C library of Ubuntu 22.04 does not name it */
#endif

/* The allocator's books; the second mutable global of the library. */
static _Atomic int64_t held_bytes[SHD_MEMORY_USES];
static _Atomic int64_t call_count;

static void count_object(void *pointer, int sign) {
    if (pointer) shd_memory_note(SHD_MEMORY_OBJECTS, sign * (int64_t)malloc_usable_size(pointer));
}

void *shd_alloc(size_t count, size_t bytes) {
    atomic_fetch_add_explicit(&call_count, 1, memory_order_relaxed);
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total)) return NULL;
    void *pointer = calloc(total ? total : 1, 1);
    count_object(pointer, 1);
    return pointer;
}

void *shd_realloc(void *pointer, size_t bytes) {
    atomic_fetch_add_explicit(&call_count, 1, memory_order_relaxed);
    int64_t before = pointer ? (int64_t)malloc_usable_size(pointer) : 0;
    void *moved = realloc(pointer, bytes ? bytes : 1);
    if (moved) {
        shd_memory_note(SHD_MEMORY_OBJECTS, -before);
        count_object(moved, 1);
    }
    return moved;
}

char *shd_strdup(const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = shd_alloc(bytes, 1);
    if (copy) memcpy(copy, text, bytes);
    return copy;
}

void shd_free(void *pointer) {
    count_object(pointer, -1);
    free(pointer);
}

/* Touches the pages of [start, start + bytes), in steps, since other ranks take theirs at the same time. */
static bool take_pages(char *start, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += SHD_MEMORY_STEP_BYTES) {
        int64_t step = bytes - at < SHD_MEMORY_STEP_BYTES ? bytes - at : SHD_MEMORY_STEP_BYTES;
        if (!shd_memory_can_spare(step)) return false;
        /* Kernels before 5.14 do not know it: there pages come at their first use. */
        if (madvise(start + at, (size_t)step, MADV_POPULATE_WRITE) && errno != EINVAL) return false;
    }
    return true;
}

void *shd_map(int64_t bytes) {
    atomic_fetch_add_explicit(&call_count, 1, memory_order_relaxed);
    if (!shd_memory_can_spare(bytes)) return NULL;
    void *pointer = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pointer == MAP_FAILED) return NULL;
    /* First touch runs at 7.7 GB/s with huge pages, 2.4 without; refusal only costs speed. */
    (void)madvise(pointer, (size_t)bytes, MADV_HUGEPAGE);
    if (!take_pages(pointer, bytes)) {
        munmap(pointer, (size_t)bytes);
        return NULL;
    }
    shd_memory_note(SHD_MEMORY_ARENA, bytes);
    return pointer;
}

void shd_unmap(void *pointer, int64_t bytes) {
    if (!pointer) return;
    munmap(pointer, (size_t)bytes);
    shd_memory_note(SHD_MEMORY_ARENA, -bytes);
}

void shd_memory_note(shd_memory_use use, int64_t bytes) {
    atomic_fetch_add_explicit(&held_bytes[use], bytes, memory_order_relaxed);
}

int64_t shd_memory_held(shd_memory_use use) { return atomic_load_explicit(&held_bytes[use], memory_order_relaxed); }

int64_t shd_memory_calls(void) { return atomic_load_explicit(&call_count, memory_order_relaxed); }
