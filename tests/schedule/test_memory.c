/* Memory that runs out: each allocation of compile and verify fails in turn, and nothing may leak or be used half made.
 * Sanitizers have allocators of their own; there this file is empty. */
#include "tests/schedule/cases.h"

#include "runtime/base/memory.h"

#include <criterion/criterion.h>

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CAN_FAIL_MEMORY 1
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#undef CAN_FAIL_MEMORY
#endif
#endif

#ifdef CAN_FAIL_MEMORY

/* How many more allocations of this thread succeed; negative: all. */
static _Thread_local int64_t allowance = -1;

static bool refused(void) { return allowance >= 0 && allowance-- == 0; }

void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *pointer, size_t bytes);
void *calloc(size_t count, size_t bytes) { return refused() ? NULL : __libc_calloc(count, bytes); }
void *realloc(void *pointer, size_t bytes) { return refused() ? NULL : __libc_realloc(pointer, bytes); }

static const case_policy policy = {.world_size = 3, .stage = 3, .gradient_slots = 3, .prefetch = 1, .shared = true};

Test(memory, compile_fails_cleanly_whichever_allocation_fails) {
    case_programs made = case_compile(CASE_DEEP, policy, SHD_PROGRAM_TRAIN, 1, true);
    int64_t held = shd_memory_held(SHD_MEMORY_OBJECTS);
    int64_t failures = 0;
    for (sherd_status status = SHERD_MEMORY; status != SHERD_OK; failures++) {
        shd_program *program = NULL;
        allowance = failures;
        status = shd_program_compile(made.plans[1], SHD_PROGRAM_TRAIN, 2, true, &program);
        allowance = -1;
        cr_assert(status == SHERD_MEMORY || status == SHERD_OK);
        cr_assert_eq(status == SHERD_OK, program != NULL);
        shd_program_destroy(program);
        cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), held, "allocation %lld", (long long)failures);
    }
    cr_assert_gt(failures, 10);
    case_destroy(&made);
}

Test(memory, verify_fails_cleanly_whichever_allocation_fails) {
    case_programs made = case_compile(CASE_DEEP, policy, SHD_PROGRAM_TRAIN, 1, true);
    int64_t held = shd_memory_held(SHD_MEMORY_OBJECTS);
    int64_t failures = 0;
    for (sherd_status status = SHERD_MEMORY; status != SHERD_OK; failures++) {
        int64_t peak = -1;
        allowance = failures;
        status = case_verify(&made, &peak);
        allowance = -1;
        cr_assert(status == SHERD_MEMORY || status == SHERD_OK);
        cr_assert_eq(status == SHERD_OK, peak >= 0);
        cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), held, "allocation %lld", (long long)failures);
    }
    cr_assert_gt(failures, 100);
    case_destroy(&made);
}

#endif
