/* What tests of where ranks run share: masks as text. */
#ifndef TESTS_LAUNCH_PLACES_H
#define TESTS_LAUNCH_PLACES_H

#include "runtime/launch/affinity.h"
#include "tests/support/machine_root.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <stdio.h>

/* The CPUs of each rank, "0-3 4-7"; "free" when they are not bound. */
static inline void write_masks(const shd_affinity *affinity, char text[static 512]) {
    size_t used = 0;
    int bits = (int)affinity->mask_bytes * 8;
    if (!affinity->masks) used += (size_t)sprintf(text, "free");
    for (int32_t rank = 0; affinity->masks && rank < affinity->rank_count; rank++) {
        const unsigned char *bytes = affinity->masks + (size_t)rank * affinity->mask_bytes;
        const cpu_set_t *mask = (const cpu_set_t *)(const void *)bytes;
        if (rank) text[used++] = ' ';
        for (int cpu = 0, any = 0; cpu < bits; cpu++) {
            if (!CPU_ISSET_S(cpu, affinity->mask_bytes, mask)) continue;
            int last = cpu;
            while (last + 1 < bits && CPU_ISSET_S(last + 1, affinity->mask_bytes, mask)) last++;
            used += (size_t)sprintf(text + used, last > cpu ? "%s%d-%d" : "%s%d", any ? "," : "", cpu, last);
            any = 1;
            cpu = last;
        }
    }
    text[used] = 0;
}

#endif
