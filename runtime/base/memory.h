/* All memory of sherd comes from here: small objects by shd_alloc, arenas of planned size by shd_map.
 *
 * Both are counted by what they are for, so that a running job can be held to its plan. */
#ifndef SHD_BASE_MEMORY_H
#define SHD_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum shd_memory_use {
    SHD_MEMORY_OBJECTS, /* shd_alloc: descriptions, programs, tables, strings */
    SHD_MEMORY_ARENA,   /* shd_map: what the plan promises; comm counts its shared arenas here too */
    SHD_MEMORY_CONTROL, /* counters and mailboxes between ranks */
    SHD_MEMORY_DEVICE,  /* a device's own (runtime/device): what the plan promises there */
    SHD_MEMORY_PINNED,  /* host memory that a device copies from and to */
    SHD_MEMORY_USES
} shd_memory_use;

/* `count` objects of `bytes` each, zeroed; NULL when memory is out or the product overflows. A zero size gives a unique
 * pointer. */
void *shd_alloc(size_t count, size_t bytes) __attribute__((malloc, warn_unused_result));
/* Grows or shrinks; new bytes are undefined. On NULL the old object is as before. */
void *shd_realloc(void *pointer, size_t bytes) __attribute__((warn_unused_result));
/* A copy of `text`, or NULL. */
char *shd_strdup(const char *text) __attribute__((malloc, warn_unused_result));
/* Accepts NULL. */
void shd_free(void *pointer);

/* Anonymous zeroed pages, which begin where a page does (4096 bytes), huge pages advised. They are taken at once, so that running out is a
 * NULL here and not a killed process in the middle of a step. `bytes` > 0. */
void *shd_map(int64_t bytes) __attribute__((warn_unused_result));
/* Accepts NULL. `bytes` as given to shd_map. */
void shd_unmap(void *pointer, int64_t bytes);

/* Counts memory that another file mapped (shared arenas); negative when it is gone. */
void shd_memory_note(shd_memory_use use, int64_t bytes);

/* Bytes now held by this process for `use`. Threads: any. */
int64_t shd_memory_held(shd_memory_use use);
/* Calls of shd_alloc, shd_realloc and shd_map since the start. Threads: any. */
int64_t shd_memory_calls(void);

#endif
