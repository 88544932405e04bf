/* Control groups here are files below a folder of the test's own. */
#include "runtime/base/cgroup.h"
#include "tests/support/machine_root.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(cgroup, .init = make_root, .fini = remove_root);

Test(cgroup, cores_are_the_tightest_on_the_way_up_in_both_versions) {
    cr_assert_eq(shd_cgroup_cores(root), 0, "nothing is known");
    put("/proc/self/cgroup", "0::/a/b\n");
    cr_assert_eq(shd_cgroup_cores(root), 0);
    put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    cr_assert_eq(shd_cgroup_cores(root), 0);
    put("/sys/fs/cgroup/a/cpu.max", "250000 100000\n");
    cr_assert_float_eq(shd_cgroup_cores(root), 2.5, 1e-9);
    put("/sys/fs/cgroup/a/b/cpu.max", "400000 100000\n");
    cr_assert_float_eq(shd_cgroup_cores(root), 2.5, 1e-9);
    put("/proc/self/cgroup", "5:cpuset:/x\n4:cpu,cpuacct:/job\n0::/\n");
    put("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "150000\n");
    put("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    cr_assert_float_eq(shd_cgroup_cores(root), 1.5, 1e-9);
}

Test(cgroup, memory_is_the_tightest_on_the_way_up) {
    cr_assert_eq(shd_cgroup_memory(root), INT64_MAX, "nothing is known");
    cr_assert_eq(shd_cgroup_memory_left(root), INT64_MAX);
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    put("/sys/fs/cgroup/a/b/memory.current", "5000\n");
    cr_assert_eq(shd_cgroup_memory(root), INT64_MAX);
    cr_assert_eq(shd_cgroup_memory_left(root), INT64_MAX);
    put("/sys/fs/cgroup/a/memory.max", "70000000000\n");
    cr_assert_eq(shd_cgroup_memory(root), 70000000000);
    cr_assert_eq(shd_cgroup_memory_left(root), 70000000000, "what is held is not told");
    put("/sys/fs/cgroup/memory.max", "90000000000\n");
    cr_assert_eq(shd_cgroup_memory(root), 70000000000);
    put("/sys/fs/cgroup/a/b/memory.max", "60000000000\n");
    cr_assert_eq(shd_cgroup_memory(root), 60000000000);
}

Test(cgroup, memory_that_is_left_is_without_what_is_held_but_with_pages_of_files) {
    put("/proc/self/cgroup", "0::/a\n");
    put("/sys/fs/cgroup/a/memory.max", "1000\n");
    put("/sys/fs/cgroup/a/memory.current", "700\n");
    cr_assert_eq(shd_cgroup_memory_left(root), 300);
    put("/sys/fs/cgroup/a/memory.stat", "anon 400\nfile 300\ninactive_file 200\nactive_file 50\nshmem 50\n");
    cr_assert_eq(shd_cgroup_memory_left(root), 550);
    put("/sys/fs/cgroup/a/memory.current", "1300\n");
    cr_assert_eq(shd_cgroup_memory_left(root), 0);
    put("/sys/fs/cgroup/a/memory.current", "200\n");
    cr_assert_eq(shd_cgroup_memory_left(root), 1000);
    cr_assert_eq(shd_cgroup_memory(root), 1000);
}

Test(cgroup, memory_of_the_old_groups_is_known_too) {
    put("/proc/self/cgroup", "4:memory:/job\n1:cpu:/\n0::/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "800\n");
    cr_assert_eq(shd_cgroup_memory(root), INT64_MAX, "the last page is no limit");
    put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000\n");
    put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "800\n");
    put("/sys/fs/cgroup/memory/job/memory.stat", "inactive_file 7\ntotal_inactive_file 100\ntotal_active_file 20\n");
    cr_assert_eq(shd_cgroup_memory(root), 1000);
    cr_assert_eq(shd_cgroup_memory_left(root), 320);
}

static const char *find(void) {
    static char own[256];
    if (!shd_cgroup_find(root, own, sizeof own)) return "none";
    return own + strlen(root);
}

Test(cgroup, the_own_group_is_found_wherever_its_hierarchy_is_mounted) {
    put("/proc/self/cgroup", "3:cpu:/old\n0::/a/b\n");
    cr_assert_str_eq(find(), "none");
    put("/proc/self/mountinfo", "30 1 0:5 / /sys/fs/cgroup/cpu rw shared:3 - cgroup cgroup rw,cpu\n");
    cr_assert_str_eq(find(), "none");
    put("/proc/self/mountinfo", "30 1 0:5 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
                                "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw\n");
    cr_assert_str_eq(find(), "/sys/fs/cgroup/unified/a/b");
    put("/proc/self/mountinfo", "41 31 0:38 / /my\\040groups rw - cgroup2 none rw,nsdelegate\n");
    cr_assert_str_eq(find(), "/my groups/a/b");
    put("/proc/self/cgroup", "0::/\n");
    cr_assert_str_eq(find(), "/my groups/");
}

Test(cgroup, the_own_group_is_found_where_a_part_of_the_hierarchy_is_mounted) {
    /* The first shows another part; that its name begins alike makes it no part of ours. */
    put("/proc/self/mountinfo",
        "40 1 0:9 /pod/on /one rw - cgroup2 cgroup rw\n41 1 0:9 /pod/one /two rw - cgroup2 cgroup rw\n");
    put("/proc/self/cgroup", "0::/pod/one/job\n");
    cr_assert_str_eq(find(), "/two/job");
    put("/proc/self/cgroup", "0::/pod/one\n");
    cr_assert_str_eq(find(), "/two");
    put("/proc/self/cgroup", "0::/pod\n");
    cr_assert_str_eq(find(), "none");
    put("/proc/self/mountinfo", "40 1 0:9 / /one rw - cgroup2 cgroup rw\n");
    put("/proc/self/cgroup", "0::/../outside\n"); /* of the namespace */
    cr_assert_str_eq(find(), "none");
    put("/proc/self/cgroup", "3:cpu:/only\n");
    cr_assert_str_eq(find(), "none");
}
