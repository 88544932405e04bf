#include "runtime/launch/processors.h"

#include <dirent.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

int32_t shd_processors_count(void) {
    cpu_set_t allowed;
    if (!sched_getaffinity(0, sizeof allowed, &allowed)) return CPU_COUNT(&allowed);
    /* More CPUs than a cpu_set_t has room for. */
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int32_t)online : 1;
}

/* One folder a GPU. */
static int32_t count_of_driver(void) {
    DIR *folder = opendir("/proc/driver/nvidia/gpus");
    int32_t count = 0;
    if (!folder) return 0;
    for (struct dirent *entry; (entry = readdir(folder));) count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

/* The list ends at the first that is not there, as -1. */
static int32_t count_listed(const char *list, int32_t most) {
    int32_t count = 0;
    while (*list && *list != '-' && count < most) {
        count++;
        while (*list && *list != ',') list++;
        if (*list == ',') list++;
    }
    return count;
}

int32_t shd_processors_count_devices(void) {
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    int32_t there = count_of_driver();
    return list ? count_listed(list, there) : there;
}
