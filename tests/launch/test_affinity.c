/* Machines here are hwloc's synthetic ones: what is bound is looked at in the masks. */
#include "runtime/launch/affinity.h"

#include "runtime/base/memory.h"
#include "runtime/launch/cores.h"
#include "tests/launch/places.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <sherd/status.h>
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
    write_masks(&affinity, text);
    shd_affinity_fini(&affinity);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    return text;
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
        shd_core_span shares[32];
        int32_t nodes[32], count = 0, node_count = 0;
        for (int node = 0; node < 4; node++) {
            node_count += machines[m][node] > 0;
            for (int32_t i = 0; i < machines[m][node]; i++) nodes[count++] = node;
        }
        const shd_cores cores = {.count = count, .nodes = nodes};
        for (int32_t ranks = 1; ranks <= count; ranks++) {
            shd_cores_divide(&cores, ranks, shares);
            cr_assert(shares[0].first == 0 && shares[ranks - 1].end == count);
            for (int32_t rank = 0; rank < ranks; rank++) {
                const shd_core_span *own = &shares[rank];
                cr_assert_lt(own->first, own->end, "machine %zu: rank %d of %d has none", m, rank, ranks);
                cr_assert(rank == 0 || own->first == own[-1].end);
                cr_assert(ranks < node_count || nodes[own->first] == nodes[own->end - 1],
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

TestSuite(quota, .init = make_root, .fini = remove_root);

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
