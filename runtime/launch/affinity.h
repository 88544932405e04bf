/* Which cores each rank of this host runs on, and with how many threads.
 *
 * The cores that this process may use (taskset, cgroups) are divided between the ranks: whole cores, neighbours
 * together, no rank over two memory nodes where that can be had, each by the GPU that has its local rank for a number
 * where that can be had for all. No rank is ever bound to a core outside of the inherited set, and none at all is where
 * that could only hurt: with one rank, with fewer cores than ranks, or where a quota leaves less time than there are
 * cores. Topology is looked at only where it matters: it takes some milliseconds. */
#ifndef SHD_LAUNCH_AFFINITY_H
#define SHD_LAUNCH_AFFINITY_H

#include <sherd/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum shd_affinity_choice {
    SHD_AFFINITY_NONE, /* ranks run where this process may */
    SHD_AFFINITY_AUTO, /* bound to the memory nodes of their cores, where there are several */
    SHD_AFFINITY_CORES /* bound to their cores */
} shd_affinity_choice;

typedef struct shd_affinity {
    int32_t rank_count;
    int32_t core_count; /* usable here; hardware threads of one core count once where topology is known, else each */
    int32_t node_count; /* memory nodes of those cores; 0: not looked at */
    int32_t threads;    /* for each rank, of the rank with the fewest cores; at least 1 */
    bool sets_threads;  /* the caller's: OMP_NUM_THREADS of the ranks is to be `threads` */
    double quota;       /* cores' worth of time that cgroups leave; 0: no limit */
    bool by_node;       /* bound to whole nodes */
    bool near_gpus;     /* of which each is next to the rank's GPU */
    char doubt[96];     /* why not, where GPUs are enough and somebody could mend it; else "" */
    size_t mask_bytes;  /* of one mask, as sched_setaffinity has it; 0: ranks are not bound */
    unsigned char *masks;
} shd_affinity;

/* Where to look; all zero: at this machine. What is not `gpus` is for tests. */
typedef struct shd_affinity_source {
    bool gpus;             /* ranks may use GPUs */
    const char *synthetic; /* an hwloc description instead of this machine's topology */
    const char *xml;       /* one in hwloc's XML, likewise */
    const char *allowed;   /* the inherited set, as hwloc lists it: "0-7,16" */
    const char *root;      /* before the paths of /proc and /sys that tell of quotas and GPUs, and of /dev */
} shd_affinity_source;

/* Fails: MEMORY, UNSUPPORTED (hwloc finds nothing). */
sherd_status shd_affinity_init(shd_affinity *affinity, shd_affinity_choice choice, int32_t rank_count,
                               const shd_affinity_source *source);
/* Accepts a zeroed value. */
void shd_affinity_fini(shd_affinity *affinity);
/* Between fork and exec: binds the calling process. What the kernel refuses is let be. Async-signal-safe. */
void shd_affinity_bind(const shd_affinity *affinity, int32_t local_rank);
/* "2 ranks on 8 cores of 2 memory nodes: …", one line. */
void shd_affinity_text(const shd_affinity *affinity, char *text, size_t bytes);

#endif
