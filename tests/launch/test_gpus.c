/* Machines here are made up, in hwloc's XML, with the files of their GPUs' drivers in a folder of the test. */
#include "runtime/base/memory.h"
#include "runtime/launch/affinity.h"
#include "runtime/launch/cores.h"
#include "tests/launch/places.h"

#include <criterion/criterion.h>
#include <sherd/status.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CORES = 4 }; /* of a memory node, with one thread each */

typedef struct gpu {
    const char *bus_id, *kind; /* class and [vendor:device] */
    int node;                  /* next to it; -1: unknown */
} gpu;

#define H200   "0302 [10de:2335]"
#define L40S   "0302 [10de:26b9]"
#define MI300X "1200 [1002:74a1]"

static char xml[16384];
static size_t used;

static void add_object(const char *type, int index, int node, unsigned cpus, const char *close) {
    used += (size_t)snprintf(xml + used, sizeof xml - used,
                             "<object type=\"%s\" os_index=\"%d\" cpuset=\"0x%x\" complete_cpuset=\"0x%x\" "
                             "nodeset=\"0x%x\" complete_nodeset=\"0x%x\"%s>\n",
                             type, index, cpus, cpus, 1U << node, 1U << node, close);
}

static void close_object(void) { used += (size_t)snprintf(xml + used, sizeof xml - used, "</object>\n"); }

/* Each GPU of the node behind a bridge of its own, as on a real board. */
static void add_gpus(const gpu *gpus, int node) {
    for (; gpus->bus_id; gpus++) {
        if (gpus->node != node) continue;
        used += (size_t)snprintf(xml + used, sizeof xml - used,
                                 "<object type=\"Bridge\" bridge_type=\"0-1\" depth=\"0\" "
                                 "bridge_pci=\"%.4s:[%.2s-%.2s]\">\n<object type=\"PCIDev\" pci_busid=\"%s\" "
                                 "pci_type=\"%s [0000:0000] 00\" pci_link_speed=\"0.000000\"/>\n</object>\n",
                                 gpus->bus_id, gpus->bus_id + 5, gpus->bus_id + 5, gpus->bus_id, gpus->kind);
    }
}

static void describe(int node_count, const gpu *gpus) {
    unsigned all = (1U << node_count * CORES) - 1, nodes = (1U << node_count) - 1;
    used = (size_t)snprintf(xml, sizeof xml,
                            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
                            "<topology version=\"2.0\">\n<object type=\"Machine\" os_index=\"0\" cpuset=\"0x%x\" "
                            "complete_cpuset=\"0x%x\" allowed_cpuset=\"0x%x\" nodeset=\"0x%x\" "
                            "complete_nodeset=\"0x%x\" allowed_nodeset=\"0x%x\">\n",
                            all, all, all, nodes, nodes, nodes);
    for (int node = 0; node < node_count; node++) {
        unsigned cpus = ((1U << CORES) - 1) << node * CORES;
        add_object("Package", node, node, cpus, "");
        add_object("NUMANode", node, node, cpus, " local_memory=\"1073741824\"/");
        for (int cpu = node * CORES; cpu < (node + 1) * CORES; cpu++) {
            add_object("Core", cpu, node, 1U << cpu, "");
            add_object("PU", cpu, node, 1U << cpu, "/");
            close_object();
        }
        add_gpus(gpus, node);
        close_object();
    }
    add_gpus(gpus, -1);
    close_object();
    used += (size_t)snprintf(xml + used, sizeof xml - used, "</topology>\n");
}

/* Minors count down: a driver numbers GPUs as it pleases. */
static void install(const gpu *gpus) {
    for (int minor = 8; gpus->bus_id; gpus++, minor--) {
        char path[128], text[64];
        if (strstr(gpus->kind, "[10de:")) {
            snprintf(path, sizeof path, "/proc/driver/nvidia/gpus/%s/information", gpus->bus_id);
            snprintf(text, sizeof text, "Model: \t\t Some\nDevice Minor: \t %d\nGPU Excluded:\t No\n", minor);
            put(path, text);
            snprintf(path, sizeof path, "/dev/nvidia%d", minor);
        } else {
            snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/drm/renderD%d", gpus->bus_id, 128 + minor);
            put(path, "");
            snprintf(path, sizeof path, "/dev/dri/renderD%d", 128 + minor);
        }
        put(path, "");
    }
}

