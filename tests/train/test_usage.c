#include "runtime/base/clock.h"
#include "runtime/train/usage.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Test(usage, counts_as_busy_all_but_idle_and_iowait) {
    double busy, all;
    cr_assert(shd_usage_read_stat("cpu  10 20 30 400 50 6 7 8 1000 1000\ncpu0 1 1 1 1\n", &busy, &all));
    cr_assert_eq(busy, 10 + 20 + 30 + 6 + 7 + 8);
    cr_assert_eq(all, busy + 400 + 50);
    cr_assert(shd_usage_read_stat("cpu  1 2 3 4\n", &busy, &all), "an old kernel's line");
    cr_assert_eq(all, 10);
    cr_assert_not(shd_usage_read_stat("", &busy, &all));
    cr_assert_not(shd_usage_read_stat("cpu0 1 2 3 4\n", &busy, &all));
}

Test(usage, adds_up_interfaces_but_loopback) {
    double in, out;
    static const char text[] = "Inter-|   Receive                                                |  Transmit\n"
                               " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets "
                               "errs drop fifo colls carrier "
                               "compressed\n"
                               "    lo: 5000 5 0 0 0 0 0 0 5000 5 0 0 0 0 0 0\n"
                               "  eth0: 4294967297 2 0 0 0 0 0 0 77 4 0 0 0 0 0 0\n"
                               "wlp3s0:12 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\n";
    cr_assert(shd_usage_read_network(text, &in, &out));
    cr_assert_eq(in, 4294967297.0 + 12);
    cr_assert_eq(out, 80);
    cr_assert_not(shd_usage_read_network("", &in, &out));
}

/* A process that computes and writes is seen to. */
Test(usage, sees_the_work_of_this_process) {
    shd_plan plan = {.category_bytes = {[SHD_CATEGORY_OPTIMIZER] = 12345}};
    shd_usage usage;
    shd_metrics_usage seen;
    shd_usage_start(&usage, &plan);
    volatile double sum = 0;
    for (double until_ms = shd_clock_ms() + 200; shd_clock_ms() < until_ms;) sum += 1;
    cr_expect_gt(sum, 0);
    shd_usage_sample(&usage, &seen);
    cr_expect(seen.cpu_cores > 0.02 && seen.cpu_cores < 4, "%g", seen.cpu_cores);
    cr_expect(seen.host_cpu_share > 0 && seen.host_cpu_share <= 1, "%g", seen.host_cpu_share);
    cr_expect_gt(seen.resident_bytes, 100000);
    cr_assert_eq(seen.memory_count, (int32_t)SHD_USAGE_USES);
    for (int32_t i = 0; i < seen.memory_count; i++)
        if (strcmp(seen.memory_names[i], "optimizer") == 0) cr_expect_eq(seen.memory_bytes[i], 12345);
    /* Asleep, it takes nothing: rates are of the span alone. */
    usleep(300000);
    shd_usage_sample(&usage, &seen);
    cr_expect_lt(seen.cpu_cores, 0.2);
}
