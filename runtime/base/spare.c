#include "runtime/base/spare.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Left to everybody else. */
enum { SPARE_BYTES = 256 << 20, GROUP_BYTES = 4096 };

int64_t shd_memory_available(void) {
    char text[512] = {0};
    int file = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    const char *line = got > 0 ? strstr(text, "MemAvailable:") : NULL;
    return line ? strtoll(line + strlen("MemAvailable:"), NULL, 10) * 1024 : INT64_MAX;
}

/* The number in the file `name` of the control group `group`, a path below where groups are mounted; -1: none is said.
 * */
static int64_t read_group(const char *group, const char *name) {
    char path[GROUP_BYTES + 64], text[32] = {0};
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/%s", group, name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    return got > 0 && text[0] >= '0' && text[0] <= '9' ? strtoll(text, NULL, 10) : -1; /* "max": none */
}

/* What of a group's memory the kernel would give up: pages of files, but those of shared memory. */
static int64_t count_cached(const char *group) {
    char path[GROUP_BYTES + 64], text[8192] = {0};
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.stat", group);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    const char *idle = got > 0 ? strstr(text, "\ninactive_file ") : NULL,
               *used = got > 0 ? strstr(text, "\nactive_file ") : NULL;
    return (idle ? strtoll(idle + strlen("\ninactive_file "), NULL, 10) : 0) +
           (used ? strtoll(used + strlen("\nactive_file "), NULL, 10) : 0);
}

/* The group of this process, "" for the topmost: of the one hierarchy that kernels have had since version 2. */
static void find_group(char group[GROUP_BYTES]) {
    char text[GROUP_BYTES] = {0};
    int file = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    const char *line = got > 0 ? strstr(text, "0::/") : NULL;
    size_t length = line ? strcspn(line + 3, "\n") : 0;
    if (length <= 1) length = 0; /* "/" */
    snprintf(group, GROUP_BYTES, "%.*s", (int)length, line ? line + 3 : "");
}

/* What this process' control group, and those around it, may still take (`left`), or may take in all; INT64_MAX:
 * nothing limits them. A container sees its own limit as that of the topmost group, a system with the old control
 * groups none. */
static int64_t group_limit(bool left) {
    char group[GROUP_BYTES];
    int64_t least = INT64_MAX;
    find_group(group);
    for (;;) {
        int64_t limit = read_group(group, "memory.max");
        if (limit >= 0 && left) {
            int64_t held = read_group(group, "memory.current") - count_cached(group);
            if (held > 0) limit = limit > held ? limit - held : 0;
        }
        if (limit >= 0 && limit < least) least = limit;
        char *slash = strrchr(group, '/');
        if (!slash) return least;
        *slash = 0;
    }
}

int64_t shd_memory_total(void) {
    int64_t pages = sysconf(_SC_PHYS_PAGES), limit = group_limit(false);
    int64_t bytes = pages > 0 ? pages * sysconf(_SC_PAGESIZE) : INT64_MAX;
    return limit < bytes ? limit : bytes;
}

int64_t shd_memory_free(void) {
    int64_t available = shd_memory_available(), left = group_limit(true);
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
