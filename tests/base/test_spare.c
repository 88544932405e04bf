#include "runtime/base/memory.h"
#include "runtime/base/spare.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static int64_t all_bytes(void) { return (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE); }

Test(spare, what_is_available_is_less_than_all_there_is) {
    int64_t available = shd_memory_available();
    cr_assert_gt(available, 0);
    cr_assert_lt(available, all_bytes());
}

Test(spare, there_is_no_more_than_the_machine_has) {
    cr_assert_gt(shd_memory_total(), 0);
    cr_assert_leq(shd_memory_total(), all_bytes());
}

Test(spare, more_than_the_machine_has_is_refused_before_a_page_is_taken) {
    cr_assert_not(shd_memory_can_spare(2 * all_bytes()));
    cr_assert_null(shd_map(2 * all_bytes()));
    cr_assert_null(shd_map(INT64_MAX));
    cr_assert_eq(shd_memory_held(SHD_MEMORY_ARENA), 0);
}

Test(spare, mapped_pages_are_there_before_they_are_touched) {
    enum { BYTES = 5 << 20 };
    char *memory = shd_map(BYTES);
    cr_assert_not_null(memory);
    unsigned char present[BYTES / 4096];
    cr_assert_eq(mincore(memory, BYTES, present), 0);
    for (int page = 0; page < BYTES / 4096; page++) cr_assert(present[page] & 1);
    for (int i = 0; i < BYTES; i += 4096) cr_assert_eq(memory[i], 0);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_ARENA), BYTES);
    shd_unmap(memory, BYTES);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_ARENA), 0);
}

Test(spare, a_limit_on_address_space_is_seen_and_nothing_stays_mapped) {
    const int64_t room = 64LL << 30;
    cr_assert(shd_memory_can_map(0));
    for (int i = 0; i < 3000; i++) cr_assert(shd_memory_can_map(room)); /* a process has room for 2048 of these */
    FILE *about = fopen("/proc/self/statm", "r");
    long long pages = 0;
    cr_assert(about && fscanf(about, "%lld", &pages) == 1);
    fclose(about);
    rlim_t bytes = (rlim_t)(pages * sysconf(_SC_PAGESIZE)) + (1 << 30);
    cr_assert_eq(setrlimit(RLIMIT_AS, &(struct rlimit){bytes, bytes}), 0);
    cr_assert_not(shd_memory_can_map(1LL << 31));
    cr_assert(shd_memory_can_map(1 << 20));
}
