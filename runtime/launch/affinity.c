#include "runtime/launch/affinity.h"

#include "runtime/base/cgroup.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
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
} machine;

/* The number of nodes among [from, to), which lie side by side. */
static int32_t count_nodes(const shd_cores *cores, int32_t from, int32_t to) {
    int32_t count = from < to;
    for (int32_t i = from + 1; i < to; i++) count += cores->nodes[i] != cores->nodes[i - 1];
    return count;
}

/* Cuts [from, to) evenly into `parts`. */
static void divide_evenly(int32_t from, int32_t to, int32_t parts, int32_t *first) {
    for (int32_t i = 0; i < parts; i++) first[i] = from + (int32_t)((int64_t)(to - from) * i / parts);
}

/* How many ranks a node of `cores` cores gets, of those that are left for it and the `rest` cores after it: its share,
 * and enough for every node that follows to have one. */
static int32_t share_of(int32_t cores, int32_t rest, int32_t nodes_after, int32_t ranks) {
    int32_t share = (int32_t)(((int64_t)ranks * cores + (cores + rest) / 2) / (cores + rest));
    if (share > ranks - nodes_after) share = ranks - nodes_after;
    if (share < 1) share = 1;
    if (share > cores) share = cores;
    /* What follows can take no more ranks than it has cores. */
    return ranks - share > rest ? ranks - rest : share;
}

void shd_cores_divide(const shd_cores *cores, int32_t rank_count, int32_t *first) {
    int32_t nodes = count_nodes(cores, 0, cores->count), at = 0, rank = 0;
    first[rank_count] = cores->count;
    if (rank_count < nodes) {
        divide_evenly(0, cores->count, rank_count, first);
        return;
    }
    while (at < cores->count) {
        int32_t end = at + 1;
        while (end < cores->count && cores->nodes[end] == cores->nodes[at]) end++;
        int32_t share = share_of(end - at, cores->count - end, --nodes, rank_count - rank);
        divide_evenly(at, end, share, first + rank);
        rank += share;
        at = end;
    }
}

static void machine_fini(machine *here) {
    for (int32_t i = 0; here->sets && i < here->cores.count; i++) hwloc_bitmap_free(here->sets[i]);
    shd_free(here->sets);
    shd_free(here->cores.nodes);
    if (here->allowed) hwloc_bitmap_free(here->allowed);
    if (here->topology) hwloc_topology_destroy(here->topology);
    *here = (machine){0};
}

