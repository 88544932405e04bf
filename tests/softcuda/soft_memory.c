/* Memory of the device and pinned memory. Fresh device memory is 0xFF, a NaN in every format; a page that nobody can
 * touch follows it; freed addresses are never used again, though their pages are given back. */
#include "tests/softcuda/soft_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGNMENT = 256, FRESH = 0xFF };

static soft_allocation **allocations; /* by address */
static size_t count, capacity;
static uint32_t number;
static size_t limit, in_use[64], peak;

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }
static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

const char *soft_place_name(soft_place place) { return (const char *[]){"device", "pinned", "registered"}[place]; }

static size_t first_behind(uintptr_t address) { /* the first allocation that begins behind it */
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (allocations[middle]->begin <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The whole mapping counts: what begins in an allocation's margin was meant to be in it. */
soft_allocation *soft_find(uintptr_t address) {
    size_t at = first_behind(address);
    if (at == 0) return NULL;
    soft_allocation *before = allocations[at - 1];
    return address < before->map_end ? before : NULL;
}

static void insert(const soft_allocation *made) {
    if (count == capacity) {
        capacity = 2 * capacity + 64;
        allocations = realloc(allocations, capacity * sizeof(soft_allocation *));
    }
    size_t at = first_behind(made->begin);
    memmove(allocations + at + 1, allocations + at, (count - at) * sizeof(soft_allocation *));
    allocations[at] = malloc(sizeof *made);
    *allocations[at] = *made;
    allocations[at]->number = ++number;
    count++;
}

static void erase(uintptr_t begin) {
    size_t at = first_behind(begin) - 1;
    soft_history_end(&allocations[at]->history);
    free(allocations[at]);
    memmove(allocations + at, allocations + at + 1, (--count - at) * sizeof(soft_allocation *));
}

static size_t total_in_use(void) {
    size_t total = 0;
    for (size_t i = 0; i < sizeof in_use / sizeof *in_use; i++) total += in_use[i];
    return total;
}

/* Device memory ends where its pages end, as far as alignment allows, so that the page behind it is near. */
static cudaError_t map(size_t bytes, soft_place place, void **out) {
    size_t page = page_bytes(), pages = round_up(bytes, page) + page;
    char *base = mmap(NULL, pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return cudaErrorMemoryAllocation;
    mprotect(base + pages - page, page, PROT_NONE);
    memset(base, FRESH, pages - page);
    char *begin = place == SOFT_DEVICE ? base + pages - page - round_up(bytes, ALIGNMENT) : base;
    insert(&(soft_allocation){.begin = (uintptr_t)begin,
                              .end = (uintptr_t)begin + bytes,
                              .map_begin = (uintptr_t)base,
                              .map_end = (uintptr_t)base + pages,
                              .place = place,
                              .device = soft_device()});
    if (place == SOFT_DEVICE) soft_asan_poison(base, pages - page);
    *out = begin;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t bytes) {
    SOFT_ENTER();
    int device = soft_device();
    if (!out) return soft_leave(cudaErrorInvalidValue);
    *out = NULL;
    if (bytes == 0) return soft_leave(cudaSuccess);
    if (bytes > limit || in_use[device] + bytes > limit) return soft_leave(cudaErrorMemoryAllocation);
    cudaError_t code = map(bytes, SOFT_DEVICE, out);
    if (code == cudaSuccess) in_use[device] += bytes;
    if (total_in_use() > peak) peak = total_in_use();
    return soft_leave(code);
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags) {
    (void)flags;
    SOFT_ENTER();
    if (!out) return soft_leave(cudaErrorInvalidValue);
    *out = NULL;
    return soft_leave(bytes == 0 ? cudaSuccess : map(bytes, SOFT_PINNED, out));
}

/* Bytes beside the allocation, in its own pages, are as they were made. */
static void check_margins(const soft_allocation *a) {
    soft_asan_unpoison((void *)a->map_begin, a->map_end - page_bytes() - a->map_begin);
    bool is_clean = true;
    for (uintptr_t p = a->map_begin; p < a->begin; p++) is_clean &= *(unsigned char *)p == FRESH;
    for (uintptr_t p = a->end; p < a->map_end - page_bytes(); p++) is_clean &= *(unsigned char *)p == FRESH;
    if (!is_clean)
        softcuda_add_report("out of bounds: something wrote beside the %zu bytes of %s allocation %u",
                            a->end - a->begin, soft_place_name(a->place), a->number);
}

/* A device waits for its work before it frees memory; the report says that the code should have. */
static void report_pending(const soft_allocation *a, const char *function) {
    soft_stamp pending = soft_pending(&a->history);
    if (pending.name)
        softcuda_add_report(
            "free while pending: %s of %s allocation %u (%zu bytes) before the host has seen the end of %s "
            "(operation %u, %s)",
            function, soft_place_name(a->place), a->number, a->end - a->begin, soft_interned(pending.name),
            pending.number, soft_entity_name(pending.entity));
    while (soft_step()) {}
}

static cudaError_t release(void *memory, soft_place place, const char *function) {
    if (!memory) return cudaSuccess;
    soft_allocation *a = soft_find((uintptr_t)memory);
    if (!a || a->is_freed || a->begin != (uintptr_t)memory || a->place != place) {
        softcuda_add_report("bad free: %s of %p, which %s", function, memory,
                            a && a->is_freed && a->begin == (uintptr_t)memory ? "is freed already"
                                                                              : "is not the begin of such memory");
        return cudaErrorInvalidValue;
    }
    report_pending(a, function);
    soft_history_end(&a->history);
    if (place == SOFT_REGISTERED) {
        erase(a->begin);
        return cudaSuccess;
    }
    check_margins(a);
    a->is_freed = true;
    if (place == SOFT_DEVICE) in_use[a->device] -= a->end - a->begin;
    mmap((void *)a->map_begin, a->map_end - a->map_begin, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory) {
    SOFT_ENTER();
    return soft_leave(release(memory, SOFT_DEVICE, __func__));
}

cudaError_t cudaFreeHost(void *memory) {
    SOFT_ENTER();
    return soft_leave(release(memory, SOFT_PINNED, __func__));
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags) {
    (void)flags;
    SOFT_ENTER();
    uintptr_t begin = (uintptr_t)memory;
    if (!memory || bytes == 0) return soft_leave(cudaErrorInvalidValue);
    soft_allocation *a = soft_find(begin), *b = soft_find(begin + bytes - 1);
    if ((a && !a->is_freed) || (b && !b->is_freed)) return soft_leave(cudaErrorHostMemoryAlreadyRegistered);
    insert(&(soft_allocation){.begin = begin,
                              .end = begin + bytes,
                              .map_begin = begin,
                              .map_end = begin + bytes,
                              .place = SOFT_REGISTERED,
                              .device = soft_device()});
    return soft_leave(cudaSuccess);
}

cudaError_t cudaHostUnregister(void *memory) {
    SOFT_ENTER();
    soft_allocation *a = soft_find((uintptr_t)memory);
    if (!a || a->is_freed || a->begin != (uintptr_t)memory) return soft_leave(cudaErrorHostMemoryNotRegistered);
    return soft_leave(release(memory, SOFT_REGISTERED, __func__));
}

cudaError_t cudaHostGetDevicePointer(void **out, void *memory, unsigned flags) {
    (void)flags;
    SOFT_ENTER();
    soft_allocation *a = soft_find((uintptr_t)memory);
    if (!a || a->is_freed || a->place == SOFT_DEVICE) return soft_leave(cudaErrorInvalidValue);
    *out = memory;
    return soft_leave(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    SOFT_ENTER();
    size_t used = in_use[soft_device()];
    *available = used < limit ? limit - used : 0;
    *total = limit;
    return soft_leave(cudaSuccess);
}

bool softcuda_is_device_memory(const void *memory, size_t bytes) {
    soft_lock();
    soft_allocation *a = soft_find((uintptr_t)memory);
    bool is_there = a && !a->is_freed && bytes <= a->end - (uintptr_t)memory && (uintptr_t)memory <= a->end;
    soft_unlock();
    return is_there;
}

void softcuda_limit_memory(size_t bytes) { limit = bytes; }
size_t softcuda_memory_in_use(void) { return total_in_use(); }
size_t softcuda_memory_peak(void) { return peak; }

static void set_veil(const softcuda_access *accesses, size_t n, void (*set)(const void *, size_t)) {
    for (size_t i = 0; i < n; i++) {
        const soft_allocation *a = accesses[i].bytes > 0 ? soft_find((uintptr_t)accesses[i].memory) : NULL;
        if (a && a->place == SOFT_DEVICE && !a->is_freed) set(accesses[i].memory, accesses[i].bytes);
    }
}

void soft_unveil(const softcuda_access *accesses, size_t n) { set_veil(accesses, n, soft_asan_unpoison); }
void soft_veil(const softcuda_access *accesses, size_t n) { set_veil(accesses, n, soft_asan_poison); }

void soft_report_memory_leaks(void) {
    for (size_t i = 0; i < count; i++)
        if (!allocations[i]->is_freed)
            softcuda_add_report("leak: %zu bytes of %s memory (allocation %u)",
                                allocations[i]->end - allocations[i]->begin, soft_place_name(allocations[i]->place),
                                allocations[i]->number);
}
