#include "runtime/launch/affinity.h"

#include "runtime/base/cgroup.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/launch/cores.h"
#include "runtime/launch/gpus.h"
#include "runtime/launch/processors.h"

#include <hwloc.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

/* One core that may be used, and which hardware threads of it. */
typedef struct machine {
    hwloc_topology_t topology;
    hwloc_bitmap_t allowed;
    shd_cores cores;
    hwloc_bitmap_t *sets; /* one a core */
    bool has_nodes;       /* cores lie in several, with those that may not be used */
} machine;

static void machine_fini(machine *here) {
    for (int32_t i = 0; here->sets && i < here->cores.count; i++) hwloc_bitmap_free(here->sets[i]);
    shd_free(here->sets);
    shd_free(here->cores.nodes);
    if (here->allowed) hwloc_bitmap_free(here->allowed);
    if (here->topology) hwloc_topology_destroy(here->topology);
    *here = (machine){0};
}

static bool file_begins_with(const char *root, const char *name, const char *text) {
    char path[256], got[16] = "";
    snprintf(path, sizeof path, "%s%s", root, name);
    FILE *file = fopen(path, "re");
    bool is_equal = file && fgets(got, sizeof got, file) && !strcmp(got, text);
    if (file) fclose(file);
    return is_equal;
}

static const char *root_of(const shd_affinity_source *source) { return source->root ? source->root : ""; }
static bool is_elsewhere(const shd_affinity_source *source) { return source->synthetic || source->xml; }

static bool has_one_node(const shd_affinity_source *source) {
    return !is_elsewhere(source) && file_begins_with(root_of(source), "/sys/devices/system/node/online", "0\n");
}

/* Nor more than one thread a core: nothing that hwloc could add. */
static bool is_plain(const shd_affinity_source *source) {
    return has_one_node(source) && file_begins_with(root_of(source), "/sys/devices/system/cpu/smt/active", "0\n");
}

