/* The division of cores between ranks: arithmetic alone, no look at the machine. */
#ifndef SHD_LAUNCH_CORES_H
#define SHD_LAUNCH_CORES_H

#include <stdbool.h>
#include <stdint.h>

/* A machine as seen from here: one row a core, cores of one node side by side, else in the order of hwloc, in which
 * neighbours share caches. */
typedef struct shd_cores {
    int32_t count;
    int32_t *nodes; /* the memory node of each */
} shd_cores;

/* Cores [first, end). */
typedef struct shd_core_span {
    int32_t first, end;
} shd_core_span;

/* The number of memory nodes of those cores. */
int32_t shd_cores_count_nodes(const shd_cores *cores, shd_core_span of);

/* shares[r] for each of rank_count ranks: all cores (count ≥ rank_count), in order, at least one each. Ranks get
 * shares that differ by as little as nodes allow; where there are at least as many ranks as nodes no rank spans two. */
void shd_cores_divide(const shd_cores *cores, int32_t rank_count, shd_core_span *shares);

/* The same where each rank has its place, near[r]: ranks of one place divide its cores as above, and cores of no place
 * go to nobody. False, with *shares undefined, where a place has fewer cores than ranks, or two overlap in part. */
bool shd_cores_divide_near(const shd_cores *cores, const shd_core_span *near, int32_t rank_count,
                           shd_core_span *shares);

#endif