static char line[320]; /* what the launcher says of the last machine */

/* The CPUs of each rank, "0-3 4-7"; "free" when they are not bound. */
static const char *bound(const char *allowed, shd_affinity_choice choice, int32_t ranks) {
    static char text[512];
    const shd_affinity_source source = {.gpus = true, .xml = xml, .allowed = allowed, .root = root};
    shd_affinity affinity = {0};
    cr_assert_eq(shd_affinity_init(&affinity, choice, ranks, &source), SHERD_OK, "%s", sherd_last_error());
    write_masks(&affinity, text);
    shd_affinity_text(&affinity, line, sizeof line);
    shd_affinity_fini(&affinity);
    cr_assert_eq(shd_memory_held(SHD_MEMORY_OBJECTS), 0);
    return text;
}

static void begin(void) {
    static const char *const variables[] = {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES",
                                            "ROCR_VISIBLE_DEVICES"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) unsetenv(variables[i]);
    make_root();
}

TestSuite(gpus, .init = begin, .fini = remove_root);

/* Low buses by node 1; and what is no GPU among them. */
static const gpu crossed[] = {
    {"0000:c1:00.0", H200, 0}, {"0000:1a:00.0", H200, 1}, {"0000:05:00.0", "0200 [15b3:1021]", 0},
    {"0000:3b:00.0", H200, 1}, {"0000:e3:00.0", H200, 0}, {0}};

static void make_crossed(void) {
    describe(2, crossed);
    install(crossed);
}

Test(gpus, ranks_are_near_the_gpu_of_their_number) {
    make_crossed();
    cr_assert_str_eq(bound(NULL, SHD_AFFINITY_AUTO, 4), "4-7 4-7 0-3 0-3");
    cr_assert_str_eq(line,
                     "4 ranks on 8 cores of 2 memory nodes, bound to their nodes, each near its GPU, 2 threads each");
    cr_assert_str_eq(bound(NULL, SHD_AFFINITY_CORES, 4), "4-5 6-7 0-1 2-3");
    cr_assert_str_eq(line,
                     "4 ranks on 8 cores of 2 memory nodes, bound to their own, each near its GPU, 2 threads each");
    cr_assert_str_eq(bound(NULL, SHD_AFFINITY_CORES, 3), "4-5 6-7 0-3");
    cr_assert_str_eq(bound(NULL, SHD_AFFINITY_AUTO, 2), "4-7 4-7", "both GPUs are there");
}

Test(gpus, a_listed_order_is_the_order) {
    make_crossed();
    setenv("CUDA_VISIBLE_DEVICES", "3,2,1,0", 1);
    cr_assert_str_eq(bound(NULL, SHD_AFFINITY_CORES, 4), "0-1 2-3 4-5 6-7");
    cr_assert(strstr(line, "near its GPU"));
    setenv("CUDA_VISIBLE_DEVICES", "0,2", 1);
    cr_assert_str_eq(bound(NULL, SHD_AFFINITY_AUTO, 2), "4-7 0-3");
    setenv("CUDA_VISIBLE_DEVICES", "1,2,-1,0", 1);
    cr_assert_str_eq(bound(NULL, SHD_AFFINITY_AUTO, 2), "4-7 0-3");
    cr_assert_str_eq(bound(NULL, SHD_AFFINITY_AUTO, 3), "0-3 0-3 4-7", "-1 ends the list: two GPUs");
    cr_assert_null(strstr(line, "GPU"));
}