static bool load_topology(machine *here, const shd_affinity_source *source) {
    if (hwloc_topology_init(&here->topology)) return false;
    hwloc_topology_set_all_types_filter(here->topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(here->topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    /* Memory nodes hang on these. */
    hwloc_topology_set_type_filter(here->topology, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_type_filter(here->topology, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
    if (source->gpus && !has_one_node(source))
        hwloc_topology_set_type_filter(here->topology, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_ALL);
    /* Else a GPU by cores that a control group has kept from us would be near to all of ours. */
    hwloc_topology_set_flags(here->topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    if (source->synthetic && hwloc_topology_set_synthetic(here->topology, source->synthetic)) return false;
    if (source->xml && hwloc_topology_set_xmlbuffer(here->topology, source->xml, (int)strlen(source->xml) + 1))
        return false;
    if (hwloc_topology_load(here->topology)) return false;
    here->allowed = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(here->topology));
    hwloc_bitmap_t inherited = hwloc_bitmap_alloc();
    bool known = here->allowed && inherited &&
                 (source->allowed
                      ? !hwloc_bitmap_list_sscanf(inherited, source->allowed)
                      : is_elsewhere(source) || !hwloc_get_cpubind(here->topology, inherited, HWLOC_CPUBIND_PROCESS));
    if (known && !(is_elsewhere(source) && !source->allowed)) hwloc_bitmap_and(here->allowed, here->allowed, inherited);
    hwloc_bitmap_free(inherited);
    return known;
}

static int compare_nodes(const shd_cores *cores, int32_t a, int32_t b) { return cores->nodes[a] - cores->nodes[b]; }

/* Cores of one node side by side, else in hwloc's order, which already has them so but on odd machines. */
static void sort_by_node(machine *here) {
    for (int32_t i = 1; i < here->cores.count; i++)
        for (int32_t j = i; j > 0 && compare_nodes(&here->cores, j - 1, j) > 0; j--) {
            int32_t node = here->cores.nodes[j];
            hwloc_bitmap_t set = here->sets[j];
            here->cores.nodes[j] = here->cores.nodes[j - 1];
            here->sets[j] = here->sets[j - 1];
            here->cores.nodes[j - 1] = node;
            here->sets[j - 1] = set;
        }
}

static sherd_status list_cores(machine *here) {
    /* Some virtual machines tell of no cores. */
    hwloc_obj_type_t type =
        hwloc_get_nbobjs_by_type(here->topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    int count = hwloc_get_nbobjs_by_type(here->topology, type);
    if (count < 1) return shd_fail(SHERD_UNSUPPORTED, "hwloc finds no cores on this machine");
    here->sets = shd_alloc((size_t)count, sizeof(hwloc_bitmap_t));
    here->cores.nodes = shd_alloc((size_t)count, sizeof *here->cores.nodes);
    if (!here->sets || !here->cores.nodes) return shd_fail(SHERD_MEMORY, "no memory for %d cores", count);
    for (int i = 0; i < count; i++) {
        hwloc_obj_t core = hwloc_get_obj_by_type(here->topology, type, (unsigned)i);
        int node = hwloc_bitmap_first(core->nodeset);
        here->has_nodes |= node != hwloc_bitmap_first(hwloc_get_obj_by_type(here->topology, type, 0)->nodeset);
        if (!hwloc_bitmap_intersects(core->cpuset, here->allowed)) continue;
        hwloc_bitmap_t set = hwloc_bitmap_dup(core->cpuset);
        if (!set) return shd_fail(SHERD_MEMORY, "no memory for %d cores", count);
        hwloc_bitmap_and(set, set, here->allowed);
        here->sets[here->cores.count] = set;
        here->cores.nodes[here->cores.count++] = node;
    }
    if (here->cores.count < 1) return shd_fail(SHERD_UNSUPPORTED, "hwloc finds no core that this process may use");
    sort_by_node(here);
    return SHERD_OK;
}

static void add_core(const machine *here, int32_t core, size_t bytes, cpu_set_t *mask) {
    hwloc_bitmap_t set = here->sets[core];
    for (int cpu = hwloc_bitmap_first(set); cpu >= 0; cpu = hwloc_bitmap_next(set, cpu))
        CPU_SET_S((size_t)cpu, bytes, mask);
}

/* The rank's cores, or all of the nodes in which they lie. */
static void fill_mask(const machine *here, bool by_node, shd_core_span share, size_t bytes, cpu_set_t *mask) {
    const int32_t *nodes = here->cores.nodes;
    while (by_node && share.first > 0 && nodes[share.first - 1] == nodes[share.first]) share.first--;
    while (by_node && share.end < here->cores.count && nodes[share.end] == nodes[share.end - 1]) share.end++;
    for (int32_t core = share.first; core < share.end; core++) add_core(here, core, bytes, mask);
}

/* The cores that are next to the device, none of which need be ours. False where that is not known: the firmware does
 * not say, or they do not lie side by side. */
static bool find_near(const machine *here, hwloc_obj_t device, shd_core_span *out) {
    hwloc_const_cpuset_t place = hwloc_get_non_io_ancestor_obj(here->topology, device)->cpuset;
    shd_core_span near = {0};
    if (hwloc_bitmap_isequal(place, hwloc_topology_get_topology_cpuset(here->topology))) return false;
    for (int32_t core = 0; core < here->cores.count; core++) {
        if (!hwloc_bitmap_intersects(here->sets[core], place)) continue;
        if (near.end == 0) near.first = core;
        if (near.end != 0 && near.end != core) return false;
        near.end = core + 1;
    }
    *out = near;
    return true;
}

/* Every rank beside its GPU. False when that cannot be had, with affinity->doubt saying why where somebody could mend
 * it. `near` is scratch. */
static bool divide_by_gpus(shd_affinity *affinity, const machine *here, const char *root, shd_core_span *near,
                           shd_core_span *shares) {
    shd_gpus gpus;
    shd_gpus_find(here->topology, root, &gpus);
    if (gpus.count < affinity->rank_count) return false;
    snprintf(affinity->doubt, sizeof affinity->doubt, "%s", gpus.doubt);
    for (int32_t rank = 0; rank < affinity->rank_count && !*affinity->doubt; rank++)
        if (!find_near(here, gpus.devices[rank], near + rank))
            snprintf(affinity->doubt, sizeof affinity->doubt, "where they are is not known");
    if (*affinity->doubt) return false;
    if (shd_cores_divide_near(&here->cores, near, affinity->rank_count, shares)) return true;
    snprintf(affinity->doubt, sizeof affinity->doubt, "too few cores near them");
    return false;
}

static sherd_status make_masks(shd_affinity *affinity, const machine *here, const shd_affinity_source *source) {
    int32_t ranks = affinity->rank_count;
    size_t bytes = CPU_ALLOC_SIZE((size_t)hwloc_bitmap_last(here->allowed) + 1);
    shd_core_span *shares = shd_alloc(2 * (size_t)ranks, sizeof *shares);
    unsigned char *masks = shd_alloc((size_t)ranks, bytes);
    if (!shares || !masks) {
        shd_free(shares);
        shd_free(masks);
        return shd_fail(SHERD_MEMORY, "no memory for the cores of %d ranks", ranks);
    }
    affinity->near_gpus =
        source->gpus && here->has_nodes && divide_by_gpus(affinity, here, root_of(source), shares + ranks, shares);
    if (!affinity->near_gpus) shd_cores_divide(&here->cores, ranks, shares);
    affinity->threads = here->cores.count;
    for (int32_t rank = 0; rank < ranks; rank++) {
        cpu_set_t *mask = (cpu_set_t *)(void *)(masks + (size_t)rank * bytes);
        fill_mask(here, affinity->by_node, shares[rank], bytes, mask);
        int32_t own = shares[rank].end - shares[rank].first;
        if (own < affinity->threads) affinity->threads = own;
    }
    shd_free(shares);
    affinity->mask_bytes = bytes;
    affinity->masks = masks;
    return SHERD_OK;
}

static sherd_status look(shd_affinity *affinity, shd_affinity_choice choice, const shd_affinity_source *source) {
    machine here = {0};
    sherd_status status = SHERD_OK;
    if (!load_topology(&here, source))
        status = shd_fail(SHERD_UNSUPPORTED, "hwloc cannot tell what this machine looks like");
    if (status == SHERD_OK) status = list_cores(&here);
    if (status == SHERD_OK) {
        affinity->core_count = here.cores.count;
        affinity->node_count = shd_cores_count_nodes(&here.cores, (shd_core_span){0, here.cores.count});
        bool binds = choice == SHD_AFFINITY_CORES || affinity->node_count > 1;
        bool helps =
            affinity->rank_count <= here.cores.count && (affinity->quota == 0 || affinity->quota >= here.cores.count);
        affinity->by_node = choice == SHD_AFFINITY_AUTO;
        if (binds && helps) status = make_masks(affinity, &here, source);
    }
    machine_fini(&here);
    return status;
}

sherd_status shd_affinity_init(shd_affinity *affinity, shd_affinity_choice choice, int32_t rank_count,
                               const shd_affinity_source *source) {
    shd_affinity found = {.rank_count = rank_count, .core_count = shd_processors_count()};
    found.quota = shd_cgroup_cores(root_of(source));
    bool matters = choice != SHD_AFFINITY_NONE && rank_count > 1 &&
                   (is_elsewhere(source) || found.core_count >= rank_count) &&
                   (choice == SHD_AFFINITY_CORES || !is_plain(source));
    if (matters) SHD_TRY(look(&found, choice, source));
    if (!found.masks) {
        int32_t usable = found.core_count;
        if (found.quota > 0 && found.quota < usable) usable = (int32_t)found.quota;
        found.threads = usable / rank_count > 1 ? usable / rank_count : 1;
    }
    *affinity = found;
    return SHERD_OK;
}

void shd_affinity_fini(shd_affinity *affinity) {
    shd_free(affinity->masks);
    *affinity = (shd_affinity){0};
}

void shd_affinity_bind(const shd_affinity *affinity, int32_t local_rank) {
    if (!affinity->mask_bytes) return;
    const unsigned char *mask = affinity->masks + (size_t)local_rank * affinity->mask_bytes;
    sched_setaffinity(0, affinity->mask_bytes, (const cpu_set_t *)(const void *)mask);
}

void shd_affinity_text(const shd_affinity *affinity, char *text, size_t bytes) {
    char nodes[48] = "", quota[64] = "", gpus[128] = "";
    if (affinity->node_count > 1) snprintf(nodes, sizeof nodes, " of %d memory nodes", affinity->node_count);
    if (affinity->quota > 0) snprintf(quota, sizeof quota, " (%.3g of them by control groups)", affinity->quota);
    if (affinity->near_gpus) snprintf(gpus, sizeof gpus, ", each near its GPU");
    if (*affinity->doubt) snprintf(gpus, sizeof gpus, ", GPUs left out (%s)", affinity->doubt);
    snprintf(text, bytes, "%d rank%s on %d core%s%s%s, %s%s, %d thread%s each", affinity->rank_count,
             affinity->rank_count == 1 ? "" : "s", affinity->core_count, affinity->core_count == 1 ? "" : "s", nodes,
             quota,
             !affinity->masks    ? "not bound"
             : affinity->by_node ? "bound to their nodes"
                                 : "bound to their own",
             gpus, affinity->threads, affinity->threads == 1 ? "" : "s");
}
