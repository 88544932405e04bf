#include "tests/softcuda/soft_internal.h"

/* Weak: they are there in builds with the sanitizer only. */
#define SANITIZER(declaration) extern declaration __attribute__((weak))
SANITIZER(void *__tsan_get_current_fiber(void));
SANITIZER(void *__tsan_create_fiber(unsigned flags));
SANITIZER(void __tsan_destroy_fiber(void *fiber));
SANITIZER(void __tsan_switch_to_fiber(void *fiber, unsigned flags));
SANITIZER(void __tsan_set_fiber_name(void *fiber, const char *name));
SANITIZER(void __tsan_acquire(void *address));
SANITIZER(void __tsan_release(void *address));
SANITIZER(void __tsan_read_range(void *address, unsigned long bytes));
SANITIZER(void __tsan_write_range(void *address, unsigned long bytes));
SANITIZER(void __asan_poison_memory_region(void const volatile *address, size_t bytes));
SANITIZER(void __asan_unpoison_memory_region(void const volatile *address, size_t bytes));

enum { NO_SYNCHRONISATION = 1 };

void *soft_tsan_fiber(void *fiber, const char *name) {
    if (fiber || !__tsan_create_fiber) return fiber;
    fiber = __tsan_create_fiber(0);
    __tsan_set_fiber_name(fiber, name);
    return fiber;
}

void *soft_tsan_current(void) { return __tsan_get_current_fiber ? __tsan_get_current_fiber() : NULL; }

void soft_tsan_switch(void *fiber) {
    if (fiber) __tsan_switch_to_fiber(fiber, NO_SYNCHRONISATION);
}

void soft_tsan_end(void *fiber) {
    if (fiber) __tsan_destroy_fiber(fiber);
}

void soft_tsan_acquire(void *address) {
    if (__tsan_acquire) __tsan_acquire(address);
}

void soft_tsan_release(void *address) {
    if (__tsan_release) __tsan_release(address);
}

void soft_tsan_touch(const softcuda_access *accesses, size_t count) {
    if (!__tsan_read_range) return;
    for (size_t i = 0; i < count; i++) {
        if (accesses[i].bytes == 0) continue;
        if (accesses[i].writes)
            __tsan_write_range((void *)accesses[i].memory, accesses[i].bytes);
        else
            __tsan_read_range((void *)accesses[i].memory, accesses[i].bytes);
    }
}

void soft_asan_poison(const void *memory, size_t bytes) {
    if (__asan_poison_memory_region) __asan_poison_memory_region(memory, bytes);
}

void soft_asan_unpoison(const void *memory, size_t bytes) {
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(memory, bytes);
}
