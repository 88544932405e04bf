#include "runtime/base/spare.h"

#include "runtime/base/cgroup.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Left to everybody else. */
enum { SPARE_BYTES = 256 << 20 };

int64_t shd_memory_available(void) {
    char text[512] = {0};
    int file = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    const char *line = got > 0 ? strstr(text, "MemAvailable:") : NULL;
    return line ? strtoll(line + strlen("MemAvailable:"), NULL, 10) * 1024 : INT64_MAX;
}

int64_t shd_memory_total(void) {
    int64_t pages = sysconf(_SC_PHYS_PAGES), limit = shd_cgroup_memory("");
    int64_t bytes = pages > 0 ? pages * sysconf(_SC_PAGESIZE) : INT64_MAX;
    return limit < bytes ? limit : bytes;
}

int64_t shd_memory_free(void) {
    int64_t available = shd_memory_available(), left = shd_cgroup_memory_left("");
    return left < available ? left : available;
}

bool shd_memory_can_spare(int64_t bytes) {
    int64_t available = shd_memory_available();
    /* Small requests never tip the scale; asking the kernel about each would only cost time. */
    return bytes < SHD_MEMORY_STEP_BYTES ? bytes <= available : bytes <= available - SPARE_BYTES;
}

bool shd_memory_can_map(int64_t bytes) {
    if (bytes == 0) return true;
    void *room = mmap(NULL, (size_t)bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return false;
    munmap(room, (size_t)bytes);
    return true;
}