Test(gpus, names_of_gpus_are_no_numbers_which_is_said) {
    make_crossed();
    setenv("CUDA_VISIBLE_DEVICES", "GPU-8932f937,GPU-d72c4106", 1);
    cr_assert_str_eq(bound(NULL, SHD_AFFINITY_AUTO, 2), "0-3 4-7");
    cr_assert_str_eq(line, "2 ranks on 8 cores of 2 memory nodes, bound to their nodes, GPUs left out "
                           "(CUDA_VISIBLE_DEVICES does not have plain numbers), 4 threads each");
}

Test(gpus, none_fewer_or_hidden_ones_change_nothing) {
    static const gpu none[] = {{0}};
    describe(2, none);
    cr_assert_str_eq(bound(NULL, SHD_AFFINITY_CORES, 2), "0-3 4-7");
    make_crossed();
    cr_assert_str_eq(bound(NULL, SHD_AFFINITY_CORES, 8), "0 1 2 3 4 5 6 7", "four GPUs");
    cr_assert_null(strstr(line, "GPU"));
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    cr_assert_str_eq(bound(NULL, SHD_AFFINITY_CORES, 2), "0-3 4-7");
    cr_assert_null(strstr(line, "GPU"));
}

Test(gpus, one_node_is_near_to_everything) {
    static const gpu gpus[] = {{"0000:1a:00.0", H200, 0}, {"0000:3b:00.0", H200, -1}, {0}};
    describe(1, gpus);
    install(gpus);
    cr_assert_str_eq(bound(NULL, SHD_AFFINITY_AUTO, 2), "free");
    cr_assert_str_eq(bound(NULL, SHD_AFFINITY_CORES, 2), "0-1 2-3");
    cr_assert_null(strstr(line, "GPU"));
}

/* As taskset leaves it. */
Test(gpus, cores_that_are_not_ours_are_near_to_nobody) {
    make_crossed();
    cr_assert_str_eq(bound("0-3", SHD_AFFINITY_CORES, 2), "0-1 2-3", "GPUs 0 and 1 are by the other node");
    cr_assert_str_eq(line, "2 ranks on 4 cores, bound to their own, GPUs left out (too few cores near them), "
                           "2 threads each");
    cr_assert_str_eq(bound("0-3", SHD_AFFINITY_AUTO, 2), "free");
    cr_assert_str_eq(bound("4-7", SHD_AFFINITY_CORES, 2), "4-5 6-7");
    cr_assert(strstr(line, "each near its GPU"));
    cr_assert_str_eq(bound("0,5-7", SHD_AFFINITY_CORES, 3), "5 6-7 0");
    cr_assert_str_eq(bound("1-4", SHD_AFFINITY_CORES, 2), "1-3 4", "one core is too few for two ranks");
}

/* As a control group leaves it: hwloc would make the GPUs of what it does not allow near to all that is left. */
Test(gpus, cores_that_a_control_group_keeps_are_near_to_nobody) {
    make_crossed();
    memcpy(strstr(xml, "allowed_cpuset=\"0xff\""), "allowed_cpuset=\"0x0f\"", strlen("allowed_cpuset=\"0x0f\""));
    cr_assert_str_eq(bound(NULL, SHD_AFFINITY_CORES, 2), "0-1 2-3");
    cr_assert(strstr(line, "2 ranks on 4 cores,") && strstr(line, "(too few cores near them)"), "%s", line);
}

/* What the driver has not, and what a container or a batch system keeps from us, has no number. */
Test(gpus, only_those_count_that_may_be_opened) {
    char path[128];
    make_crossed();
    snprintf(path, sizeof path, "%s/dev/nvidia7", root);
    unlink(path); /* the first by bus */
    cr_assert_str_eq(bound(NULL, SHD_AFFINITY_CORES, 3), "4-7 0-1 2-3");
    snprintf(path, sizeof path, "%s/proc/driver/nvidia/gpus/0000:3b:00.0/information", root);
    unlink(path);
    cr_assert_str_eq(bound(NULL, SHD_AFFINITY_CORES, 2), "0-1 2-3");
    cr_assert(strstr(line, "each near its GPU"));
}

