/* Machines here are hwloc's synthetic ones: what is bound is looked at in the masks. */
#include "runtime/launch/affinity.h"

#include "runtime/base/memory.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <sherd/status.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The CPUs of each rank, "0-3 4-7"; "free" when they are not bound. */
static const char *bound(const char *machine, const char *allowed, shd_affinity_choice choice, int32_t ranks,
                         int32_t *threads) {
    static char text[512];
    const shd_affinity_source source = {.synthetic = machine, .allowed = allowed, .root = "/nowhere"};
    shd_affinity affinity = {0};
    cr_assert_eq(shd_affinity_init(&affinity, choice, ranks, &source), SHERD_OK, "%s", sherd_last_error());
    *threads = affinity.threads;
    size_t used = 0;
    for (int32_t rank = 0; affinity.masks && rank < ranks; rank++) {
        const cpu_set_t *mask = (const cpu_set_t *)(const void *)(affinity.masks + (size_t)rank * affinity.mask_bytes);
        if (rank) text[used++] = ' ';
        for (int cpu = 0, any = 0; cpu < (int)affinity.mask_bytes * 8; cpu++) {
            if (!CPU_ISSET_S(cpu, affinity.mask_bytes, mask)) continue;
            int last = cpu;
            while (last + 1 < (int)affinity.mask_bytes * 8 && CPU_ISSET_S(last + 1, affinity.mask_bytes, mask)) last++;
            used += (size_t)sprintf(text + used, last > cpu ? "%s%d-%d" : "%s%d", any ? "," : "", cpu, last);
            any = 1;
            cpu = last;
        }
    }
    text[used] = 0;
    bool is_bound = affinity.masks;
    shd_affinity_fini(&affinity);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    return is_bound ? text : "free";
}

Test(affinity, cores_are_divided_whole_and_none_is_shared) {
    int32_t threads;
    cr_assert_str_eq(bound("core:8 pu:1", NULL, SHD_AFFINITY_CORES, 2, &threads), "0-3 4-7");
    cr_assert_eq(threads, 4);
    cr_assert_str_eq(bound("core:4 pu:2", NULL, SHD_AFFINITY_CORES, 4, &threads), "0-1 2-3 4-5 6-7");
    cr_assert_eq(threads, 1, "hardware threads of one core are one core");
    cr_assert_str_eq(bound("core:7 pu:1", NULL, SHD_AFFINITY_CORES, 3, &threads), "0-1 2-3 4-6");
    cr_assert_eq(threads, 2);
}

Test(affinity, auto_binds_to_memory_nodes_and_only_where_there_are_several) {
    int32_t threads;
    cr_assert_str_eq(bound("core:8 pu:1", NULL, SHD_AFFINITY_AUTO, 2, &threads), "free");
    cr_assert_str_eq(bound("numa:2 core:4 pu:1", NULL, SHD_AFFINITY_AUTO, 4, &threads), "0-3 0-3 4-7 4-7");
    cr_assert_eq(threads, 2);
    cr_assert_str_eq(bound("numa:4 core:2 pu:1", NULL, SHD_AFFINITY_AUTO, 2, &threads), "0-3 4-7");
    cr_assert_str_eq(bound("numa:2 core:4 pu:1", NULL, SHD_AFFINITY_NONE, 4, &threads), "free");
}

Test(affinity, no_rank_lies_over_two_nodes_that_need_not) {
    int32_t threads;
    cr_assert_str_eq(bound("numa:2 core:4 pu:1", NULL, SHD_AFFINITY_CORES, 3, &threads), "0-1 2-3 4-7");
    cr_assert_str_eq(bound("numa:2 core:4 pu:1", NULL, SHD_AFFINITY_CORES, 5, &threads), "0 1 2-3 4-5 6-7");
    cr_assert_str_eq(bound("numa:2 core:4 pu:1", "0-4", SHD_AFFINITY_CORES, 3, &threads), "0-1 2-3 4");
}

Test(affinity, the_inherited_set_is_never_left) {
    int32_t threads;
    cr_assert_str_eq(bound("core:8 pu:1", "2-3,6-7", SHD_AFFINITY_CORES, 2, &threads), "2-3 6-7");
    cr_assert_str_eq(bound("core:4 pu:2", "1,3", SHD_AFFINITY_CORES, 2, &threads), "1 3", "half a core");
    cr_assert_str_eq(bound("numa:2 core:4 pu:1", "1,5-6", SHD_AFFINITY_AUTO, 2, &threads), "1 5-6");
    cr_assert_eq(threads, 1, "of the rank with the fewest");
}

