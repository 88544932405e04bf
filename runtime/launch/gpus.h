/* The GPUs that programs started from here see, in the order in which they number them, without any vendor's library.
 *
 * They are PCI devices that have their driver, and whose device file this process may open: containers and batch
 * systems leave a job only some. Programs number those by bus, and then as CUDA_VISIBLE_DEVICES and the like list
 * them. */
#ifndef SHD_LAUNCH_GPUS_H
#define SHD_LAUNCH_GPUS_H

#include <hwloc.h>
#include <stdint.h>

#define SHD_GPUS_MAX 64

typedef struct shd_gpus {
    int32_t count;
    hwloc_obj_t devices[SHD_GPUS_MAX]; /* the topology's */
    char doubt[96];                    /* why the order is not known; "" where it is */
} shd_gpus;

/* NVIDIA's, or where there are none AMD's, of a topology that was loaded with PCI devices; the first SHD_GPUS_MAX by
 * bus. `root` goes before the paths of /proc, /sys and /dev. Reads the environment. */
void shd_gpus_find(hwloc_topology_t topology, const char *root, shd_gpus *out);

#endif