Test(gpus, where_it_is_may_be_unknown) {
    static const gpu gpus[] = {{"0000:1a:00.0", H200, 1}, {"0000:3b:00.0", H200, -1}, {0}};
    describe(2, gpus);
    install(gpus);
    cr_assert_str_eq(bound(NULL, SHD_AFFINITY_AUTO, 2), "0-3 4-7");
    cr_assert(strstr(line, "GPUs left out (where they are is not known)"));
}

Test(gpus, mixed_ones_are_numbered_by_bus_only_when_cuda_is_told_to) {
    static const gpu gpus[] = {{"0000:1a:00.0", L40S, 1}, {"0001:01:00.0", H200, 0}, {0}};
    describe(2, gpus);
    install(gpus);
    cr_assert_str_eq(bound(NULL, SHD_AFFINITY_AUTO, 2), "0-3 4-7");
    cr_assert(strstr(line, "GPUs left out (they differ, and CUDA_DEVICE_ORDER is not PCI_BUS_ID)"));
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
    cr_assert_str_eq(bound(NULL, SHD_AFFINITY_AUTO, 2), "4-7 0-3");
}

Test(gpus, amd_has_lists_of_its_own) {
    static const gpu gpus[] = {
        {"0000:05:00.0", MI300X, 1}, {"0000:26:00.0", MI300X, 1}, {"0000:85:00.0", MI300X, 0}, {0}};
    describe(2, gpus);
    install(gpus);
    cr_assert_str_eq(bound(NULL, SHD_AFFINITY_CORES, 3), "4-5 6-7 0-3");
    setenv("CUDA_VISIBLE_DEVICES", "2,0", 1);
    cr_assert_str_eq(bound(NULL, SHD_AFFINITY_CORES, 2), "0-3 4-7");
    setenv("HIP_VISIBLE_DEVICES", "1,2", 1);
    cr_assert_str_eq(bound(NULL, SHD_AFFINITY_CORES, 2), "4-7 0-3");
    setenv("ROCR_VISIBLE_DEVICES", "2,1,0", 1);
    cr_assert_str_eq(bound(NULL, SHD_AFFINITY_CORES, 2), "4-5 6-7");
}

Test(gpus, programs_that_use_none_are_divided_without_them) {
    make_crossed();
    const shd_affinity_source source = {.xml = xml, .root = root};
    shd_affinity affinity = {0};
    char text[512];
    cr_assert_eq(shd_affinity_init(&affinity, SHD_AFFINITY_CORES, 4, &source), SHERD_OK, "%s", sherd_last_error());
    write_masks(&affinity, text);
    shd_affinity_fini(&affinity);
    cr_assert_str_eq(text, "0-1 2-3 4-5 6-7");
}

/* Places that hold two nodes, as a package with several: its ranks are divided over them. */
Test(gpus, a_place_of_several_nodes_is_divided_by_node) {
    int32_t nodes[] = {0, 0, 1, 1, 2, 2, 3, 3};
    const shd_cores cores = {.count = 8, .nodes = nodes};
    const shd_core_span low = {0, 4}, high = {4, 8}, within = {0, 2}, empty = {0, 0};
    shd_core_span shares[4];
    cr_assert(shd_cores_divide_near(&cores, (shd_core_span[]){high, low, high, low}, 4, shares));
    static const shd_core_span expected[] = {{4, 6}, {0, 2}, {6, 8}, {2, 4}};
    cr_assert_arr_eq(shares, expected, sizeof expected);
    cr_assert_not(shd_cores_divide_near(&cores, (shd_core_span[]){low, within}, 2, shares), "one within another");
    cr_assert_not(shd_cores_divide_near(&cores, (shd_core_span[]){low, empty}, 2, shares));
    cr_assert_not(shd_cores_divide_near(&cores, (shd_core_span[]){within, within, within}, 3, shares));
}
