/* An allocator that fails when told to takes the place of runtime/base/memory.c in this executable. */
#include "runtime/base/memory.h"
#include "shard/plan.h"
#include "tests/shard/models.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static int64_t calls_left = INT64_MAX, live_count;

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
    if (copy) strcpy(copy, text);
    return copy;
}

void shd_free(void *pointer) {
    if (pointer) live_count--;
    free(pointer);
}

void *shd_map(int64_t bytes) {
    (void)bytes;
    cr_assert_fail("a plan maps nothing");
    return NULL;
}
void shd_unmap(void *pointer, int64_t bytes) { (void)pointer, (void)bytes; }
void shd_memory_note(shd_memory_use use, int64_t bytes) { (void)use, (void)bytes; }
int64_t shd_memory_held(shd_memory_use use) { return use == SHD_MEMORY_OBJECTS ? live_count : 0; }
int64_t shd_memory_calls(void) { return 0; }

Test(plan_memory, is_given_back_whichever_allocation_fails) {
    model_box box;
    box_three_units(&box);
    shd_policy policy = policy_of(2, 3, false, 1);
    for (int64_t failing = 0;; failing++) {
        calls_left = failing;
        shd_plan *plan = NULL;
        sherd_status status = shd_plan_create(&box.model, &policy, &plan);
        if (status == SHERD_OK) {
            cr_assert_gt(failing, 20, "only %ld allocations", (long)failing);
            shd_plan_destroy(plan);
            cr_assert_eq(live_count, 0);
            return;
        }
        cr_assert_eq(status, SHERD_MEMORY, "allocation %ld", (long)failing);
        cr_assert_null(plan);
        cr_assert_eq(live_count, 0, "allocation %ld leaks", (long)failing);
    }
}