Test(affinity, nothing_is_bound_where_it_could_only_hurt) {
    int32_t threads;
    cr_assert_str_eq(bound("core:2 pu:1", NULL, SHD_AFFINITY_CORES, 3, &threads), "free", "fewer cores than ranks");
    cr_assert_eq(threads, 1);
    cr_assert_str_eq(bound("core:8 pu:1", "5", SHD_AFFINITY_CORES, 2, &threads), "free");
    cr_assert_str_eq(bound("numa:2 core:4 pu:1", NULL, SHD_AFFINITY_CORES, 1, &threads), "free", "one rank");
}

/* All divisions of some odd machines: no core is left out or used twice, every rank has one, and where there are nodes enough for it no
 * rank lies over two. */
Test(affinity, every_division_is_whole) {
    static const int32_t machines[][4] = {{1, 0, 0, 0}, {7, 0, 0, 0}, {4, 4, 0, 0},
                                          {1, 6, 0, 0}, {5, 3, 1, 0}, {8, 1, 1, 8}};
    for (size_t m = 0; m < sizeof machines / sizeof *machines; m++) {
        int32_t nodes[32], first[33], count = 0, node_count = 0;
        for (int node = 0; node < 4; node++) {
            node_count += machines[m][node] > 0;
            for (int32_t i = 0; i < machines[m][node]; i++) nodes[count++] = node;
        }
        const shd_cores cores = {.count = count, .nodes = nodes};
        for (int32_t ranks = 1; ranks <= count; ranks++) {
            shd_cores_divide(&cores, ranks, first);
            cr_assert(first[0] == 0 && first[ranks] == count);
            for (int32_t rank = 0; rank < ranks; rank++) {
                cr_assert_lt(first[rank], first[rank + 1], "machine %zu: rank %d of %d has none", m, rank, ranks);
                cr_assert(ranks < node_count || nodes[first[rank]] == nodes[first[rank + 1] - 1],
                          "machine %zu: rank %d of %d lies over two nodes", m, rank, ranks);
            }
        }
    }
}

/* What the kernel has made of it, in a child. */
Test(affinity, binds_the_calling_process_within_what_it_may_use) {
    const shd_affinity_source here = {.root = "/nowhere"};
    cpu_set_t mine;
    shd_affinity affinity = {0};
    sched_getaffinity(0, sizeof mine, &mine);
    if (CPU_COUNT(&mine) < 2) cr_skip_test("one core");
    cr_assert_eq(shd_affinity_init(&affinity, SHD_AFFINITY_CORES, 2, &here), SHERD_OK, "%s", sherd_last_error());
    if (!affinity.masks) cr_skip_test("one core with two threads");
    pid_t child = fork();
    if (!child) {
        cpu_set_t got, both;
        shd_affinity_bind(&affinity, 1);
        sched_getaffinity(0, sizeof got, &got);
        CPU_AND(&both, &got, &mine);
        _exit(CPU_COUNT(&got) < CPU_COUNT(&mine) && CPU_EQUAL(&both, &got) && CPU_COUNT(&got) > 0 ? 0 : 1);
    }
    int state;
    waitpid(child, &state, 0);
    cr_assert_eq(state, 0);
    shd_affinity_fini(&affinity);
}

static char root[64];

static void put(const char *path, const char *text) {
    char whole[256], command[300];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    snprintf(command, sizeof command, "mkdir -p $(dirname %s)", whole);
    cr_assert_eq(system(command), 0);
    FILE *file = fopen(whole, "w");
    fputs(text, file);
    fclose(file);
}
static void begin(void) {
    snprintf(root, sizeof root, "/tmp/sherd-quota-XXXXXX");
    cr_assert(mkdtemp(root));
}
static void end(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    if (system(command)) return;
}
TestSuite(quota, .init = begin, .fini = end);

Test(quota, keeps_ranks_free_and_threads_few) {
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/cpu.max", "400000 100000\n");
    const shd_affinity_source source = {.synthetic = "numa:2 core:8 pu:1", .root = root};
    shd_affinity affinity = {0};
    cr_assert_eq(shd_affinity_init(&affinity, SHD_AFFINITY_CORES, 2, &source), SHERD_OK);
    cr_assert_null(affinity.masks);
    cr_assert_eq(affinity.threads, 2);
    char text[200];
    shd_affinity_text(&affinity, text, sizeof text);
    cr_assert_str_eq(text,
                     "2 ranks on 16 cores of 2 memory nodes (4 of them by control groups), not bound, 2 threads each");
    shd_affinity_fini(&affinity);
}