static bool load_topology(machine *here, const shd_affinity_source *source) {
    if (hwloc_topology_init(&here->topology)) return false;
    hwloc_topology_set_all_types_filter(here->topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(here->topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    /* Memory nodes hang on these. */
    hwloc_topology_set_type_filter(here->topology, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_type_filter(here->topology, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
    if (source->synthetic && hwloc_topology_set_synthetic(here->topology, source->synthetic)) return false;
    if (hwloc_topology_load(here->topology)) return false;
    here->allowed = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(here->topology));
    hwloc_bitmap_t inherited = hwloc_bitmap_alloc();
    bool known =
        here->allowed && inherited &&
        (source->allowed ? !hwloc_bitmap_list_sscanf(inherited, source->allowed)
                         : source->synthetic || !hwloc_get_cpubind(here->topology, inherited, HWLOC_CPUBIND_PROCESS));
    if (known && !(source->synthetic && !source->allowed)) hwloc_bitmap_and(here->allowed, here->allowed, inherited);
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
        if (!hwloc_bitmap_intersects(core->cpuset, here->allowed)) continue;
        hwloc_bitmap_t set = hwloc_bitmap_dup(core->cpuset);
        if (!set) return shd_fail(SHERD_MEMORY, "no memory for %d cores", count);
        hwloc_bitmap_and(set, set, here->allowed);
        here->sets[here->cores.count] = set;
        here->cores.nodes[here->cores.count++] = hwloc_bitmap_first(core->nodeset);
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

/* The rank's cores [first, end), or all of the nodes in which they lie. */
static void fill_mask(const machine *here, bool by_node, int32_t first, int32_t end, size_t bytes, cpu_set_t *mask) {
    const int32_t *nodes = here->cores.nodes;
    while (by_node && first > 0 && nodes[first - 1] == nodes[first]) first--;
    while (by_node && end < here->cores.count && nodes[end] == nodes[end - 1]) end++;
    for (int32_t core = first; core < end; core++) add_core(here, core, bytes, mask);
}

static sherd_status make_masks(shd_affinity *affinity, const machine *here) {
    int32_t ranks = affinity->rank_count;
    size_t bytes = CPU_ALLOC_SIZE((size_t)hwloc_bitmap_last(here->allowed) + 1);
    int32_t *first = shd_alloc((size_t)ranks + 1, sizeof *first);
    unsigned char *masks = shd_alloc((size_t)ranks, bytes);
    if (!first || !masks) {
        shd_free(first);
        shd_free(masks);
        return shd_fail(SHERD_MEMORY, "no memory for the cores of %d ranks", ranks);
    }
    shd_cores_divide(&here->cores, ranks, first);
    affinity->threads = here->cores.count;
    for (int32_t rank = 0; rank < ranks; rank++) {
        cpu_set_t *mask = (cpu_set_t *)(void *)(masks + (size_t)rank * bytes);
        fill_mask(here, affinity->by_node, first[rank], first[rank + 1], bytes, mask);
        int32_t own = first[rank + 1] - first[rank];
        if (own < affinity->threads) affinity->threads = own;
    }
    shd_free(first);
    affinity->mask_bytes = bytes;
    affinity->masks = masks;
    return SHERD_OK;
}

static bool file_begins_with(const char *root, const char *name, const char *text) {
    char path[256], got[16] = "";
    snprintf(path, sizeof path, "%s%s", root, name);
    FILE *file = fopen(path, "re");
    bool is_equal = file && fgets(got, sizeof got, file) && !strcmp(got, text);
    if (file) fclose(file);
    return is_equal;
}

/* One memory node, and one thread a core: nothing that hwloc could add. */
static bool is_plain(const shd_affinity_source *source) {
    const char *root = source->root ? source->root : "";
    return !source->synthetic && file_begins_with(root, "/sys/devices/system/node/online", "0\n") &&
           file_begins_with(root, "/sys/devices/system/cpu/smt/active", "0\n");
}

static sherd_status look(shd_affinity *affinity, shd_affinity_choice choice, const shd_affinity_source *source) {
    machine here = {0};
    sherd_status status = SHERD_OK;
    if (!load_topology(&here, source))
        status = shd_fail(SHERD_UNSUPPORTED, "hwloc cannot tell what this machine looks like");
    if (status == SHERD_OK) status = list_cores(&here);
    if (status == SHERD_OK) {
        affinity->core_count = here.cores.count;
        affinity->node_count = count_nodes(&here.cores, 0, here.cores.count);
        bool binds = choice == SHD_AFFINITY_CORES || affinity->node_count > 1;
        bool helps =
            affinity->rank_count <= here.cores.count && (affinity->quota == 0 || affinity->quota >= here.cores.count);
        affinity->by_node = choice == SHD_AFFINITY_AUTO;
        if (binds && helps) status = make_masks(affinity, &here);
    }
    machine_fini(&here);
    return status;
}

sherd_status shd_affinity_init(shd_affinity *affinity, shd_affinity_choice choice, int32_t rank_count,
                               const shd_affinity_source *source) {
    shd_affinity found = {.rank_count = rank_count, .core_count = shd_processors_count()};
    found.quota = shd_cgroup_cores(source->root ? source->root : "");
    bool matters = choice != SHD_AFFINITY_NONE && rank_count > 1 &&
                   (source->synthetic || found.core_count >= rank_count) &&
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
    char nodes[48] = "", quota[64] = "";
    if (affinity->node_count > 1) snprintf(nodes, sizeof nodes, " of %d memory nodes", affinity->node_count);
    if (affinity->quota > 0) snprintf(quota, sizeof quota, " (%.3g of them by control groups)", affinity->quota);
    snprintf(text, bytes, "%d rank%s on %d core%s%s%s, %s, %d thread%s each", affinity->rank_count,
             affinity->rank_count == 1 ? "" : "s", affinity->core_count, affinity->core_count == 1 ? "" : "s", nodes,
             quota,
             !affinity->masks    ? "not bound"
             : affinity->by_node ? "bound to their nodes"
                                 : "bound to their own",
             affinity->threads, affinity->threads == 1 ? "" : "s");
}
