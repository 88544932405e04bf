#include "runtime/train/usage.h"

#include "runtime/base/clock.h"
#include "runtime/base/memory.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { TEXT_BYTES = 16384 };

/* The file's beginning, terminated; false when it cannot be read. */
static bool read_text(const char *path, char text[TEXT_BYTES]) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    ssize_t got = read(file, text, TEXT_BYTES - 1);
    close(file);
    text[got > 0 ? got : 0] = 0;
    return got > 0;
}

/* user nice system idle iowait irq softirq steal guest guest_nice: idle and iowait are not busy; guests are counted in
 * user and nice already (proc(5)). */
bool shd_usage_read_stat(const char *text, double *busy, double *all) {
    enum { IDLE = 3, IOWAIT = 4, FIELDS = 8 };
    if (strncmp(text, "cpu ", 4) != 0) return false;
    char *at = (char *)text + 4;
    *busy = *all = 0;
    for (int i = 0; i < FIELDS && *at != '\n' && *at; i++) {
        double ticks = strtod(at, &at);
        *all += ticks;
        if (i != IDLE && i != IOWAIT) *busy += ticks;
    }
    return *all > 0;
}

/* "  eth0: bytes packets errs drop fifo frame compressed multicast bytes …" */
bool shd_usage_read_network(const char *text, double *in, double *out) {
    bool found = false;
    *in = *out = 0;
    for (const char *line = text; line && *line; line = (line = strchr(line, '\n')) ? line + 1 : NULL) {
        char name[64];
        double received, sent;
        if (sscanf(line, " %63[^: \n]: %lf %*f %*f %*f %*f %*f %*f %*f %lf", name, &received, &sent) != 3) continue;
        if (strcmp(name, "lo") == 0) continue;
        *in += received;
        *out += sent;
        found = true;
    }
    return found;
}

static double find_number(const char *text, const char *key) {
    const char *at = strstr(text, key);
    return at ? strtod(at + strlen(key), NULL) : NAN;
}

static shd_usage_counters count(void) {
    char text[TEXT_BYTES];
    struct rusage own;
    shd_usage_counters now = {.at_ms = shd_clock_ms(), .cpu_ms = NAN};
    if (getrusage(RUSAGE_SELF, &own) == 0)
        now.cpu_ms = (double)(own.ru_utime.tv_sec + own.ru_stime.tv_sec) * 1e3 +
                     (double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec) * 1e-3;
    if (!read_text("/proc/stat", text) || !shd_usage_read_stat(text, &now.host_busy, &now.host_all))
        now.host_busy = now.host_all = NAN;
    if (!read_text("/proc/self/io", text)) text[0] = 0;
    now.read_bytes = find_number(text, "\nread_bytes: ");
    now.write_bytes = find_number(text, "\nwrite_bytes: ");
    if (!read_text("/proc/self/net/dev", text) ||
        !shd_usage_read_network(text, &now.network_in_bytes, &now.network_out_bytes))
        now.network_in_bytes = now.network_out_bytes = NAN;
    return now;
}

static int64_t resident_bytes(void) {
    char text[TEXT_BYTES];
    long long all, resident = 0;
    if (!read_text("/proc/self/statm", text) || sscanf(text, "%lld %lld", &all, &resident) != 2) return 0;
    return resident * sysconf(_SC_PAGESIZE);
}

void shd_usage_start(shd_usage *usage, const shd_plan *plan) {
    usage->last = count();
    for (int32_t c = 0; c < SHD_CATEGORIES; c++) {
        usage->names[c] = shd_category_text((shd_category)c);
        usage->bytes[c] = plan->category_bytes[c];
    }
    usage->names[SHD_CATEGORIES] = "objects";
    usage->names[SHD_CATEGORIES + 1] = "control";
}

void shd_usage_sample(shd_usage *usage, shd_metrics_usage *out) {
    const shd_usage_counters before = usage->last, now = count();
    double seconds = fmax((now.at_ms - before.at_ms) * 1e-3, 1e-6), ticks = now.host_all - before.host_all;
    usage->last = now;
    usage->bytes[SHD_CATEGORIES] = shd_memory_held(SHD_MEMORY_OBJECTS);
    usage->bytes[SHD_CATEGORIES + 1] = shd_memory_held(SHD_MEMORY_CONTROL);
    *out = (shd_metrics_usage){
        .cpu_cores = (now.cpu_ms - before.cpu_ms) * 1e-3 / seconds,
        .host_cpu_share = ticks > 0 ? (now.host_busy - before.host_busy) / ticks : NAN,
        .read_bytes_per_s = (now.read_bytes - before.read_bytes) / seconds,
        .write_bytes_per_s = (now.write_bytes - before.write_bytes) / seconds,
        .network_in_bytes_per_s = (now.network_in_bytes - before.network_in_bytes) / seconds,
        .network_out_bytes_per_s = (now.network_out_bytes - before.network_out_bytes) / seconds,
        .resident_bytes = resident_bytes(),
        .memory_names = usage->names,
        .memory_bytes = usage->bytes,
        .memory_count = SHD_USAGE_USES,
    };
}
